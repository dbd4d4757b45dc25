"""Several judges on one suite: the runs that judged the same outputs, what each gave them, and what people decided."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from django.db.models import Count, Q, Sum

from runs import lists
from runs.lists import ListQuery
from runs.models.judgings import (
    OutputPlace,
    first_and_newest,
    judged_sources,
    people_verdicts,
    same_outputs,
)
from runs.models.results import ANSWERED, CallPurpose, EvaluatorScore, ModelCall
from runs.models.runs import Run
from runs.models.suites import Suite
from runs.reviews.judge_agreement import MAX_PATH_LENGTH, evaluator_verdicts, readable_plans
from runs.reviews.judge_choice import JudgedOutput, OutputOpinion
from runs.running.judging_again import KEPT


@dataclass(frozen=True, slots=True)
class JudgesQuery(ListQuery):
    """The run whose outputs were judged several times, by its number, and an evaluator, "" for the verdict."""

    run: int = lists.integer(0)
    evaluator: str = lists.setting(max_length=MAX_PATH_LENGTH)


@dataclass(frozen=True, slots=True)
class JudgingCost:
    """The calls of one judging: their number, the results they are of, and their cost and time in all.

    `usd` is None where the price of a call is not known.
    """

    calls: int = 0
    results: int = 0
    usd: Decimal | None = None
    latency_ms: int = 0

    @property
    def usd_per_result(self) -> Decimal | None:
        """Return the mean cost of a result."""
        return self.usd / self.results if self.usd is not None and self.results else None

    @property
    def ms_per_result(self) -> float | None:
        """Return the mean time of the calls of a result, one after the other."""
        return self.latency_ms / self.results if self.results else None


@dataclass(frozen=True, slots=True)
class Judging:
    """A run that judged the outputs: the first one, which asked the target, or one that judged them again."""

    number: int
    version: int
    judge: str
    is_first: bool


@dataclass(frozen=True, slots=True)
class JudgedSubject:
    """The verdict, or an evaluator that asks a model, as several judgings gave it; `path` is "" for the verdict.

    `models` and `costs` are by number of the run; a run that took over every score has neither. `kept` are the numbers
    of the runs that took over scores.
    """

    path: str
    outputs: Sequence[JudgedOutput]
    models: Mapping[int, str]
    costs: Mapping[int, JudgingCost]
    kept: Collection[int]

    @property
    def keys(self) -> list[int]:
        """Return the numbers of the runs that judged it, in their order."""
        return sorted({key for output in self.outputs for key in output.opinions})


@dataclass(frozen=True, slots=True)
class JudgedOutputs:
    """The outputs of one run and its judgings, the first and the newest ones, at most six.

    `left_out` older ones are not among them; the record of `unread` others cannot be read. `sources` are the numbers
    of all runs whose outputs were judged again.
    """

    source: Run
    sources: Sequence[int]
    judgings: Sequence[Judging]
    left_out: int
    subjects: Sequence[JudgedSubject]
    unread: int

    def subject(self, path: str) -> JudgedSubject:
        """Return the evaluator of this path, the verdict where there is none."""
        named = (entry for entry in self.subjects if entry.path == path)
        return next(named, self.subjects[0])


def judged_outputs(suite: Suite, number: int) -> JudgedOutputs | None:
    """Return the judgings of the outputs of a run, by its number; without it, of those that were judged last.

    None where no outputs of the suite were judged again.
    """
    families = judged_sources(suite)
    if not families:
        return None
    latest = max(families, key=lambda first: families[first][-1].number)
    family = families.get(number) or families[latest]
    source, runs = family[0], first_and_newest(family)
    plans = dict(readable_plans({run.pk for run in runs}))
    readable = [run for run in runs if run.pk in plans]
    every = list(same_outputs(source, runs))
    rows = [row for row in every if row.run_id in plans]
    places = {row.pk: (row.case.key, row.repetition) for row in rows}
    numbers = {run.pk: run.number for run in readable}
    people = people_verdicts(every, source)
    costs, models = _costs(readable)
    verdicts: _Opinions = defaultdict(dict)
    for row in rows:
        if row.verdict:
            opinion = OutputOpinion(row.verdict, row.score)
            verdicts[places[row.pk]][numbers[row.run_id]] = opinion
    subjects = [_subject("", verdicts, people, costs, models)]
    # By run: of large runs there are more results than a query takes parameters.
    scores = EvaluatorScore.objects.filter(
        result__run__in=readable, path__in={path for _, path in models}
    )
    taken_over = scores.filter(details__has_key=KEPT).order_by()
    kept: dict[str, set[int]] = defaultdict(set)
    for run, path in taken_over.values_list("result__run", "path").distinct():
        kept[path].add(numbers[run])
    own = scores.exclude(details__has_key=KEPT)
    for path, judged in evaluator_verdicts(rows, plans, own).items():
        opinions: _Opinions = defaultdict(dict)
        for entry in judged:
            opinion = OutputOpinion(entry.pair.machine, entry.score)
            opinions[places[entry.result]][entry.run] = opinion
        subjects.append(_subject(path, opinions, people, costs, models, kept[path]))
    return JudgedOutputs(
        source=source,
        sources=list(families),
        judgings=[
            Judging(run.number, run.suite_version, run.judge_name, run.pk == source.pk)
            for run in readable
        ],
        left_out=len(family) - len(runs),
        subjects=subjects,
        unread=len(runs) - len(readable),
    )


_Opinions = dict[OutputPlace, dict[int, OutputOpinion]]
_Costs = dict[tuple[int, str], JudgingCost]
_Models = dict[tuple[int, str], str]


def _subject(
    path: str,
    opinions: _Opinions,
    people: Mapping[OutputPlace, str],
    costs: _Costs,
    models: _Models,
    kept: Collection[int] = (),
) -> JudgedSubject:
    return JudgedSubject(
        path,
        [
            JudgedOutput(place[0], given, people.get(place, ""))
            for place, given in sorted(opinions.items())
        ],
        {number: name for (number, of), name in models.items() if of == path},
        {number: cost for (number, of), cost in costs.items() if of == path},
        kept,
    )


def _costs(runs: Sequence[Run]) -> tuple[_Costs, _Models]:
    """Return what the calls of judges cost and which models they asked, by run and path, "" for all paths."""
    calls = ModelCall.objects.filter(run__in=runs, purpose=CallPurpose.EVALUATION).order_by()
    numbers = {run.pk: run.number for run in runs}
    figures = {
        "calls": Count("pk"),
        "results": Count("result", distinct=True),
        "usd": Sum("cost_usd"),
        "latency": Sum("latency_ms"),
        "unpriced": Count("pk", filter=Q(cost_usd=None, status__in=ANSWERED)),
    }
    costs: _Costs = {}
    for columns in (("run_id",), ("run_id", "evaluator_path")):
        for row in calls.values(*columns).annotate(**figures):
            costs[numbers[row["run_id"]], row.get("evaluator_path", "")] = JudgingCost(
                row["calls"],
                row["results"],
                None if row["unpriced"] else row["usd"],
                row["latency"] or 0,
            )
    names: dict[tuple[int, str], set[str]] = defaultdict(set)
    for run, path, model in calls.values_list("run_id", "evaluator_path", "model_name").distinct():
        names[numbers[run], path].add(model)
        names[numbers[run], ""].add(model)
    return costs, {key: ", ".join(sorted(models)) for key, models in names.items()}
