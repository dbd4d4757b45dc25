"""Operations on what is said of the suite as a whole: title, description, tags, judge and policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from evaluators.scoring.policy import FLAGS, WORDS, Policy
from evaluators.scoring.types import ScoreOutOfRangeError
from runs.drafting.editing import ChangeRefusedError, Editing
from runs.drafting.settings import is_number

LONGEST_TITLE = 200
LONGEST_DESCRIPTION = 20_000
LONGEST_TAG = 60
MOST_TAGS = 30
MOST_PERCENT = 1_000_000
REVIEWERS = "review_reviewers"
POLICY = tuple(column.name for column in fields(Policy))


@dataclass(frozen=True, slots=True)
class Describe:
    """Set title, description and tags; what is None stays."""

    title: str | None = None
    description: str | None = None
    tags: Sequence[str] | None = None

    def apply(self, editing: Editing) -> None:
        """Set them; raises ChangeRefusedError naming the field."""
        if self.title is not None:
            title = " ".join(self.title.split())
            if not title:
                raise ChangeRefusedError("Title: a suite needs one.")
            _check_length("Title", title, LONGEST_TITLE)
            editing.content["title"] = title
        if self.description is not None:
            _check_length("Description", self.description, LONGEST_DESCRIPTION)
            editing.content["description"] = self.description.strip()
        if self.tags is not None:
            editing.content["tags"] = _tags(self.tags)


@dataclass(frozen=True, slots=True)
class SetJudge:
    """Choose the suite's judge by the slug of its language model, "" for none."""

    judge: str

    def apply(self, editing: Editing) -> None:
        """Set it; whether there is such a model is looked up when the draft is saved."""
        editing.content["judge"] = self.judge


@dataclass(frozen=True, slots=True)
class SetPolicy:
    """Set fields of the policy by name; the others stay. Thresholds are 0 to 1 (SCORING §1)."""

    fields: Mapping[str, Any]

    def apply(self, editing: Editing) -> None:
        """Set them; raises ChangeRefusedError, ScoreOutOfRangeError or UnknownPolicyError naming the field."""
        if unknown := sorted(self.fields.keys() - set(POLICY)):
            raise ChangeRefusedError(f"The policy has no {', '.join(unknown)}.")
        for name, value in self.fields.items():
            if name in FLAGS:
                if not isinstance(value, bool):
                    raise ChangeRefusedError(f"{name} {value!r} is neither yes nor no.")
            elif name not in WORDS and not is_number(value):
                raise ScoreOutOfRangeError(f"{name} {value!r} is not a number")
            elif name == REVIEWERS and not isinstance(value, int):
                raise ScoreOutOfRangeError(f"{name} {value!r} is not a whole number")
            elif name == "max_latency_increase_pct" and value > MOST_PERCENT:
                raise ScoreOutOfRangeError(f"{name} {value:g} is above {MOST_PERCENT:g}")
        policy = {**editing.content["policy"], **self.fields}
        editing.content["policy"] = Policy.from_json(policy).as_json()


def _tags(tags: Sequence[str]) -> list[str]:
    found = list(dict.fromkeys(tag for tag in (" ".join(tag.split()) for tag in tags) if tag))
    if len(found) > MOST_TAGS:
        raise ChangeRefusedError(f"Tags: {len(found)} are given, and {MOST_TAGS} is the most.")
    for tag in found:
        _check_length(f"Tag “{tag[:20]}”", tag, LONGEST_TAG)
    return found


def _check_length(field: str, text: str, most: int) -> None:
    if len(text) > most:
        raise ChangeRefusedError(
            f"{field}: the text has {len(text)} characters, and {most} is the most. Shorten it."
        )
