"""Which rows match a filter: a filter in, a condition of the database out.

A condition is about a case over its repetitions: figures are their means, costs and tokens their sums; a text, a tool or
an error counts if any repetition has it. Numbers compare only where there is one: `score != 0.5` leaves out the cases
without a score, which `not score = 0.5` lists. Of names and texts `!=` is the opposite of `=`.
"""

from __future__ import annotations

import json
import math
import operator
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, reduce
from typing import Any, TypeGuard

from django.db.models import Avg, F, FloatField, Func, Q, QuerySet, Sum, TextField
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Coalesce, Round

from evaluators.scoring.aggregate import HYBRID_KIND
from evaluators.scoring.numbers import rounded
from evaluators.scoring.tree import EvaluatorSpec, negated_paths
from evaluators.scoring.types import SCORE_DIGITS
from runs.engine.plan import METRICS_KIND, read_plan
from runs.filters.fields import NOTHING, ChangeTest, Checked, Field, Source, Test, ValueKind
from runs.filters.language import All, Direction, Not, Operator, Some, Words
from runs.lists import with_tag
from runs.models.database import JsonInside, among
from runs.models.results import (
    MAX_MARKS,
    EvaluatorScore,
    ExternalScore,
    Result,
    ResultStatus,
    ScoreState,
)
from runs.models.reviews import Review, ReviewItem
from runs.models.run_cases import FIGURES, RUNNING, WAITING, RunCase
from runs.models.runs import ACTIVE_RUN_STATUSES, Run
from runs.models.search import CaseText, InRows, ResultText
from runs.models.stored import LeafScores, unpack_leaf_scores
from runs.models.suites import Case
from runs.words import contains, words

# Figures are stored and shown with fewer digits; a difference below is no change.
TOLERANCE = 1e-9
ANY_ERROR = "any"
NUMBER = FloatField()
# The only figure of every case that its row does not have.
TOKENS = "tokens"
# Of more runs, scores are read as rows.
MAX_PACKED_RUNS = 6
# Cases that are looked at one by one, and runs that are written one by one in a statement.
MAX_FEW, MAX_NAMED = 1000, 50
LOOKUPS = {
    Operator.LESS: "lt",
    Operator.AT_MOST: "lte",
    Operator.MORE: "gt",
    Operator.AT_LEAST: "gte",
}
# By the source of a field: the kind of evaluator, the detail that holds its parts, and the number that counts.
PARTS = {
    Source.METRIC: (METRICS_KIND, "metrics", "score"),
    Source.DIMENSION: (HYBRID_KIND, "dimensions", "final"),
}
# How a negated evaluator is written in the tree of a run, by either database.
NEGATED = ('"negate": true', '"negate":true')
VERDICTS = {"fail": 0.0, "borderline": 1.0, "pass": 2.0}
# The marks of outcomes in `Result.outcome_marks`.
MARKS = {"met": "1", "missed": "0"}
# By the key of a field: the column of the index with its words.
CASE_TEXTS = {"input": "input"}
RESULT_TEXTS = {"output": "output", "reasoning": "reasoning"}


def condition(checked: Checked, rows: CaseRows) -> Q:
    """Return the condition on rows under which they match a filter."""
    match checked:
        case All(conditions):
            return reduce(operator.and_, (condition(part, rows) for part in conditions), Q())
        case Some(conditions):
            return _any(condition(part, rows) for part in conditions)
        case Not(opposite):
            return ~condition(opposite, rows)
        case Words(text):
            return rows.has_words(words(text))
        case Test(field) if field.is_number:
            return rows.has_number(checked)
        case Test():
            found = _any(rows.has_value(checked.field, value) for value in checked.values)
            return ~found if checked.operator == Operator.UNEQUAL else found
        case ChangeTest():
            return rows.has_changed(checked)


def _asks_for_words(part: Checked) -> TypeGuard[Test]:
    """Tell whether a condition asks for words in a text of results."""
    return (
        isinstance(part, Test)
        and part.operator == Operator.EQUAL
        and part.field.key in RESULT_TEXTS
    )


def _any(conditions: Iterable[Q]) -> Q:
    return reduce(operator.or_, conditions)


class CaseRows:
    """Some revisions of cases. The verdict of a case is that of `run`, `none` where it was not in it."""

    # The column with the ids of cases.
    column = "pk"

    def __init__(
        self, cases: QuerySet[Case], suites: Sequence[int], run: Run | None = None
    ) -> None:
        """Take the cases, and the ids of their suites."""
        self.cases, self.suites, self.run = cases.order_by(), suites, run

    def has_words(self, wanted: Sequence[str]) -> Q:
        """Return the condition that a text of the case has words."""
        return self._in(self._words("name", wanted).union(self._words("input", wanted)))

    def has_value(self, field: Field, value: str | None) -> Q:
        """Return the condition that a case has a name, a choice, or words in a text; for None, no name."""
        if field.source == Source.METADATA:
            return self._in(among(self._with_metadata(field.key, value)))
        if field.kind == ValueKind.TEXT:
            return self._has_text(field, words(value or ""))
        if field.key == "tags":
            return self._in(
                self.cases.filter(tags=[]) if value is None else with_tag(self.cases, value)
            )
        if field.key == "key":
            return self._in(self.cases.filter(key=value))
        return self._has_choice(field, value)

    def has_number(self, test: Test) -> Q:
        """Return the condition that a figure compares as it should; a case has none, so none match."""
        return Q(pk__in=[])

    def has_changed(self, test: ChangeTest) -> Q:
        """Return the condition that a figure changed; a case has none, so none match."""
        return Q(pk__in=[])

    def has_verdict(self, verdict: str | None) -> Q:
        """Return the condition that a case got a verdict in the run; `none` for those that were not in it."""
        if self.run is None:
            return ~Q(pk__in=[]) if verdict == NOTHING else Q(pk__in=[])
        ran = self.run.cases.live(self.run).order_by()
        if verdict == NOTHING:
            return ~Q(key__in=ran.values("case__key"))
        return Q(key__in=ran.filter(live_state=verdict).values("case__key"))

    def _has_choice(self, field: Field, value: str | None) -> Q:
        return self.has_verdict(value)

    def _has_text(self, field: Field, wanted: Sequence[str]) -> Q:
        if field.key in CASE_TEXTS:
            return self._in(self._words(CASE_TEXTS[field.key], wanted))
        if field.key == "title":
            # The index has the words of key and title together.
            near = self.cases.filter(pk__in=self._words("name", wanted))
            titles = near.values_list("pk", "title")
            return self._in(among(pk for pk, title in titles if contains(title, wanted)))
        rows = self.cases.exclude(expected_output="", expected_outcomes=[])
        texts = rows.values_list("pk", "expected_output", "expected_outcomes")
        found = (
            pk
            for pk, output, outcomes in texts.iterator(chunk_size=5000)
            if any(contains(str(text), wanted) for text in (output, *outcomes))
        )
        return self._in(among(found))

    def _in(self, cases: Any) -> Q:
        return Q(**{f"{self.column}__in": cases})

    def _words(self, column: str, wanted: Sequence[str]) -> QuerySet[Any, Any]:
        return CaseText.objects.with_words(column, wanted, scopes=self.suites).values("case")

    def _with_metadata(self, key: str, value: str | None) -> Iterable[int]:
        for pk, found in _metadata_texts(self.cases, "metadata", key):
            if not found if value is None else value in found:
                yield pk


class ResultRows(CaseRows):
    """The cases of runs with their results. Changes are against `baseline`, one of them, by the keys of cases."""

    column = "case"

    def __init__(
        self,
        runs: Sequence[Run],
        *,
        baseline: Run | None = None,
        only: Sequence[int] | None = None,
    ) -> None:
        """Take the runs; with `only`, the ids of few cases, values of no others are read."""
        self.runs, self.baseline, self.only = runs, baseline, only
        suites = sorted({run.suite_id for run in runs})
        self.rows = RunCase.objects.filter(self._of("run")).order_by()
        cases = Case.objects.filter(suite__in=suites, pk__in=self.rows.values("case_id"))
        super().__init__(cases, suites)

    def _of(self, name: str) -> Q:
        ids = [run.pk for run in self.runs]
        part: dict[str, Any] = {}
        if self.only is not None:
            part = {f"{name.removesuffix('run')}case__in": self.only}
        if len(ids) == 1:
            return Q(**{name: ids[0]}, **part)
        return Q(**{f"{name}__in": ids if len(ids) <= MAX_NAMED else among(ids)}, **part)

    def few_cases(self, checked: Checked) -> Sequence[int] | None:
        """Return the ids of the cases that alone can match because a word is rare; None where none is."""
        for part in checked.conditions if isinstance(checked, All) else (checked,):
            if isinstance(part, Words):
                wanted = words(part.text)
                found = [self._texts(column, wanted) for column in RESULT_TEXTS.values()]
                found += [self._words(column, wanted) for column in ("name", "input")]
            elif _asks_for_words(part):
                column = RESULT_TEXTS[part.field.key]
                found = [self._texts(column, words(value)) for value in part.values]
            else:
                continue
            first, *others = (rows.values_list("case") for rows in found)
            ids = first.union(*others, all=True)
            few = [pk for (pk,) in ids[: MAX_FEW + 1]]
            if len(few) <= MAX_FEW:
                return sorted(set(few))
        return None

    def has_words(self, wanted: Sequence[str]) -> Q:
        """Return the condition that a text of the case or of a result has words."""
        results = (self._has_result_text(column, wanted) for column in RESULT_TEXTS.values())
        cases = (self._in(self._words(column, wanted)) for column in ("name", "input"))
        return _any((*cases, *results))

    def _has_result_text(self, column: str, wanted: Sequence[str]) -> Q:
        pairs = self._texts(column, wanted).values("run", "case")
        return Q(InRows(("run", "case"), pairs))

    def _texts(self, column: str, wanted: Sequence[str]) -> QuerySet[Any, Any]:
        """Return the texts of results with words."""
        scopes = [run.pk for run in self.runs]
        found = ResultText.objects.with_words(column, wanted, scopes=scopes)
        if self.only is not None:
            found = found.filter(result__in=Result.objects.filter(self._of("run")).order_by())
        return found

    def _has_text(self, field: Field, wanted: Sequence[str]) -> Q:
        if field.key in RESULT_TEXTS:
            return self._has_result_text(RESULT_TEXTS[field.key], wanted)
        if field.key in MARKS:
            return self._has_outcome(MARKS[field.key], wanted)
        return super()._has_text(field, wanted)

    def _has_outcome(self, mark: str, wanted: Sequence[str]) -> Q:
        """Return the condition that an expected outcome has the words and, in any repetition, the mark."""
        by_place: dict[int, list[int]] = defaultdict(list)
        cases = self.cases.exclude(expected_outcomes=[]).values_list("pk", "expected_outcomes")
        for pk, outcomes in cases.iterator(chunk_size=5000):
            for place, outcome in enumerate(outcomes[:MAX_MARKS]):
                if contains(str(outcome), wanted):
                    by_place[place].append(pk)
        marked = [
            Q(case__in=among(ids), outcome_marks__regex=f"^.{{{place}}}{mark}")
            for place, ids in by_place.items()
        ]
        return self._results(Q(pk__in=[]) if not marked else _any(marked))

    def _results(self, found: Q) -> Q:
        """Return the condition that a case has such a result."""
        results = Result.objects.filter(self._of("run"), found).order_by()
        return Q(pk__in=results.values("run_case__pk"))

    def _has_choice(self, field: Field, value: str | None) -> Q:
        if field.source == Source.PAIRWISE:
            pairs = EvaluatorScore.objects.filter(self._of("result__run"), path=field.key)
            won = pairs.filter(details__verdict=value).order_by()
            return Q(pk__in=won.values("result__run_case__pk"))
        match field.key:
            case "state":
                return self._is_in_state(value)
            case "is_flaky":
                return Q(is_flaky=value == "yes")
            case "error_stage" if value is None:
                return ~self._results(~Q(error_stage=""))
            case "error_stage":
                any_stage = ~Q(error_stage="")
                return self._results(any_stage if value == ANY_ERROR else Q(error_stage=value))
            case "tool":
                return self._has_tool(value)
            case _:
                return self._is_reviewed(value)

    def _is_in_state(self, state: str | None) -> Q:
        if state not in (RUNNING, WAITING):
            return Q(state=state)
        held = Q(status=ResultStatus.RUNNING, run__status__in=ACTIVE_RUN_STATUSES)
        is_held = self._results(held)
        return Q(state=WAITING) & (is_held if state == RUNNING else ~is_held)

    def _with_tools(self) -> QuerySet[Any, Any]:
        """Return the texts of results in which a tool was called; only results have an index by run."""
        return ResultText.objects.filter(self._of("result__run")).exclude(tools=[])

    def _has_tool(self, name: str | None) -> Q:
        called = self._with_tools()
        if name is not None:
            called = with_tag(called, name, "tools")
        found = Q(pk__in=called.values("result__run_case__pk"))
        return ~found if name is None else found

    def _is_reviewed(self, state: str | None) -> Q:
        def has(name: str) -> Q:
            return Q(pk__in=self._reviewed(name).values("result__run_case__pk"))

        if state is None or state == NOTHING:
            return ~(has("waiting") | has("decided"))
        return has(state)

    def has_number(self, test: Test) -> Q:
        """Return the condition that a figure compares as it should; without a value, that there is none."""
        if test.field.source == Source.CASE and test.field.key != TOKENS:
            return _is_number(_column(test.field), test)
        parts = self._figures(test.field)
        none = ~_any(_in_rows(rows, key) for rows, key in parts)
        if test.operator == Operator.UNEQUAL:
            return _any(_in_rows(rows.filter(_compare(test)), key) for rows, key in parts)
        found = Q(pk__in=[])
        if any(value is not None for value in test.values):
            found = _any(_in_rows(rows.filter(_compare(test)), key) for rows, key in parts)
        return found | none if None in test.values else found

    def _figures(self, field: Field) -> Sequence[tuple[QuerySet[Any, Any], str]]:
        """Return rows with a `value` that is not null, and their column with the case, or its row in the run."""
        if field.source == Source.EVALUATOR:
            return self._evaluator(field.key)
        if field.source == Source.EXTERNAL:
            return self._external(field)
        if field.source in PARTS:
            return self._part(field)
        if field.key == TOKENS:
            known = Result.objects.filter(self._of("run")).exclude(
                input_tokens=None, output_tokens=None
            )
            both = Coalesce(F("input_tokens"), 0) + Coalesce(F("output_tokens"), 0)
            key = self._case_column()
            return [(known.order_by().values(key).annotate(value=Sum(both)), key)]
        return [(self.rows.annotate(value=_column(field)).exclude(value=None), "pk")]

    def _case_column(self, before: str = "") -> str:
        """Return the column of results that tells their case; in one run its id does, without another join."""
        return f"{before}case" if len(self.runs) == 1 else f"{before}run_case__pk"

    def _evaluator(self, path: str) -> Sequence[tuple[QuerySet[Any, Any], str]]:
        """Return the means of an evaluator: its scores as they are, and where it is negated, turned."""
        scored = EvaluatorScore.objects.filter(
            self._of("result__run"), path=path, state=ScoreState.SCORED
        )
        key = self._case_column("result__")
        return [
            (
                scored.filter(which)
                .order_by()
                .values(key)
                .annotate(value=Round(Cast(mean, FloatField()), SCORE_DIGITS)),
                key,
            )
            for which, mean in self._means(path)
        ]

    def _packed_means(self, path: str) -> Mapping[int, float] | None:
        """Return the means of an evaluator by the rows of cases, from packed scores; None where none can be used."""
        if self._packed is None:
            return None
        found: dict[int, list[float]] = defaultdict(list)
        rows = self._rows_by_result
        for run, packed in self._packed.items():
            is_negated = path in self._negated_in_runs.get(run, ())
            for result, score in zip(packed.results, packed.known(path), strict=False):
                if score is not None and (row := rows.get(result)) is not None:
                    found[row].append(1.0 - score if is_negated else score)
        return {pk: rounded(math.fsum(scores) / len(scores)) for pk, scores in found.items()}

    @cached_property
    def _packed(self) -> Mapping[int, LeafScores] | None:
        """Return the packed scores of ended runs by id, a third of the work of reading rows.

        None while a run has none, for many runs or few cases, and where cases have evaluators of their own.
        """
        is_packed = self.only is None and len(self.runs) <= MAX_PACKED_RUNS
        if not is_packed or any(run.is_active for run in self.runs) or self._own_trees:
            return None
        runs = Run.objects.filter(pk__in=[run.pk for run in self.runs]).order_by()
        found = {
            pk: scores
            for pk, packed in runs.values_list("pk", "leaf_scores")
            if packed and (scores := unpack_leaf_scores(bytes(packed)))
        }
        return found if len(found) == len(self.runs) else None

    @cached_property
    def _rows_by_result(self) -> Mapping[int, int]:
        """Return the row of the case of each result; joined here, in half the time that the database needs for it."""
        rows = self._rows_by_case
        results = Result.objects.filter(self._of("run")).order_by()
        return {pk: rows[run, case] for pk, run, case in results.values_list("pk", "run", "case")}

    @cached_property
    def _rows_by_case(self) -> Mapping[tuple[int, int], int]:
        """Return the row of each case by run and case."""
        return {(run, case): pk for run, case, pk in self.rows.values_list("run", "case", "pk")}

    def _means(self, path: str) -> Sequence[tuple[Q, Any]]:
        """Return conditions on the scores of an evaluator with the mean that counts: where it is negated, turned."""
        plain, turned = Avg("score"), 1.0 - Avg("score")
        runs = [pk for pk, paths in self._negated_in_runs.items() if path in paths]
        alone = [pk for pk, is_appended, _ in self._own_trees if not is_appended]
        own = [pk for pk, _, paths in self._own_trees if path in paths]
        if not (runs or own):
            return [(Q(), plain)]
        if len(runs) == len(self.runs) and not self._own_trees:
            return [(Q(), turned)]
        in_runs = Q(result__run__in=runs) & ~Q(result__case__in=among(alone))
        negated = in_runs | Q(result__case__in=among(own))
        return [(~negated, plain), (negated, turned)]

    @cached_property
    def _negated_in_runs(self) -> Mapping[int, frozenset[str]]:
        """Return the paths of negated evaluators by run."""
        runs = Run.objects.filter(pk__in=among(run.pk for run in self.runs)).order_by()
        tree = KeyTextTransform("evaluators", "snapshot")
        has_any = _any(Q(tree__contains=negated) for negated in NEGATED)
        runs = runs.annotate(tree=tree).filter(has_any)
        rows = runs.values_list("pk", "snapshot")
        return {pk: negated_paths(read_plan(snapshot).root) for pk, snapshot in rows}

    @cached_property
    def _own_trees(self) -> Sequence[tuple[int, bool, frozenset[str]]]:
        """Return the cases with evaluators of their own, whether these are added, and the negated paths."""
        own = self.cases.filter(evaluators__isnull=False)
        rows = own.values_list("pk", "evaluators_append", "evaluators")
        return [
            (pk, is_appended, negated_paths(EvaluatorSpec.model_validate(tree)))
            for pk, is_appended, tree in rows
        ]

    def _part(self, field: Field) -> Sequence[tuple[QuerySet[Any, Any], str]]:
        """Return the means of a metric or dimension."""
        kind, detail, number = PARTS[field.source]
        judged = EvaluatorScore.objects.filter(
            self._of("result__run"), kind=kind, state=ScoreState.SCORED
        )
        scored = judged.alias(part=PartScore(detail, field.key, number)).filter(part__isnull=False)
        mean = Round(Cast(Avg("part"), FloatField()), SCORE_DIGITS)
        key = self._case_column("result__")
        return [(scored.order_by().values(key).annotate(value=mean), key)]

    def _external(self, field: Field) -> Sequence[tuple[QuerySet[Any, Any], str]]:
        """Return the means of a score that another tool gave."""
        source, _, name = field.key.partition("/")
        given = ExternalScore.objects.filter(
            self._of("result__run"), source=source, name=name, score__isnull=False
        )
        mean = Round(Avg("score"), SCORE_DIGITS)
        key = self._case_column("result__")
        return [(given.order_by().values(key).annotate(value=mean), key)]

    def has_changed(self, test: ChangeTest) -> Q:
        """Return the condition that a figure or the verdict of a case changed against the baseline."""
        if self.baseline is None:
            return Q(pk__in=[])
        known = self.values(test.field)
        earlier: dict[int, Any] = {}
        later: list[tuple[int, int]] = []
        for (run, case), pk in self._rows_by_case.items():
            if pk not in known:
                continue
            if run == self.baseline.pk:
                earlier[case] = known[pk]
            else:
                later.append((pk, case))
        others = self._other_revisions(earlier, (case for _, case in later))
        changes = (
            (pk, _change(earlier[before], known[pk]))
            for pk, case in later
            if (before := others.get(case, case)) in earlier
        )
        return Q(pk__in=among(pk for pk, change in changes if _holds(test, change)))

    def _other_revisions(self, ran: Container[int], cases: Iterable[int]) -> dict[int, int]:
        """Return by case that did not run in the baseline the revision of it that did; a query, if there are any."""
        if not (others := {case for case in cases if case not in ran}):
            return {}
        keys = dict(self.cases.values_list("pk", "key"))
        by_key = {key: case for case, key in keys.items() if case in ran}
        return {case: by_key[keys[case]] for case in others if keys[case] in by_key}

    def names(self, field: Field) -> Mapping[int, Sequence[str]]:
        """Return the tags, metadata, tools, stages of errors or states of review of each case of the runs that has any."""
        found: dict[int, Sequence[str]] = {}
        for pk, names in self._names(field):
            if names:
                found[pk] = (*found[pk], *names) if pk in found else names
        return {pk: names if len(names) == 1 else sorted(set(names)) for pk, names in found.items()}

    def _names(self, field: Field) -> Iterable[tuple[int, Sequence[str]]]:
        if field.source == Source.METADATA:
            return _metadata_texts(self.rows, "case__metadata", field.key)
        # As text, for thousands of cases have the same tags or tools: each list is read once.
        read = cache(json.loads)
        if field.key == "tags":
            rows = self.rows.values_list("pk", Cast("case__tags", TextField()))
            return ((pk, read(tags)) for pk, tags in rows)
        if field.key == "tool":
            # Those without tools too: where they are rare, PostgreSQL would look for others in the texts of all runs.
            texts = ResultText.objects.filter(self._of("result__run"))
            rows = texts.values_list("result__run_case__pk", Cast("tools", TextField()))
            return ((pk, read(tools)) for pk, tools in rows)
        if field.key == "error_stage":
            errors = Result.objects.filter(self._of("run")).exclude(error_stage="").order_by()
            return (
                (pk, [stage]) for pk, stage in errors.values_list("run_case__pk", "error_stage")
            )
        return (
            (pk, [state])
            for state in ("waiting", "decided", "changed")
            for pk in self._reviewed(state).values_list("result__run_case__pk", flat=True)
        )

    def _reviewed(self, state: str) -> QuerySet[Any, Any]:
        of_results = self._of("result__run")
        if state == "waiting":
            waiting: QuerySet[Any, Any] = ReviewItem.objects.waiting().filter(of_results).order_by()
            return waiting
        decided: QuerySet[Any, Any] = Review.objects.standing().filter(of_results).order_by()
        return decided.exclude(verdict=F("machine_verdict")) if state == "changed" else decided

    def values(self, field: Field) -> Mapping[int, Any]:
        """Return the figure or the state of each case of the runs that has one."""
        if field.key == "state" and field.source == Source.CASE:
            return dict(self.rows.values_list("pk", "state"))
        if (
            field.source == Source.EVALUATOR
            and (packed := self._packed_means(field.key)) is not None
        ):
            return packed
        parts = self._figures(field)
        found = {pk: value for rows, key in parts for pk, value in rows.values_list(key, "value")}
        if all(key.endswith("pk") for _, key in parts):
            return found
        in_run = self.rows.values_list("case_id", "pk")
        return {pk: found[case] for case, pk in in_run if case in found}


def _in_rows(rows: QuerySet[Any, Any], key: str) -> Q:
    """Return the condition on cases of runs that they are among rows of `ResultRows._figures`."""
    return Q(**{"pk__in" if key.endswith("pk") else "case__in": rows.values(key)})


class PartScore(Func):
    """The score of one part, by its key, in the details of a judge; null where there is none."""

    output_field = FloatField()

    def __init__(self, detail: str, key: str, number: str) -> None:
        """Take the list of parts in the details, the key of one, and the number that counts."""
        super().__init__("details")
        self.detail, self.key, self.number = detail, key, number

    def as_postgresql(
        self, compiler: Any, connection: Any, **context: Any
    ) -> tuple[str, list[str]]:
        """Ask for the first part with the key that has a number."""
        [column], _ = zip(*map(compiler.compile, self.get_source_expressions()), strict=True)
        path = f'$.{self.detail}[*] ? (@.key == $key).{self.number} ? (@.type() == "number")'
        found = f"jsonb_path_query_first({column}, %s::jsonpath, %s::jsonb)::double precision"
        return found, [path, json.dumps({"key": self.key})]

    def as_sqlite(
        self, compiler: Any, connection: Any, **context: Any
    ) -> tuple[str, tuple[str, ...]]:
        """Look through the parts."""
        [column], _ = zip(*map(compiler.compile, self.get_source_expressions()), strict=True)
        part, number = f"json_each({column}, %s)", "json_extract(value, %s)"
        found = f"SELECT {number} FROM {part} WHERE json_extract(value, '$.key') = %s"  # noqa: S608 - a column
        return f"({found} LIMIT 1)", (f"$.{self.number}", f"$.{self.detail}", self.key)


def _column(field: Field) -> Cast:
    """Return the figure that the row of a case has."""
    return Cast(FIGURES.get(field.key, F(field.key)), NUMBER)


def _is_number(figure: Cast, test: Test) -> Q:
    """Return the condition that a figure compares as it should; where there is none, its opposite holds."""

    def lookup(name: str, value: Any) -> Q:
        return Q(NUMBER.get_lookups()[name](figure, value))

    is_none = lookup("isnull", True)
    if test.values == (None,) and test.operator == Operator.EQUAL:
        return is_none
    holds = Q(~is_none, _compare(test, lookup))
    return is_none | holds if None in test.values and test.operator == Operator.EQUAL else holds


def _of_value(name: str, value: Any) -> Q:
    return Q(**{f"value__{name}": value})


def _compare(test: Test, lookup: Callable[[str, Any], Q] = _of_value) -> Q:
    """Return the condition on a figure, by default on `value`, that is not null."""
    wanted = [value for value in test.values if value is not None]
    if test.operator in LOOKUPS:
        return lookup(LOOKUPS[test.operator], wanted[0])
    equal = [
        lookup("gte", figure - TOLERANCE) & lookup("lte", figure + TOLERANCE) for figure in wanted
    ]
    if test.operator == Operator.EQUAL:
        return _any(equal)
    return reduce(operator.and_, (~is_equal for is_equal in equal), Q())


def _holds(test: ChangeTest, change: float) -> bool:
    least = TOLERANCE if test.by is None else test.by - TOLERANCE
    if abs(change) <= TOLERANCE:
        return False
    if test.direction == Direction.CHANGED:
        return abs(change) >= least
    return (change if test.direction == Direction.ROSE else -change) >= least


def _change(before: Any, after: Any) -> float:
    """Return the difference of two numbers, or of two verdicts by their order; 0 where one is no verdict."""
    if not isinstance(before, str):
        return float(after - before)
    if before in VERDICTS and after in VERDICTS:
        return VERDICTS[after] - VERDICTS[before]
    return 0.0


def _metadata_texts(
    rows: QuerySet[Any, Any], column: str, key: str
) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield the ids of rows, each with what its metadata has under a key; values that recur are read once."""
    # The first of keys joined by dots may be a key itself, or have the others in it.
    whole = "." in key
    text: Any = Cast(column, TextField()) if whole else JsonInside(column, key)

    @cache
    def texts(found: str | None) -> Sequence[str]:
        value = None if found is None else json.loads(found)
        return _texts(_inside(value, key) if whole else value)

    for pk, found in rows.values_list("pk", text).iterator(chunk_size=5000):
        yield pk, texts(found)


def _inside(value: Any, key: str) -> Any:
    """Return what metadata has under a key, or under keys joined by dots; None for nothing."""
    if not isinstance(value, dict):
        return None
    if key in value:
        return value[key]
    first, _, rest = key.partition(".")
    return _inside(value.get(first), rest) if rest else None


def _texts(value: Any) -> Sequence[str]:
    """Return the values of metadata as texts, none for no value."""
    if value is None:
        return ()
    values = value if isinstance(value, list) else [value]
    return [entry if isinstance(entry, str) else json.dumps(entry) for entry in values]
