"""The part of the start form that says which cases: all, by tag, those picked, or what a run did not pass."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import Any

from django import forms
from django.db.models import Count, Q
from django.http import QueryDict

from runs.forms.start_again import CHOSEN, LONGEST_NUMBER
from runs.models import Case, Run, Suite
from runs.reports.past_usage import ENDED
from runs.reports.start_cases import (
    CasePick,
    case_pick,
    last_ended,
    not_passed_in,
    outcomes_by_key,
)

ALL, BY_TAG, FAILED = "all", "tag", "failed:"
LONGEST_SHOWN = 60
LONGEST_KEYS = 4_000_000


class CaseChoiceForm(forms.Form):
    """Which cases of a suite a run is of; `case` are ticked keys, `keys` has others one a line."""

    data: QueryDict

    cases = forms.ChoiceField(label="Cases")
    tag = forms.MultipleChoiceField(required=False, label="Tags")
    keys = forms.CharField(
        required=False,
        max_length=LONGEST_KEYS,
        label="Other keys",
        help_text="of cases, one a line, besides the ticked ones",
        widget=forms.Textarea(attrs={"rows": 3, "data-code": True, "spellcheck": "false"}),
    )

    def __init__(self, suite: Suite, *args: Any, **options: Any) -> None:
        """Offer the cases and tags of the suite."""
        super().__init__(*args, **options)
        self.suite = suite
        choices = [(tag, f"{tag} ({count})") for tag, count in self.tags.items()]
        total = sum(count for _, count, _ in self._by_tags)
        self.fields["tag"] = forms.MultipleChoiceField(choices=choices, required=False)
        self.fields["cases"] = forms.ChoiceField(
            choices=[
                (ALL, f"All {total}"),
                *(
                    (f"{FAILED}{run.number}", f"Not passed in {run} ({len(keys)})")
                    for run, keys in self._not_passed.values()
                    if keys
                ),
                *([(BY_TAG, "By tag")] if choices else ()),
                (CHOSEN, "Chosen cases"),
            ],
        )
        by_tag, by_key = self.initial.get("tag"), self.initial.get("keys")
        usual = BY_TAG if by_tag else CHOSEN if by_key else ALL
        self.initial.setdefault("cases", usual)

    @cached_property
    def tags(self) -> dict[str, int]:
        """Return the tags of the suite's cases with the number of cases, most frequent first."""
        counts: Counter[str] = Counter()
        for tags, total, _ in self._by_tags:
            counts.update(dict.fromkeys(tags, total))
        return dict(counts.most_common())

    @cached_property
    def chosen_tags(self) -> set[str]:
        """Return the tags that are ticked."""
        return set(self._list("tag"))

    @cached_property
    def chosen_keys(self) -> tuple[str, ...]:
        """Return the keys that are ticked or written, each once."""
        written = str(self["keys"].value() or "").splitlines()
        found = [*self._list("case"), *(line.strip() for line in written)]
        return tuple(dict.fromkeys(key for key in found if key))

    @cached_property
    def pick(self) -> CasePick:
        """Return the cases to pick from."""
        text = self.data.get("sought", "") if self.is_bound else self.initial.get("sought", "")
        return case_pick(self.suite, str(text), self.chosen_keys)

    @property
    def has_cases(self) -> bool:
        """Tell whether the suite has a case."""
        return bool(self._by_tags)

    @property
    def choice(self) -> str:
        """Return which cases are asked for: a value of `cases`."""
        return str(self["cases"].value())

    def clean(self) -> dict[str, Any]:
        """Refuse an empty choice of cases, and keys that are no case's."""
        found: dict[str, Any] = super().clean() or self.cleaned_data
        if self.choice == BY_TAG and not found.get("tag") and "tag" not in self.errors:
            self.add_error("tag", "Tick at least one tag, or choose all cases.")
        if self.choice == CHOSEN and "keys" not in self.errors:
            self._check_keys()
        if not self.has_cases:
            self.add_error(None, f"{self.suite.title} has no cases yet. Import some first.")
        return found

    def wanted_tags(self) -> list[str] | None:
        """Return the tags that the cases are chosen by, None where they are not."""
        return sorted(self.chosen_tags) if self.choice == BY_TAG else None

    @cached_property
    def wanted_keys(self) -> list[str] | None:
        """Return the keys of the chosen cases that the suite has, None where they are not chosen by key."""
        if self.choice == CHOSEN:
            return [key for key in self.chosen_keys if key in self._outcomes]
        if self.choice.startswith(FAILED):
            run_keys = self._not_passed.get(self.choice.removeprefix(FAILED))
            return [key for key in (run_keys[1] if run_keys else ()) if key in self._outcomes]
        return None

    @property
    def counts(self) -> tuple[int, int]:
        """Return how many cases are chosen, and how many of them have expected outcomes."""
        if (keys := self.wanted_keys) is not None:
            return len(keys), sum(self._outcomes[key] for key in keys)
        wanted = set(self.wanted_tags() or ())
        rows = [row for row in self._by_tags if not wanted or wanted & set(row[0])]
        return sum(total for _, total, _ in rows), sum(outcomes for *_, outcomes in rows)

    def _check_keys(self) -> None:
        strangers = [key for key in self.chosen_keys if key not in self._outcomes]
        if strangers:
            more = f" and {len(strangers) - 1} more" if len(strangers) > 1 else ""
            self.add_error(
                "keys", f"{self.suite.title} has no case “{strangers[0][:LONGEST_SHOWN]}”{more}."
            )
        elif not self.chosen_keys:
            self.add_error("keys", "Tick or name at least one case, or choose all cases.")

    def _list(self, name: str) -> list[str]:
        """Return the values of a name that can stand in the form several times."""
        if self.is_bound:
            return [str(value) for value in self.data.getlist(name)]
        found = self.initial.get(name) or []
        return [str(found)] if isinstance(found, str) else [str(value) for value in found]

    @cached_property
    def _not_passed(self) -> dict[str, tuple[Run, list[str]]]:
        """Return the cases not passed in the last run, and in the one that was asked for, by its number."""
        runs = [last_ended(self.suite)]
        asked = str(self.data.get("cases", "") if self.is_bound else self.initial.get("cases", ""))
        number = asked.removeprefix(FAILED)
        if asked.startswith(FAILED) and number.isdecimal() and len(number) <= LONGEST_NUMBER:
            named = self.suite.runs.filter(number=int(number), status__in=ENDED)
            runs.append(named.defer("snapshot", "summary", "leaf_scores").first())
        return {str(run.number): (run, not_passed_in(run)) for run in runs if run is not None}

    @cached_property
    def _outcomes(self) -> dict[str, bool]:
        return outcomes_by_key(self.suite)

    @cached_property
    def _by_tags(self) -> list[tuple[list[str], int, int]]:
        """Return of every list of tags how many current cases have it, and how many of them outcomes."""
        rows = Case.objects.filter(suite=self.suite, is_current=True).order_by().values("tags")
        counted = rows.annotate(
            total=Count("id"), with_outcomes=Count("id", filter=~Q(expected_outcomes=[]))
        )
        return list(counted.values_list("tags", "total", "with_outcomes"))
