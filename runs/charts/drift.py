"""Drift of a judge: the same outputs, judged again by the same rules from time to time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from django.db.models import Exists, OuterRef
from django.urls import reverse

from evaluators.scoring.intervals import bootstrap_interval, wilson_interval
from evaluators.templatetags.figures import counted
from runs.charts.drawing import Picture, PictureColumn
from runs.charts.trends import PartMean, PartTrend, part_dots
from runs.engine.plan import content_hash
from runs.models.judgings import (
    OutputPlace,
    judged_sources,
    people_verdicts,
    same_outputs,
)
from runs.models.results import JUDGE_PURPOSES, ModelCall, Result
from runs.models.runs import ACTIVE_RUN_STATUSES, Run
from runs.models.suites import Suite
from runs.results.judge_figures import change_warnings, run_versions

# Where cases have this tag, only they are the anchor set; otherwise every case is.
ANCHOR_TAG = "anchor"
NAME, TITLE = "drift", "Drift of the judge"
# The first judging, which the others are compared with, and the newest ones.
MAX_JUDGINGS = 6
RULES = ("evaluators", "policy", "judge", "models", "prompts", "files")
PERCENT = 100


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
    first, *others = several[key]
    return Anchor(families[key[0]][0], [first, *others[-(MAX_JUDGINGS - 1) :]])


def drift_picture(suite: Suite) -> Picture:
    """Return mean score, verdicts that changed and agreement with people of every judging of the anchor set."""
    anchor = find_anchor(suite)
    if anchor is None:
        return Picture(
            name=NAME,
            title=TITLE,
            empty="No outputs were judged twice by the same rules. Judge a run again with “Ask judges again” from "
            f"time to time. Only cases tagged “{ANCHOR_TAG}” count, if there are any.",
        )
    # Also where the source itself was judged by other rules, people decided on its results.
    rows = list(same_outputs(anchor.source, [anchor.source, *anchor.judgings]))
    if any(ANCHOR_TAG in row.case.tags for row in rows):
        rows = [row for row in rows if ANCHOR_TAG in row.case.tags]
    people = people_verdicts(rows, anchor.source)
    by_run: dict[int, dict[OutputPlace, Result]] = defaultdict(dict)
    for row in rows:
        if row.verdict:
            by_run[row.run_id][row.case.key, row.repetition] = row
    trends = list(_trends(anchor, by_run, people))
    picture = part_dots(trends, runs=[run.number for run in anchor.judgings])
    first, *others = anchor.judgings
    changes = [
        warning
        for before, after in zip([first, *others], others, strict=False)
        for warning in change_warnings(
            run_versions(before),
            run_versions(after),
            f"between #{before.number} and #{after.number}",
        )
    ]
    outputs = counted(len(by_run[first.pk]), "output")
    note = f"{outputs} of #{anchor.source.number}, judged {counted(len(anchor.judgings), 'time')}, in percent"
    return replace(
        picture,
        name=NAME,
        title=TITLE,
        note=". ".join([note, *changes]).removesuffix("."),
        label=f"Drift of the judge over {outputs}: mean score, verdicts that changed, agreement with people, in percent",
        caption="Judgings of the same outputs by the same rules, the newest first; shares in percent",
        columns=[
            PictureColumn("Figure", "figure", is_number=False),
            *picture.columns[1:2],
            PictureColumn("Judge and version", "judge", is_number=False),
            PictureColumn("Percent", "percent"),
            PictureColumn("95% CI", "interval"),
            PictureColumn("Results", "results"),
        ],
    )


def _trends(
    anchor: Anchor,
    by_run: Mapping[int, Mapping[OutputPlace, Result]],
    people: Mapping[OutputPlace, str],
) -> Iterator[PartTrend]:
    first = by_run[anchor.judgings[0].pk]
    means: dict[str, list[PartMean]] = {
        "Mean score": [],
        "Verdicts that changed": [],
        "Agreement with people": [],
    }
    for run in anchor.judgings:
        judged = by_run[run.pk]
        scored = [row for row in judged.values() if row.score is not None]
        by_case: dict[str, tuple[float, int]] = {}
        for row in scored:
            total, count = by_case.get(row.case.key, (0.0, 0))
            by_case[row.case.key] = total + (row.score or 0.0), count + 1
        if scored:
            total = sum(part for part, _ in by_case.values())
            interval = bootstrap_interval(list(by_case.values()), seed=run.pk)
            means["Mean score"].append(_mean(run, total / len(scored), len(scored), interval))
        # The first judging has nothing to differ from.
        others = first if run is not anchor.judgings[0] else {}
        shared = [place for place in judged if place in others]
        changed = sum(judged[place].verdict != first[place].verdict for place in shared)
        decided = [place for place in judged if place in people]
        alike = sum(judged[place].verdict == people[place] for place in decided)
        for name, count, total in (
            ("Verdicts that changed", changed, len(shared)),
            ("Agreement with people", alike, len(decided)),
        ):
            if total:
                means[name].append(_mean(run, count / total, total, wilson_interval(count, total)))
    for name, found in means.items():
        if found:
            yield PartTrend(name, PERCENT, found)


def _mean(run: Run, share: float, count: int, interval: tuple[float, float] | None) -> PartMean:
    versions = [version for known in run_versions(run).values() for version in known]
    return PartMean(
        run.number,
        reverse("runs:run", args=[run.suite.slug, run.number]),
        ", ".join([run.judge_name, *versions]),
        share * PERCENT,
        count,
        (interval[0] * PERCENT, interval[1] * PERCENT) if interval else None,
    )
