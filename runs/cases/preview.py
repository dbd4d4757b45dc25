"""Cases before they are stored, from a table or from a model: one row each, with what speaks against it."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.http import QueryDict

from evaluators.reading.json import storable
from runs.cases.checks import CaseChecks
from runs.cases.duplicates import MAX_NAMED, KnownTexts, RepeatedCase, compared_text
from runs.cases.forms import plain_lines
from runs.cases.services import DRAFTED
from runs.formats.table_cases import RowReader
from runs.formats.table_mapping import CaseMapping, CasePart
from runs.formats.tables import TableRow
from runs.models.runs import RecentValues
from runs.models.suites import Suite
from runs.specs.suites import CaseSpec
from runs.suites.services import SuiteChangedError

# What a person can change in a row, with the part of a case that it is read as.
EDITED: Mapping[str, CasePart] = {
    "key": CasePart.KEY,
    "title": CasePart.TITLE,
    "input": CasePart.INPUT,
    "expected_output": CasePart.EXPECTED_OUTPUT,
    "expected_outcomes": CasePart.OUTCOMES,
    "tags": CasePart.TAGS,
}
# A row with more is shown, and changed in its file.
MAX_EDITED_LENGTH = 200_000
# What an input of one line cannot hold.
LINE_ENDS = re.compile(r"[\r\n]")
SPLIT_TAGS = re.compile(r"[,\n]")


@dataclass(frozen=True, slots=True)
class PreviewRow:
    """One row: its number among those of its source, its cells by field, and the case they are read as.

    `choice` is what a person ticked, None for nothing yet. `part` is where in its source it comes from, and an update has
    the key of a case of the suite. `problems` are sentences; with one it cannot be stored.
    `left_out` are fields of a model's reply that it may not set. `duplicates` are cases of the suite, `repeats` earlier
    rows, by their keys.
    """

    number: int
    key: str
    cells: Mapping[str, Any]
    case: CaseSpec | None
    choice: bool | None = None
    part: str = ""
    is_update: bool = False
    problems: Sequence[str] = ()
    left_out: Sequence[str] = ()
    duplicates: Sequence[RepeatedCase] = ()
    repeats: Sequence[RepeatedCase] = ()

    @property
    def is_taken(self) -> bool:
        """Tell whether it is ticked: as a person chose, else if it can be stored and repeats no case exactly."""
        is_new = not any(each.is_exact for each in (*self.duplicates, *self.repeats))
        return is_new and not self.problems if self.choice is None else self.choice

    @property
    def is_unread(self) -> bool:
        """Tell whether a model gave nothing here that could be edited."""
        return "unread" in self.cells

    @property
    def is_editable(self) -> bool:
        """Tell whether its cells can be edited on a page."""
        return not self.is_unread and sum(map(len, self.texts.values())) <= MAX_EDITED_LENGTH

    @property
    def shown_turns(self) -> Sequence[Mapping[str, Any]]:
        """Return the messages of the input, as they are read, or else its text."""
        return self.case.input if self.case else [{"role": "user", "content": self.texts["input"]}]

    @property
    def metadata(self) -> Sequence[tuple[str, str]]:
        """Return the metadata as texts, without what says that a model drafted it."""
        values = self.case.metadata if self.case else {}
        return [(name, _text(value)) for name, value in values.items() if name != DRAFTED]

    @property
    def recorded(self) -> str:
        """Return the recorded output as a text, "" for none."""
        recorded = self.case.recorded_output if self.case else None
        return _text(recorded.get("output") or recorded) if recorded else ""

    @property
    def texts(self) -> Mapping[str, str]:
        """Return the cells as a person edits them: a conversation as JSON, one outcome per line, tags with commas."""
        return {
            "key": self.key,
            "title": self.cells.get("title") or "",
            "input": _text(self.cells.get("input") or ""),
            "expected_output": self.cells.get("expected_output") or "",
            "expected_outcomes": "\n".join(self.cells.get("expected_outcomes") or ()),
            "tags": ", ".join(self.cells.get("tags") or ()),
        }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)


def case_cells(case: CaseSpec) -> dict[str, Any]:
    """Return the cells of a case that can be edited."""
    is_text = len(case.input) == 1 and case.input[0].keys() == {"role", "content"}
    is_text = is_text and case.input[0]["role"] == "user"
    return {
        "key": case.key,
        "title": case.title,
        "input": case.input[0]["content"] if is_text else [*case.input],
        "expected_output": case.expected_output,
        "expected_outcomes": [*case.expected_outcomes],
        "tags": [*case.tags],
    }


def edit_case(case: CaseSpec, cells: Mapping[str, Any]) -> CaseSpec:
    """Return a case with cells that a person changed, read as those of a table; raises RefusedRowError."""
    row = TableRow(0, tuple({**case_cells(case), **cells}[name] for name in EDITED))
    read = RowReader(tuple(EDITED), CaseMapping(tuple(EDITED.values()))).case(row)
    return case.replace(**{name: getattr(read, name) for name in cells})


@dataclass(frozen=True, slots=True)
class RowChoices:
    """What a sent form says of the rows that it showed: whether each is ticked, and the cells that were changed."""

    ticks: Mapping[int, bool]
    cells: Mapping[int, Mapping[str, Any]]


def read_choices(rows: Sequence[PreviewRow], data: QueryDict) -> RowChoices:
    """Return what a sent form says of rows; it says nothing of those that it did not show."""
    shown, ticked = set(data.getlist("shown")), set(data.getlist("take"))
    sent = [row for row in rows if str(row.number) in shown]
    return RowChoices(
        {row.number: str(row.number) in ticked for row in sent},
        {row.number: cells for row in sent if row.is_editable and (cells := _changes(row, data))},
    )


def _changes(row: PreviewRow, data: QueryDict) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    for name, shown in row.texts.items():
        sent = data.get(f"{name}-{row.number}")
        if sent is None or (text := storable(plain_lines(str(sent)))) == plain_lines(shown):
            continue
        if name in ("key", "title", "tags") and text == LINE_ENDS.sub("", shown):
            continue
        if name == "expected_outcomes":
            changed[name] = [line.strip() for line in text.split("\n") if line.strip()]
        elif name == "tags":
            changed[name] = [tag.strip() for tag in SPLIT_TAGS.split(text) if tag.strip()]
        else:
            changed[name] = text.strip()
    return changed


@dataclass(frozen=True, slots=True)
class KnownCases:
    """The keys of a suite's current cases, and their inputs; `state` differs whenever one of them does."""

    keys: frozenset[str]
    texts: KnownTexts
    state: Hashable = None


_kept: RecentValues[KnownCases] = RecentValues(size=4)


def known_cases(suite: Suite | None) -> KnownCases:
    """Return the cases of a suite to compare with; this process keeps those of the last few versions."""
    if suite is None:
        return KnownCases(frozenset(), KnownTexts((), ()))
    # Edits of cases can join a version, which has another stamp then.
    state = (suite.pk, suite.created_at, suite.version_stamp)

    def read() -> KnownCases:
        rows = list(suite.cases.filter(is_current=True).values_list("key", "input"))
        keys = [key for key, _ in rows]
        texts = KnownTexts(keys, [compared_text(turns) for _, turns in rows])
        return KnownCases(frozenset(keys), texts, state)

    return _kept.get(state, read)


def with_findings(
    rows: Sequence[PreviewRow], suite: Suite | None, *, first: Mapping[int, str] | None = None
) -> list[PreviewRow]:
    """Return rows with what speaks against each: problems by the rules of cases, and the cases that it repeats.

    A row repeats earlier ones of `rows`. Where these are only some, `first` has the key of the first row of all that
    says the same, by the number of a row. What has the key of a row is the same case, not a repetition.
    """
    known, checks = known_cases(suite), CaseChecks(suite or Suite())
    texts = [compared_text(row.case.input) if row.case else "" for row in rows]
    earlier = KnownTexts([str(place) for place in range(len(rows))], texts)
    found = []
    for place, (row, text) in enumerate(zip(rows, texts, strict=True)):
        problems = [*row.problems]
        for field, messages in (checks.problems(row.case) if row.case else {}).items():
            problems += [f"{field}: {message}" for message in messages]
        duplicates = known.texts.repeated_by(text, most=MAX_NAMED + 1)
        repeats = [
            RepeatedCase(rows[int(each.key)].key, each.ratio)
            for each in earlier.repeated_by(text, most=len(texts))
            if int(each.key) < place
        ]
        key = (first or {}).get(row.number, row.key)
        if key not in {row.key, *(each.key for each in repeats)}:
            repeats.insert(0, RepeatedCase(key))
        found.append(
            replace(
                row,
                problems=[problem[:1].upper() + problem[1:] for problem in problems],
                duplicates=[each for each in duplicates if each.key != row.key][:MAX_NAMED],
                repeats=repeats[:MAX_NAMED],
            )
        )
    return found


def check_unchanged(suite: Suite, seen: str) -> None:
    """Raise SuiteChangedError where a suite has another `version_stamp` than a preview was made for, "" for any."""
    if seen and seen != suite.version_stamp:
        raise SuiteChangedError(
            f"{suite.title} was changed meanwhile: it is at version {suite.version} now. Nothing was stored. Look at "
            "the duplicates again, then store the cases."
        )
