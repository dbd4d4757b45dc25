"""Drift of a judge: the same outputs, judged again by the same rules from time to time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from django.db.models import Exists, OuterRef
from django.urls import reverse

from evaluators.kinds import all_kinds
from evaluators.scoring.intervals import bootstrap_interval, wilson_interval
from evaluators.scoring.tree import EvaluatorSpec, walk
from evaluators.templatetags.figures import counted
from runs.charts.drawing import Picture, PictureColumn
from runs.charts.trends import PartMean, PartTrend, part_dots
from runs.engine.plan import asked_judges, case_tree, content_hash, read_plan
from runs.models.database import among
from runs.models.judgings import (
    OutputPlace,
    first_and_newest,
    judged_sources,
    people_verdicts,
    same_outputs,
)
from runs.models.results import JUDGE_PURPOSES, EvaluatorScore, ModelCall, Result, ScoreState
from runs.models.runs import ACTIVE_RUN_STATUSES, Run
from runs.models.suites import Suite
from runs.results.judge_figures import change_warnings, run_versions
from runs.running.judging_again import KEPT

# Where cases have this tag, only they are the anchor set; otherwise every case is.
ANCHOR_TAG = "anchor"
NAME, TITLE = "drift", "Drift of the judge"
RULES = ("evaluators", "policy", "judge", "models", "prompts", "rules", "files")
PERCENT = 100
WHOLE = ""
SCORES, CHANGES, AGREEMENT = "Mean score", "Verdicts that changed", "Agreement with people"
# More evaluators are in the table alone.
MAX_DRAWN = 8


@dataclass(frozen=True, slots=True)
class Anchor:
    """Outputs of one run that were judged by the same rules several times, the first judging first."""

    source: Run
    judgings: Sequence[Run]


def find_anchor(suite: Suite) -> Anchor | None:
    """Return the outputs that were judged most often by the same rules, None where none were judged twice.

    A run that took over every score of a judge asked it nothing, so it is no judging.
    """
    families = judged_sources(suite)
    ids = {run.pk for family in families.values() for run in family}
    calls = ModelCall.objects.filter(run=OuterRef("pk"), purpose__in=JUDGE_PURPOSES)
    asked = Run.objects.filter(Exists(calls), pk__in=ids).exclude(status__in=ACTIVE_RUN_STATUSES)
    by_id = {run.pk: run for run in asked.select_related("suite").defer("leaf_scores")}
    anchors: dict[tuple[int, str], list[Run]] = defaultdict(list)
    for number, family in families.items():
        for run in (by_id[run.pk] for run in family if run.pk in by_id):
            rules = content_hash([run.snapshot.get(part) for part in RULES])
            anchors[number, rules].append(run)
    several = {key: runs for key, runs in anchors.items() if len(runs) > 1}
    if not several:
        return None
    key = max(several, key=lambda key: (len(several[key]), several[key][-1].number))
    return Anchor(families[key[0]][0], first_and_newest(several[key]))


@dataclass(frozen=True, slots=True)
class Judged:
    """What one judging gave an output: the verdict, for an evaluator by the bands of the run, and the score."""

    verdict: str
    score: float | None


@dataclass(frozen=True, slots=True)
class DriftFigure:
    """A mean score or a share of `of` results, 0 to 1, in one judging, with its 95% interval."""

    run: Run
    value: float
    of: int
    interval: tuple[float, float] | None

    @property
    def judge(self) -> str:
        """Return the judge with the versions of its models that answered."""
        versions = [version for known in run_versions(self.run).values() for version in known]
        return ", ".join([self.run.judge_name, *versions])


@dataclass(frozen=True, slots=True)
class DriftSubject:
    """How an evaluator, or with "" as path whole results, came out in each judging; `figures` are by their names."""

    path: str
    figures: Mapping[str, Sequence[DriftFigure]]

    @property
    def name(self) -> str:
        """Return its name for pages."""
        return self.path.rpartition("/")[2] or "Whole result"


@dataclass(frozen=True, slots=True)
class Drift:
    """The judgings of the anchor set: of `outputs` outputs, only those of tagged cases with `is_tagged`.

    `subjects` are whole results, then the evaluators that ask a judge, in tree order. `changes` say which models
    changed behind the name of a judge.
    """

    anchor: Anchor
    outputs: int
    is_tagged: bool
    subjects: Sequence[DriftSubject]
    changes: Sequence[str]


def read_drift(suite: Suite) -> Drift | None:
    """Return how the judge of the anchor set drifted; None where no outputs were judged twice."""
    anchor = find_anchor(suite)
    if anchor is None:
        return None
    # Also where the source itself was judged by other rules, people decided on its results.
    rows = list(same_outputs(anchor.source, [anchor.source, *anchor.judgings]))
    is_tagged = any(ANCHOR_TAG in row.case.tags for row in rows)
    if is_tagged:
        rows = [row for row in rows if ANCHOR_TAG in row.case.tags]
    people = people_verdicts(rows, anchor.source)
    by_path: dict[str, dict[int, dict[OutputPlace, Judged]]] = {WHOLE: defaultdict(dict)}
    for row in rows:
        if row.verdict:
            judged = Judged(row.verdict, row.score)
            by_path[WHOLE][row.run_id][row.case.key, row.repetition] = judged
    by_path |= _evaluators(anchor, rows)
    first, *others = anchor.judgings
    return Drift(
        anchor=anchor,
        outputs=len(by_path[WHOLE][first.pk]),
        is_tagged=is_tagged,
        subjects=[
            DriftSubject(path, _figures(anchor, by_run, people)) for path, by_run in by_path.items()
        ],
        changes=[
            warning
            for before, after in zip([first, *others], others, strict=False)
            for warning in change_warnings(
                run_versions(before),
                run_versions(after),
                f"between #{before.number} and #{after.number}",
            )
        ],
    )


def _evaluators(
    anchor: Anchor, rows: Sequence[Result]
) -> dict[str, dict[int, dict[OutputPlace, Judged]]]:
    """Return what each evaluator that asks a judge gave, by path and run, without scores that were taken over."""
    # All judgings have these rules.
    plan, kinds = read_plan(anchor.judgings[0].snapshot), all_kinds()
    trees: dict[int, Mapping[str, EvaluatorSpec]] = {}
    results: dict[int, Result] = {}
    for row in rows:
        results[row.pk] = row
        own = row.case_id if row.case.evaluators else 0
        if own not in trees:
            case = row.case
            root = case_tree(plan.root, case.evaluators, append=case.evaluators_append)
            trees[own] = {path: node for path, node in walk(root) if asked_judges(node, kinds)}
    judgings = {run.pk for run in anchor.judgings}
    ids = [pk for pk, row in results.items() if row.run_id in judgings]
    scores = EvaluatorScore.objects.filter(result__in=among(ids), state=ScoreState.SCORED)
    scores = scores.exclude(details__has_key=KEPT).order_by("position", "path")
    found: dict[str, dict[int, dict[OutputPlace, Judged]]] = {}
    for pk, path, score in scores.values_list("result_id", "path", "score"):
        row = results[pk]
        node = trees[row.case_id if row.case.evaluators else 0].get(path)
        if node is not None and score is not None:
            counted_score = node.counted_score(score)
            judged = Judged(plan.policy.verdict_for(counted_score).value, counted_score)
            by_run = found.setdefault(path, defaultdict(dict))
            by_run[row.run_id][row.case.key, row.repetition] = judged
    return found


def _figures(
    anchor: Anchor,
    by_run: Mapping[int, Mapping[OutputPlace, Judged]],
    people: Mapping[OutputPlace, str],
) -> Mapping[str, Sequence[DriftFigure]]:
    """Return the figures of each judging by their names, without those that no result has.

    Mean scores have a bootstrap interval over cases, shares one of Wilson. Verdicts change against the first judging.
    """
    figures: dict[str, list[DriftFigure]] = {SCORES: [], CHANGES: [], AGREEMENT: []}
    first = by_run.get(anchor.judgings[0].pk, {})
    for run in anchor.judgings:
        judged = by_run.get(run.pk, {})
        by_case: dict[str, tuple[float, int]] = {}
        for (key, _), given in judged.items():
            if given.score is not None:
                total, count = by_case.get(key, (0.0, 0))
                by_case[key] = total + given.score, count + 1
        if scored := sum(count for _, count in by_case.values()):
            mean = sum(part for part, _ in by_case.values()) / scored
            interval = bootstrap_interval(list(by_case.values()), seed=run.pk)
            figures[SCORES].append(DriftFigure(run, mean, scored, interval))
        # The first judging has nothing to differ from.
        others = first if run is not anchor.judgings[0] else {}
        shared = [place for place in judged if place in others]
        changed = sum(judged[place].verdict != first[place].verdict for place in shared)
        decided = [place for place in judged if place in people]
        alike = sum(judged[place].verdict == people[place] for place in decided)
        for name, count, total_count in (
            (CHANGES, changed, len(shared)),
            (AGREEMENT, alike, len(decided)),
        ):
            if total_count:
                interval = wilson_interval(count, total_count)
                share = count / total_count
                figures[name].append(DriftFigure(run, share, total_count, interval))
    return figures


def drift_picture(suite: Suite) -> Picture:
    """Return mean score, verdicts that changed and agreement with people of every judging of the anchor set."""
    drift = read_drift(suite)
    if drift is None:
        return _no_picture(NAME, TITLE)
    whole = drift.subjects[0]
    trends = [_trend(name, found) for name, found in whole.figures.items() if found]
    outputs = counted(drift.outputs, "output")
    picture = _dots(drift, trends, "Figure")
    return replace(
        picture,
        name=NAME,
        title=TITLE,
        note=". ".join([picture.note, *drift.changes]).removesuffix("."),
        label=f"Drift of the judge over {outputs}: mean score, verdicts that changed, agreement with people, in percent",
    )


def evaluator_picture(suite: Suite, *, name: str, title: str, figure: str) -> Picture:
    """Return one figure of every evaluator that asks a judge in every judging of the anchor set.

    Of many evaluators those are drawn whose figure changed most since the first judging.
    """
    drift = read_drift(suite)
    if drift is None:
        return _no_picture(name, title)
    subjects = [subject for subject in drift.subjects[1:] if subject.figures[figure]]
    if not subjects:
        lacking = (
            "No result of them was reviewed" if figure == AGREEMENT else "No evaluator asks a judge"
        )
        return Picture(name=name, title=title, empty=f"{lacking}.")
    by_move = sorted(subjects, key=lambda subject: -_move(subject.figures[figure]))[:MAX_DRAWN]
    drawn = [subject for subject in subjects if subject in by_move]
    trends = {subject.path: _trend(subject.name, subject.figures[figure]) for subject in subjects}
    picture = _dots(drift, [trends[subject.path] for subject in drawn], "Evaluator")
    every = _dots(drift, list(trends.values()), "Evaluator")
    some = f"The {len(drawn)} of {len(subjects)} that changed most. "
    return replace(
        picture,
        name=name,
        title=title,
        note=f"{some if len(drawn) < len(subjects) else ''}{picture.note}",
        label=f"{title}: {figure.lower()} in percent, over {counted(drift.outputs, 'output')}",
        rows=every.rows,
    )


def _move(figures: Sequence[DriftFigure]) -> float:
    return abs(figures[-1].value - figures[0].value) if len(figures) > 1 else figures[0].value


def _no_picture(name: str, title: str) -> Picture:
    return Picture(
        name=name,
        title=title,
        empty="No outputs were judged twice by the same rules. Judge a run again with “Ask judges again” from "
        f"time to time. Only cases tagged “{ANCHOR_TAG}” count, if there are any.",
    )


def _dots(drift: Drift, trends: Sequence[PartTrend], noun: str) -> Picture:
    """Return a row for each trend with a dot for each judging."""
    anchor = drift.anchor
    picture = part_dots(trends, runs=[run.number for run in anchor.judgings])
    outputs = counted(drift.outputs, "output")
    times = counted(len(anchor.judgings), "time")
    return replace(
        picture,
        note=f"{outputs} of #{anchor.source.number}, judged {times}, in percent",
        caption="Judgings of the same outputs by the same rules, the newest first; shares in percent",
        columns=[
            PictureColumn(noun, noun.lower(), is_number=False),
            *picture.columns[1:2],
            PictureColumn("Judge and version", "judge", is_number=False),
            PictureColumn("Percent", "percent"),
            PictureColumn("95% CI", "interval"),
            PictureColumn("Results", "results"),
        ],
    )


def _trend(name: str, figures: Sequence[DriftFigure]) -> PartTrend:
    means = [
        PartMean(
            figure.run.number,
            reverse("runs:run", args=[figure.run.suite.slug, figure.run.number]),
            figure.judge,
            figure.value * PERCENT,
            figure.of,
            (figure.interval[0] * PERCENT, figure.interval[1] * PERCENT)
            if figure.interval
            else None,
        )
        for figure in figures
    ]
    return PartTrend(name, PERCENT, means)


# By name, of the charts of a suite.
EVALUATOR_PICTURES = {
    name: partial(evaluator_picture, name=name, title=f"{figure} by evaluator", figure=figure)
    for name, figure in (
        ("drift-scores", SCORES),
        ("drift-changes", CHANGES),
        ("drift-agreement", AGREEMENT),
    )
}
