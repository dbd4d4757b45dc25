"""The table of a suite's cases, one case in full with its last runs, and cases as files to download."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import Http404
from django.utils.dateformat import format as date_format

from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import EvaluatorSpec
from evaluators.templatetags import figures
from runs import lists
from runs.cases.services import DRAFTED
from runs.exports.specs import ExportSpec, file_kind
from runs.filters.fields import CASE_VOCABULARY, read_checked
from runs.filters.language import MAX_LENGTH, FilterError, read_filter, wanted_words
from runs.filters.matching import CaseRows, condition
from runs.filters.queries import Hit, condition_chips, condition_text, lists_without
from runs.formats.suite_files import case_values, pack_suite
from runs.formats.table_cases import case_row
from runs.formats.tables import CASE_COLUMNS, csv_parts
from runs.lists import PAGE_SIZE, Chip, Control, Key, Keyset, ListQuery, read_integer, with_tag
from runs.models.results import Result
from runs.models.run_cases import execution_from, live_state
from runs.models.runs import Run, RunStatus
from runs.models.search import conversation_text
from runs.models.suites import Case, Suite
from runs.requests import get_suite_or_404
from runs.results.result_state import (
    MAX_MARKS,
    Override,
    RepetitionMark,
    case_override,
    passed_words,
    result_address,
    row_mark,
    row_reviewed_verdict,
)
from runs.specs.suites import CaseSpec
from runs.suites.files import (
    UnknownVersionError,
    find_version,
    packed_ending,
    suite_with_cases,
    version_file,
)
from runs.suites.queries import Branch, branches
from runs.summary.cases import summarise_case
from runs.target_kinds._outputs import messages_as_json, output_from_json, trace_as_json
from runs.texts import cut_step, cut_turns
from runs.words import snippet

MAX_ORIGIN_LENGTH = 300
SUITE_ORDER = Keyset(Key("position", int), Key("pk", int))
SORTS: Mapping[str, Keyset] = {
    "": SUITE_ORDER,
    "key": Keyset(Key("key", str), Key("pk", int)),
    "title": Keyset(Key("title", str), Key("position", int), Key("pk", int)),
    "edited": Keyset(
        Key("created_at", datetime, is_descending=True), Key("pk", int, is_descending=True)
    ),
}
# What the latest completed run found, with the text of the filter; "none" is a case that was not in it.
NOT_RUN = "none"
VERDICTS: Mapping[str, str] = {
    "pass": "Pass",
    "borderline": "Borderline",
    "fail": "Fail",
    "error": "Errored",
    NOT_RUN: "Not run",
}
ORDERS = (
    ("", "Suite's order"),
    ("key", "By key"),
    ("title", "By title"),
    ("edited", "Last edited first"),
)


@dataclass(frozen=True, slots=True)
class CasesQuery(ListQuery):
    """A filter and order of a suite's current cases; `view` is the number of a saved view, which says where they came from."""

    text: str = lists.search(max_length=MAX_LENGTH + 1)
    tag: str = lists.text(help="Only cases with this tag.")
    verdict: str = lists.choice(
        VERDICTS, help="Only cases with this verdict in the latest completed run."
    )
    sort: str = lists.option(SORTS, "")
    view: str = lists.setting()
    after: str = lists.after()

    @property
    def beside_text(self) -> Sequence[tuple[str, Mapping[str, Any]]]:
        """Return the filters that have a control of their own as conditions, each with what leaves it out."""
        return [
            *([(condition_text("verdict", self.verdict), {"verdict": ""})] if self.verdict else ()),
            *([(condition_text("tag", self.tag), {"tag": ""})] if self.tag else ()),
        ]

    def cases(self, suite: Suite) -> QuerySet[Case]:
        """Return the cases that match; raises FilterError."""
        cases = suite.cases.filter(is_current=True)
        if self.tag:
            cases = with_tag(cases, self.tag)
        if not (self.text or self.verdict):
            return cases
        checked = read_checked(self.text, CASE_VOCABULARY)
        rows = CaseRows(cases, [suite.pk], latest_completed_run(suite))
        if self.verdict:
            cases = cases.filter(rows.has_verdict(self.verdict))
        return cases.filter(condition(checked, rows))


@dataclass(frozen=True, slots=True)
class CaseRow:
    """One row of the table; `verdict` is from the latest completed run, "" if the case was not in it."""

    key: str
    title: str
    question: str
    outcomes: int
    has_expected_output: bool
    tags: Sequence[str]
    has_own_evaluators: bool
    drafted: str
    verdict: str
    hit: Hit | None


@dataclass(frozen=True, slots=True)
class CaseTable:
    """One page of the table; `next_address` is that of the next page, "" at the end."""

    query: CasesQuery
    rows: Sequence[CaseRow]
    total: int
    matching: int
    shown: int
    next_address: str
    latest_run: int | None
    conditions: Sequence[Chip] = ()
    problem: FilterError | None = None
    without: Sequence[Chip] = ()

    @property
    def first(self) -> int:
        """Return the position of the first row among the matching cases, from 1."""
        return self.shown - len(self.rows) + 1

    @property
    def nothing(self) -> str:
        """Return a sentence that no case matches the filter."""
        found = f" with the verdict {VERDICTS[self.query.verdict]}" if self.query.verdict else ""
        tagged = f" tagged “{self.query.tag}”" if self.query.tag else ""
        searched = f" matches “{self.query.text}”" if self.query.text else ""
        return f"No case{found}{tagged}{searched}"


def case_controls(suite: Suite, query: CasesQuery) -> list[Control]:
    """Return the controls that filter and sort the table; one query."""
    tags = [(tag, f"{tag} ({count})") for tag, count in suite.tag_counts()]
    return [
        query.search_box("text", "Filter cases"),
        *([query.select("tag", "Tag", tags, "All tags")] if tags else ()),
        query.select("verdict", "Last verdict", VERDICTS.items(), "All verdicts"),
        query.select("sort", "Order", ORDERS),
    ]


def case_table(suite: Suite, query: CasesQuery) -> CaseTable:
    """Return one page of the suite's current cases."""
    problem: FilterError | None = None
    conditions: Sequence[Chip] = ()
    try:
        matching = query.cases(suite)
        conditions = condition_chips(query) if query.text else ()
    except FilterError as error:
        problem, matching = error, suite.cases.none()
    keyset = SORTS[query.sort]
    page = keyset.page(matching.defer("recorded_output"), query.after, PAGE_SIZE)
    count = matching.count()
    left = keyset.behind(matching, page.after).count() if page.after else 0
    run = latest_completed_run(suite)
    states = _states(run, [case.key for case in page.rows])
    wanted = wanted_words(read_filter(query.text)) if query.text and page.rows else {}
    return CaseTable(
        query=query,
        rows=[_row(case, states.get(case.key, ""), wanted) for case in page.rows],
        total=suite.cases.filter(is_current=True).count() if query.is_narrowed else count,
        matching=count,
        shown=count - left,
        next_address=page.next_address(query),
        latest_run=run.number if run else None,
        conditions=conditions,
        problem=problem,
        without=()
        if count or problem
        else lists_without(query, lambda wider: wider.cases(suite).count(), query.beside_text),
    )


def matching_keys(suite: Suite, query: CasesQuery) -> Sequence[str]:
    """Return the keys of all matching current cases, in the suite's order; raises FilterError."""
    return list(SUITE_ORDER.order(query.cases(suite)).values_list("key", flat=True))


def latest_completed_run(suite: Suite) -> Run | None:
    """Return the newest completed run, without its summary and scores."""
    runs = suite.runs.filter(status=RunStatus.COMPLETED).order_by("-number")
    return runs.defer("summary", "leaf_scores").first()


def _states(run: Run | None, keys: Sequence[str]) -> Mapping[str, str]:
    """Return the state of each case in the run, by key (SCORING §8)."""
    if run is None or not keys:
        return {}
    cases = run.cases.live(run).filter(case__key__in=keys).order_by()
    return dict(cases.values_list("case__key", "live_state"))


def _row(case: Case, state: str, wanted: Mapping[str, Sequence[Sequence[str]]]) -> CaseRow:
    return CaseRow(
        key=case.key,
        title=case.title,
        question=last_question(case.input),
        outcomes=len(case.expected_outcomes),
        has_expected_output=bool(case.expected_output),
        tags=case.tags,
        has_own_evaluators=case.evaluators is not None,
        drafted=drafted_text(case.metadata),
        verdict=state,
        hit=_first_hit(case, wanted),
    )


def _first_hit(case: Case, wanted: Mapping[str, Sequence[Sequence[str]]]) -> Hit | None:
    """Return the first text with words of a filter; the row shows key and title anyway."""
    expected = [case.expected_output, *map(str, case.expected_outcomes)]
    texts = {"input": [conversation_text(case.input)], "expected": expected}
    for place, own in texts.items():
        phrases = [*wanted.get(place, ()), *(wanted.get("", ()) if place == "input" else ())]
        for text in own:
            if phrases and (pieces := snippet(text, phrases)):
                return Hit(place, pieces)
    return None


def drafted_text(metadata: Mapping[str, Any]) -> str:
    """Return in words which model drafted a case from what, "" if none did; files may say anything there."""
    said = metadata.get(DRAFTED)
    if not isinstance(said, Mapping):
        return ""
    by, source, on, part = (
        value[:MAX_ORIGIN_LENGTH] if isinstance(value := said.get(name), str) else ""
        for name in ("by", "from", "on", "part")
    )
    day = ""
    with suppress(ValueError):
        day = date_format(date.fromisoformat(on), "j M Y")
    words = (
        f"Drafted by {by or 'a model'}",
        f" from {source}" if source else "",
        f" ({part})" if part else "",
        f" on {day}" if day else "",
    )
    return "".join(words)


def last_question(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the last thing the user said, as text."""
    texts = [message.get("content", "") for message in messages if message.get("role") == "user"]
    return texts[-1] if texts and isinstance(texts[-1], str) else ""


@file_kind("cases")
def case_file(*, slug: str, keys: Sequence[str], form: str) -> ExportSpec:
    """Describe a file of these cases; raises Http404.

    `jsonl` has one case per line, in full; `csv` is a table that reads back as the cases, without evaluators of their
    own; any other form is the suite with only these cases, a zip if it has files.
    """
    suite = get_suite_or_404(slug=slug)
    try:
        row = find_version(suite)
    except UnknownVersionError as error:
        raise Http404(str(error)) from error
    ending = form if form in WRITERS else packed_ending(row)
    name = f"{slug}-v{row.number}-{len(keys)}-cases"

    def write() -> Iterator[bytes]:
        content = suite_with_cases(suite, version=row.number, only=set(keys))
        if form in WRITERS:
            return WRITERS[form](content.cases)
        return pack_suite(content, name).parts

    return version_file(
        row,
        name=f"{name}.{ending}",
        rows=len(keys),
        write=write,
    )


def _lines(cases: Sequence[CaseSpec]) -> Iterator[bytes]:
    for case in cases:
        yield f"{json.dumps(case_values(case), ensure_ascii=False, allow_nan=False)}\n".encode()


def _table(cases: Sequence[CaseSpec]) -> Iterator[bytes]:
    for part in csv_parts(CASE_COLUMNS, map(case_row, cases)):
        yield part.encode()


WRITERS: Mapping[str, Callable[[Sequence[CaseSpec]], Iterator[bytes]]] = {
    "jsonl": _lines,
    "csv": _table,
}

RUNS_SHOWN = 12
MAX_STEPS = 300


@dataclass(frozen=True, slots=True)
class CaseRun:
    """What one completed run found for a case: its verdict and mean score (SCORING §8).

    `repetitions` is empty where there are too many for a mark each; `states` counts all by state. `passed` is a
    text that says how many passed and whether they differ, "" for a single repetition.
    """

    number: int
    state: str
    score: float | None
    repetitions: tuple[RepetitionMark, ...]
    states: Mapping[str, int]
    passed: str
    passes: int
    scored: int
    is_flaky: bool
    spread: float | None
    override: Override | None


@dataclass(frozen=True, slots=True)
class RecordedTurns:
    """The output stored with a case: its conversation, steps and file names."""

    turns: Sequence[Mapping[str, Any]]
    steps: Sequence[Mapping[str, Any]]
    cut_characters: int
    cut_steps: int
    files: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class CasePage:
    """One revision of a case, with its neighbours and what the last completed runs found."""

    case: Case
    revisions: Sequence[tuple[int, bool]]
    previous: str | None
    following: str | None
    runs: Sequence[CaseRun]
    evaluators: Branch | None
    recorded: RecordedTurns | None

    @property
    def now(self) -> int | None:
        """Return the current revision, None for a deleted case."""
        return next((number for number, is_current in self.revisions if is_current), None)

    @property
    def drafted(self) -> str:
        """Return in words which model drafted the case from what, "" if none did."""
        return drafted_text(self.case.metadata)

    @property
    def own_note(self) -> str:
        """Return how the case's own evaluators relate to the suite's."""
        is_added = self.case.evaluators_append
        return "Added to the suite's" if is_added else "Replace the suite's"

    @property
    def repeated(self) -> Sequence[CaseRun]:
        """Return the last runs that repeated the case, newest first."""
        return [run for run in reversed(self.runs) if len(run.repetitions) > 1]

    @property
    def runs_text(self) -> str:
        """Return a text alternative for the marks of the last runs."""
        passed = sum(run.state == "pass" for run in self.runs)
        return f"Passed in {passed} of {figures.counted(len(self.runs), 'run')}"


def case_revisions(slug: str, key: str, revision: str) -> QuerySet[Case]:
    """Return the given revision of a case; by default the current one, or the last of a deleted case."""
    cases = Case.objects.filter(suite__slug=slug, key=key).select_related("suite")
    if revision.isdigit():
        number = read_integer(revision)
        return cases.none() if number is None else cases.filter(revision=number)
    return cases.order_by("-is_current", "-revision")[:1]


def case_place(case: Case) -> int:
    """Return the position of a current case in the suite's order, from 1."""
    current = case.suite.cases.filter(is_current=True)
    before = Q(position__lt=case.position) | Q(position=case.position, pk__lt=case.pk)
    return current.filter(before).count() + 1


def count_runs(suite: Suite, keys: Sequence[str]) -> int:
    """Return how many runs have results of any revision of these cases."""
    cases = Case.objects.filter(suite=suite, key__in=keys).values("pk")
    return suite.runs.filter(
        Exists(Result.objects.filter(run=OuterRef("pk"), case__in=cases))
    ).count()


def case_page(case: Case) -> CasePage:
    """Return everything the page of a case shows."""
    suite = case.suite
    current = suite.cases.filter(is_current=True).exclude(key=case.key)
    before = Q(position__lt=case.position) | Q(position=case.position, pk__lt=case.pk)
    earlier = current.filter(before).order_by("-position", "-id")
    revisions = suite.cases.filter(key=case.key).order_by("-revision")
    return CasePage(
        case=case,
        revisions=list(revisions.values_list("revision", "is_current")),
        previous=earlier.values_list("key", flat=True).first(),
        following=SUITE_ORDER.behind(current, SUITE_ORDER.place(case))
        .values_list("key", flat=True)
        .first(),
        runs=_case_runs(case),
        evaluators=branches(EvaluatorSpec.model_validate(case.evaluators), scale=suite.scale)
        if case.evaluators
        else None,
        recorded=_recorded(case.recorded_output),
    )


def saved_by(case: Case) -> str:
    """Return who made the current revision of a case if the last version shows it, else ""."""
    versions = case.suite.versions.select_related("author").order_by("-number")[:2]
    contains = [
        any(
            entry["key"] == case.key and entry["revision"] == case.revision
            for entry in version.content["cases"]
        )
        for version in versions
    ]
    author = versions[0].author if contains[:1] == [True] and not any(contains[1:]) else None
    return author.get_username() if author else ""


def undoable_change(page: CasePage, asked: Mapping[str, str]) -> Mapping[str, int]:
    """Return what was just done to the case and can be undone: it was `made`, or changed from `before`.

    Empty once the case has changed again, so that an old address cannot undo later work.
    """
    now, numbers = page.now, {number for number, _ in page.revisions}
    if now != page.case.revision:
        return {}
    if asked.get("made") == str(now) and len(numbers) == 1:
        return {"made": now}
    before = next((n for n in numbers if asked.get("before") == str(n)), None)
    return {"before": before} if before and before != now else {}


def _recorded(stored: Mapping[str, Any] | None) -> RecordedTurns | None:
    if stored is None:
        return None
    # Files may refer to those of a version; their names are enough here.
    output = output_from_json({**stored, "files": None})
    answer = [{"role": "assistant", "content": output.text}]
    shown = cut_turns(messages_as_json(output) or answer)
    steps = trace_as_json(output) or ()
    return RecordedTurns(
        turns=shown.messages,
        steps=[cut_step(step) for step in steps[:MAX_STEPS]],
        cut_characters=shown.cut_characters,
        cut_steps=max(0, len(steps) - MAX_STEPS),
        files=sorted(stored.get("files") or ()),
    )


def _case_runs(case: Case) -> Sequence[CaseRun]:
    """Return what the last completed runs found of the case, oldest first."""
    ran = Run.objects.filter(suite=case.suite, status=RunStatus.COMPLETED)
    with_case = Result.objects.filter(run=OuterRef("pk"), case__key=case.key)
    newest = ran.filter(Exists(with_case)).order_by("-number")
    policies = dict(newest.values_list("pk", "snapshot__policy")[:RUNS_SHOWN])
    results = Result.objects.filter(run__in=policies, case__key=case.key)
    rows = results.order_by("run__number", "repetition").values(
        *(
            "run_id",
            "run__number",
            "repetition",
            "status",
            "verdict",
            "reviewed_verdict",
            "score",
            "is_forced",
        )
    )
    return [
        _case_run(case, list(group), PolicySpec.model_validate(policies[run]))
        for run, group in groupby(rows, key=itemgetter("run_id"))
    ]


def _case_run(case: Case, rows: Sequence[Mapping[str, Any]], policy: PolicySpec) -> CaseRun:
    marks = [row_mark(row, policy) for row in rows]
    number = rows[0]["run__number"]
    summary = summarise_case(case.key, [execution_from(row) for row in rows], policy)
    return CaseRun(
        number=number,
        state=live_state(rows, policy),
        score=summary.means.score,
        repetitions=tuple(
            RepetitionMark(
                row["repetition"],
                result_address(case.suite.slug, number, case.key, row["repetition"]),
                mark,
                row["score"],
                row_reviewed_verdict(row),
            )
            for row, mark in zip(rows, marks, strict=True)
            if len(rows) <= MAX_MARKS
        ),
        states=Counter(marks),
        passed=passed_words(summary),
        passes=summary.passed,
        scored=summary.scored,
        is_flaky=summary.is_flaky,
        spread=summary.spread,
        override=case_override(rows, policy),
    )
