"""The cases of a run that a list, a retry or a new run is about, and their values that filters ask about."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from math import fsum
from typing import Any

from django.db.models import Avg, F, Q, QuerySet, Sum, TextField
from django.db.models.functions import Cast, Coalesce

from evaluators.scoring.aggregate import HYBRID_KIND
from evaluators.scoring.numbers import rounded, sum_known
from evaluators.scoring.tree import ROOT_PATH, negated_paths, walk
from runs import lists
from runs.engine.plan import METRICS_KIND, read_plan
from runs.filters.fields import Field, Source, Vocabulary, read_checked
from runs.filters.language import MAX_LENGTH
from runs.filters.matching import matching
from runs.lists import ListQuery, Sort, with_tag
from runs.models.results import EvaluatorScore, Result, ScoreState
from runs.models.reviews import Review, ReviewItem
from runs.models.run_cases import LiveCases
from runs.models.runs import Run
from runs.models.suites import Case
from runs.summary.cases import STATES

ANY_ERROR = "any"
# By the source of a field: the kind of evaluator, the detail that holds its parts, and the number that counts.
PARTS = {
    Source.METRIC: (METRICS_KIND, "metrics", "score"),
    Source.DIMENSION: (HYBRID_KIND, "dimensions", "final"),
}
MARKS = {"met": "1", "missed": "0"}


SORTS = (
    *("attention", "verdict", "case", "score", "spread", "metrics", "outcomes"),
    *("latency", "cost"),
)


@dataclass(frozen=True, slots=True)
class ResultsQuery(ListQuery):
    """Which cases of a run are listed: `text` is a filter, `flaky` lists those whose repetitions differ."""

    state: str = lists.choice(STATES, name="verdict")
    flaky: bool = lists.flag()
    tag: str = lists.text()
    text: str = lists.search(max_length=MAX_LENGTH + 1)
    sort: Sort = lists.sort(SORTS, "attention")
    after: str = lists.after()


def matching_cases(run: Run, query: ResultsQuery) -> LiveCases:
    """Return the cases that match filter and tag, in any state; raises FilterError."""
    cases = run.cases.live(run)
    if query.tag:
        cases = cases.filter(case__in=with_tag(Case.objects.all(), query.tag))
    if not query.text:
        return cases
    checked = read_checked(query.text, run_vocabulary(run))
    states = dict(cases.order_by().values_list("case_id", "live_state"))
    return cases.filter(case__in=matching(checked, RunCases(run, states)))


def matching_keys(candidate: Run, baseline: Run, text: str) -> Set[str]:
    """Return the keys of the cases of a comparison that match a filter, which asks about the candidate.

    Cases that only the baseline has count with its figures. Raises FilterError.
    """
    checked = read_checked(text, run_vocabulary(candidate, baseline))
    found: set[str] = set()
    known: set[str] = set()
    for run, other in ((candidate, baseline), (baseline, candidate)):
        rows = run.cases.live(run).order_by().values_list("case_id", "case__key", "live_state")
        keys = {pk: key for pk, key, _ in rows if key not in known}
        states = {pk: state for pk, key, state in rows if key not in known}
        found |= {keys[pk] for pk in matching(checked, RunCases(run, states, other))}
        known |= set(keys.values())
    return found


def in_state(cases: LiveCases, query: ResultsQuery) -> LiveCases:
    """Return the cases in the state of the filter; only flaky ones if it asks for them."""
    if query.state:
        cases = cases.filter(live_state=query.state)
    return cases.filter(is_flaky=True) if query.flaky else cases


def run_vocabulary(run: Run, baseline: Run | None = None) -> Vocabulary:
    """Return what a filter can ask about the cases of a run, with tags and stages of errors to suggest.

    With `baseline`, it may ask how a case changed, and about what only that run has.
    """
    runs = [run] if baseline is None else [run, baseline]
    paths: dict[str, None] = {}
    for one in runs:
        root = read_plan(one.snapshot).root
        for tree in (root, *(tree for _, _, tree in one.own_trees(root))):
            paths |= {path: None for path, _ in walk(tree) if path != ROOT_PATH}
    lists = Case.objects.filter(results__run=run).order_by().values_list("tags", flat=True)
    stages = run.results.exclude(error_stage="").order_by().values_list("error_stage", flat=True)
    return Vocabulary(
        evaluators=tuple(paths),
        metrics=_part_keys(runs, Source.METRIC),
        dimensions=_part_keys(runs, Source.DIMENSION),
        compares=baseline is not None,
        suggested={
            "tag": sorted({tag for tags in lists.distinct() for tag in tags}),
            "error": (ANY_ERROR, *sorted(stages.distinct())),
        },
    )


def _parts(run: Run, source: Source) -> Iterable[tuple[int, list[dict[str, Any]]]]:
    """Yield the metrics or dimensions of every score of their judges, with the id of the case."""
    kind, detail, _ = PARTS[source]
    rows = EvaluatorScore.objects.filter(result__run=run, kind=kind, state=ScoreState.SCORED)
    return (
        rows.order_by().values_list("result__case", f"details__{detail}").iterator(chunk_size=5000)
    )


class RunCases:
    """The cases of a run by their ids; `states` are their verdicts, or why they have none."""

    def __init__(self, run: Run, states: Mapping[int, str], baseline: Run | None = None) -> None:
        """Take the run and the one that changes are against."""
        self.run, self.states, self.baseline = run, states, baseline
        self._read: dict[Field, Mapping[int, Any]] = {}

    @property
    def keys(self) -> Set[int]:
        """Return all cases."""
        return self.states.keys()

    @cached_property
    def _results(self) -> QuerySet[Result]:
        return Result.objects.filter(run=self.run).order_by()

    def values(self, field: Field) -> Mapping[int, Any]:
        """Return the value of each case that has one: a number, or the set of its names."""
        if field not in self._read:
            self._read[field] = self._values(field)
        return self._read[field]

    def _values(self, field: Field) -> Mapping[int, Any]:
        if field.source == Source.EVALUATOR:
            return self._evaluator(field.key)
        if field.source in PARTS:
            return self._part_means(field)
        if field.source == Source.METADATA:
            return self._metadata(field.key)
        # The rest are figures in columns.
        readers: Mapping[str, Callable[[], Mapping[int, Any]]] = {
            "state": self._state,
            "is_flaky": self._is_flaky,
            "cost": self._cost,
            "tokens": self._tokens,
            "error_stage": self._error_stage,
            "tool": self._tool,
            "review": self._review,
            "tags": self._tags,
            "key": self._key,
        }
        return readers[field.key]() if field.key in readers else self._column(field.key)

    def before(self, field: Field) -> Mapping[int, Any]:
        """Return the values of the cases of the other run, by the ids of the cases here that have the same key."""
        if self.baseline is None:
            return {}
        columns = ("case_id", "case__key")
        own = {key: pk for pk, key in self.run.cases.order_by().values_list(*columns)}
        rows = self.baseline.cases.live(self.baseline).order_by()
        other = {pk: (key, state) for pk, key, state in rows.values_list(*columns, "live_state")}
        states = {pk: state for pk, (_, state) in other.items()}
        values = RunCases(self.baseline, states).values(field)
        return {
            own[key]: values[pk] for pk, (key, _) in other.items() if key in own and pk in values
        }

    def _state(self) -> Mapping[int, Set[str]]:
        return {pk: frozenset([state]) for pk, state in self.states.items()}

    def _column(self, name: str) -> Mapping[int, float]:
        rows = self.run.cases.order_by().exclude(**{name: None})
        return {pk: float(value) for pk, value in rows.values_list("case_id", name)}

    def _is_flaky(self) -> Mapping[int, Set[str]]:
        rows = self.run.cases.order_by().values_list("case_id", "is_flaky")
        return {pk: frozenset(["yes" if is_flaky else "no"]) for pk, is_flaky in rows}

    def _cost(self) -> Mapping[int, float]:
        rows = self.run.cases.order_by().values_list(
            "case_id", "run_cost_usd", "evaluation_cost_usd"
        )
        sums = {pk: sum_known(costs) for pk, *costs in rows}
        return {pk: float(cost) for pk, cost in sums.items() if cost is not None}

    def _tokens(self) -> Mapping[int, float]:
        known = self._results.exclude(input_tokens=None, output_tokens=None)
        both = Coalesce(F("input_tokens"), 0) + Coalesce(F("output_tokens"), 0)
        return dict(known.values_list("case_id").annotate(total=Sum(both)))

    def _error_stage(self) -> Mapping[int, Set[str]]:
        rows = self._results.exclude(error_stage="").values_list("case_id", "error_stage")
        return _sets((pk, name) for pk, stage in rows for name in (stage, ANY_ERROR))

    def _tags(self) -> Mapping[int, Set[str]]:
        rows = Case.objects.filter(pk__in=self._case_ids).values_list("pk", "tags")
        return {pk: frozenset(tags) for pk, tags in rows if tags}

    def _key(self) -> Mapping[int, Set[str]]:
        rows = Case.objects.filter(pk__in=self._case_ids).values_list("pk", "key")
        return {pk: frozenset([key]) for pk, key in rows}

    def _metadata(self, key: str) -> Mapping[int, Set[str]]:
        rows = Case.objects.filter(pk__in=self._case_ids).values_list("pk", "metadata")
        found = ((pk, _inside(metadata, key)) for pk, metadata in rows)
        return {pk: frozenset(_texts(value)) for pk, value in found if value is not None}

    def _review(self) -> Mapping[int, Set[str]]:
        items = ReviewItem.objects.waiting().filter(run=self.run)
        rows = [(pk, "waiting") for pk in items.order_by().values_list("result__case", flat=True)]
        decided = Review.objects.standing().filter(result__run=self.run).order_by()
        for pk, verdict, machine in decided.values_list(
            "result__case", "verdict", "machine_verdict"
        ):
            rows += [(pk, "decided"), *([(pk, "changed")] if verdict != machine else [])]
        found = _sets(rows)
        return {pk: found.get(pk, frozenset(["none"])) for pk in self.states}

    def _evaluator(self, path: str) -> Mapping[int, float]:
        scored = EvaluatorScore.objects.filter(path=path, state=ScoreState.SCORED)
        rows = scored.filter(result__run=self.run).order_by().values_list("result__case")
        root = read_plan(self.run.snapshot).root
        negated = path in negated_paths(root)
        own = {pk: path in negated_paths(tree) for pk, _, tree in self.run.own_trees(root)}
        found = {}
        for pk, average in rows.annotate(average=Avg("score")):
            turns = own.get(pk, negated)
            found[pk] = rounded(1.0 - average if turns else average)
        return found

    def _part_means(self, field: Field) -> Mapping[int, float]:
        scores: dict[int, list[float]] = defaultdict(list)
        number = PARTS[field.source][2]
        for pk, parts in _parts(self.run, field.source):
            for part in parts or ():
                if part["key"] == field.key and part.get(number) is not None:
                    scores[pk].append(part[number])
        return {pk: rounded(fsum(values) / len(values)) for pk, values in scores.items()}

    @property
    def _case_ids(self) -> QuerySet[Any, Any]:
        return self.run.cases.order_by().values("case_id")

    def containing(self, text: str, field: Field | None) -> Set[int]:
        """Return the cases with a text in a field; None stands for all texts of a case."""
        if field is None:
            named = self._of_cases(Q(key__icontains=text) | Q(title__icontains=text))
            return named | self._input(text) | self._output(text) | self._reasoning(text)
        if field.key in MARKS:
            return self._outcomes(MARKS[field.key], text)
        if field.key == "title":
            return self._of_cases(Q(title__icontains=text))
        readers = {"input": self._input, "output": self._output, "reasoning": self._reasoning}
        return readers[field.key](text)

    def _of_cases(self, where: Q) -> Set[int]:
        cases = Case.objects.filter(where, pk__in=self._case_ids)
        return set(cases.values_list("pk", flat=True))

    def _input(self, text: str) -> Set[int]:
        # One database stores letters of other alphabets unchanged, the other escapes them.
        plain, escaped = (json.dumps(text, ensure_ascii=ascii)[1:-1] for ascii in (False, True))
        cases = Case.objects.filter(pk__in=self._case_ids).alias(
            messages=Cast("input", TextField())
        )
        where = Q(messages__icontains=plain) | Q(messages__icontains=escaped)
        return set(cases.filter(where).values_list("pk", flat=True))

    def _output(self, text: str) -> Set[int]:
        rows = self._results.filter(output__text__icontains=text)
        return set(rows.values_list("case_id", flat=True))

    def _reasoning(self, text: str) -> Set[int]:
        scores = EvaluatorScore.objects.filter(result__run=self.run, reasoning__icontains=text)
        return set(scores.order_by().values_list("result__case", flat=True))

    def _tool(self) -> Mapping[int, Set[str]]:
        rows = self._results.exclude(output__trace=None).values_list("case_id", "output__trace")
        return _sets(
            (pk, step["name"])
            for pk, trace in rows.iterator(chunk_size=500)
            for step in trace or ()
            if step.get("type") == "tool"
        )

    def _outcomes(self, mark: str, text: str) -> Set[int]:
        """Return the cases with an expected outcome that has the text and, in any repetition, the mark."""
        rows = self._results.filter(outcome_marks__contains=mark).values_list(
            "case_id", "outcome_marks"
        )
        marks = [*rows]
        outcomes = dict(
            Case.objects.filter(pk__in={pk for pk, _ in marks}).values_list(
                "pk", "expected_outcomes"
            )
        )
        wanted = text.casefold()
        return {
            pk
            for pk, given in marks
            for outcome, one in zip(outcomes[pk], given, strict=False)
            if one == mark and wanted in str(outcome).casefold()
        }


def _part_keys(runs: Sequence[Run], source: Source) -> tuple[str, ...]:
    """Return the metrics or dimensions of runs: those of the summary, or without one, those scored so far."""
    keys: dict[str, None] = {}
    for run in runs:
        if run.summary and PARTS[source][1] in run.summary:
            parts = run.summary[PARTS[source][1]]
        else:
            parts = [part for _, scored in _parts(run, source) for part in scored or ()]
        keys |= dict.fromkeys(part["key"] for part in parts)
    return tuple(keys)


def _sets(rows: Iterable[tuple[int, str]]) -> Mapping[int, Set[str]]:
    found: dict[int, set[str]] = defaultdict(set)
    for pk, name in rows:
        found[pk].add(name)
    return found


def _inside(value: Any, key: str) -> Any:
    """Return what metadata has under a key, or under keys joined by dots; None for nothing."""
    if not isinstance(value, dict):
        return None
    if key in value:
        return value[key]
    first, _, rest = key.partition(".")
    return _inside(value.get(first), rest) if rest else None


def _texts(value: Any) -> Iterable[str]:
    values = value if isinstance(value, list) else [value]
    return (one if isinstance(one, str) else json.dumps(one) for one in values)
