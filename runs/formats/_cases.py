"""Cases of a suite file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from evaluators.scoring.tree import Node
from runs.formats._content import CaseContent
from runs.formats._document import Path
from runs.formats._evaluators import read_evaluators
from runs.formats._fields import Fields
from runs.formats._reading import Reading
from runs.formats._recorded import read_recorded
from runs.formats._trees import check_composite, default_children, read_aggregator, root_of
from runs.formats._turns import Shared, read_expected, read_input

LONGEST_KEY = 200
LONGEST_TITLE = 300
ALIASES = {
    "id": ("key", "case_id", "eval_id", "test_id"),
    "title": ("name",),
    "criteria": ("expected_outcome", "outcome"),
    "input": ("input_messages",),
    "expected_output": ("expected_messages", "reference_answer"),
    "assertions": ("assert",),
    "output": ("recorded_output",),
}
WITHIN = {"assertions": ("assert",)}


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a suite gives each of its cases: what goes before their input, and its evaluators.

    `is_default` tells that the suite lists no evaluators, so that a case's own stand alone.
    """

    root: Node
    is_default: bool
    shared: Shared


def read_cases(
    reading: Reading, path: Path, items: list[Any], defaults: Defaults
) -> tuple[CaseContent, ...]:
    """Return the cases of a list; ids must be unique, what cannot be read is noted and left out."""
    found: dict[str, CaseContent] = {}
    first_lines: dict[str, int] = {}
    for n, item in enumerate(items):
        at = (*path, n)
        if isinstance(item, str):
            said = f"{item[:100]!r} names no case; cases stand here themselves, with id and input"
            reading.refuse(at, said)
            continue
        case = _Case(reading, at, item, defaults).content()
        if case is None:
            continue
        if case.key in found:
            said = f"the id {case.key!r} stands twice, first on line {first_lines[case.key]}"
            reading.refuse((*at, "id"), f"{said}; give each case its own", case=case.key)
            continue
        found[case.key] = case
        first_lines[case.key] = reading.document.line_of(at)
    return tuple(found.values())


class _Case:
    """One case of a list."""

    def __init__(self, reading: Reading, path: Path, item: Any, defaults: Defaults) -> None:
        self.reading = reading
        self.path = path
        self.fields = Fields(reading, path, aliases=ALIASES, value=item)
        self.defaults = defaults

    def content(self) -> CaseContent | None:
        """Return the case, None when it has no usable id."""
        key = self.fields.text("id")
        if not key.strip():
            self.fields.refuse("", "the case has no id; give it one that no other case has")
            return None
        if len(key) > LONGEST_KEY:
            self.fields.refuse("id", f"the id is longer than {LONGEST_KEY} characters; shorten it")
        self.fields.case = key
        title = self.fields.text("title")
        if len(title) > LONGEST_TITLE:
            said = f"the title is longer than {LONGEST_TITLE} characters; shorten it"
            self.fields.refuse("title", said)
        execution_key, block = self.fields.mapping("execution")
        place = self.fields.place(execution_key)
        inner = Fields(self.reading, place, aliases=WITHIN, value=block, case=key)
        skips = bool(inner.flag("skip_defaults")) | bool(self.fields.flag("skip_defaults"))
        evaluators, append = self._evaluators(inner, skips=skips)
        expected, kept = read_expected(self.fields)
        rest = inner.keep_rest()
        own = self.reading.kept.pop(key, {})
        content = CaseContent(
            key=key,
            title=title,
            tags=self.fields.texts("tags"),
            input=read_input(self.fields, Shared() if skips else self.defaults.shared),
            expected_output=expected,
            expected_outcomes=self.fields.texts("expected_outcomes"),
            criteria=self.fields.text("criteria"),
            recorded_output=read_recorded(self.fields),
            evaluators=evaluators,
            evaluators_append=append,
            metadata=self.fields.metadata(
                {"execution": rest} if rest else {}, {"evaluators": own} if own else {}, kept
            ),
        )
        if any(not outcome.strip() for outcome in content.expected_outcomes):
            self.fields.refuse(
                "expected_outcomes", "an expected outcome is empty; write it or remove it"
            )
        return content

    def _evaluators(self, inner: Fields, *, skips: bool) -> tuple[Node | None, bool]:
        """Return the case's own tree and whether it joins the suite's (`assertions`) or replaces it."""
        own = self._listed(self.fields, "evaluators", ())
        own += self._listed(inner, "evaluators", own)
        joins = not own and not skips and not self.defaults.is_default
        beside = self.defaults.root.children if joins else own
        joined = self._listed(self.fields, "assertions", beside)
        joined += self._listed(inner, "assertions", (*beside, *joined))
        for fields in (self.fields, inner):
            joined += self._listed(fields, "rubrics", (*beside, *joined))
        aggregator_key, options = self.fields.mapping("aggregator")
        place = self.fields.place(aggregator_key)
        aggregator = read_aggregator(self.reading, place, options, case=self.fields.case)
        if options and (joins or not (own or joined)):
            said = "is taken from the suite, unless the case lists evaluators of its own"
            self.fields.refuse(aggregator_key, said)
        if not own and not joined:
            return (root_of(default_children()), False) if skips else (None, False)
        root = root_of((*own, *joined), aggregator if options else None)
        check_composite(self.reading, self.path, root, case=self.fields.case)
        return root, joins

    def _listed(self, fields: Fields, name: str, beside: tuple[Node, ...]) -> tuple[Node, ...]:
        key, items = fields.items(name)
        if name == "rubrics" and items:
            items = [{"type": "rubric", "rubrics": items}]
        return read_evaluators(
            self.reading, fields.place(key), items, case=self.fields.case, beside=beside
        )
