"""Claimed results with everything their execution needs, read in a few queries for many."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evaluators.kinds._base import Output
from evaluators.scoring.types import DomainError, Outcome
from evaluators.scoring.verdict import Rules
from runs.engine import Execution
from runs.execution.claiming import Claim, claim_results, release_held
from runs.execution.loading import (
    Calls,
    RunWork,
    case_facts,
    earlier_calls,
    recorded_outputs,
)
from runs.models import Artifact, ResultOutput
from runs.models import Score as ScoreRow
from runs.models.clock import database_now
from runs.models.stored import kept_outcomes, kept_output


@dataclass(frozen=True, slots=True)
class Job:
    """One execution to carry out; `problem` says why its case cannot be, with the suite's tree as root."""

    claim: Claim
    execution: Execution
    recorded: Mapping[str, Any] | None = None
    earlier: Calls = field(default_factory=dict)
    problem: str = ""


def claim_jobs(
    work: RunWork, *, token: str, most: int, held: Collection[int], is_repeated: bool = False
) -> list[Job]:
    """Claim up to `most` results and read what they need; none when nothing waits.

    `is_repeated` tells that the same was tried before without learning what was claimed: all but
    what is known as `held` is given back first.
    """
    if is_repeated:
        release_held(work.run_id, token, but=held)
    claims = claim_results(
        work.run_id, token=token, most=most, now=database_now(), owner_id=work.owner_id
    )
    recorded = recorded_outputs(work, [claim.case for claim in claims])
    earlier = earlier_calls({claim.result_id: claim.generation for claim in claims})
    outputs, files = _outputs(claims), _files(claims)
    scores = _scores(claims)
    return [
        _job(work, claim, recorded.get(claim.case.key), earlier.get(claim.result_id, {}), kept)
        for claim in claims
        for kept in [_kept(claim, outputs, files, scores)]
    ]


def _job(
    work: RunWork,
    claim: Claim,
    recorded: Mapping[str, Any] | None,
    earlier: Calls,
    kept: tuple[Output | None, Mapping[str, Outcome]],
) -> Job:
    problem = ""
    try:
        root, rules = work.tree(claim.case)
    except (DomainError, KeyError, TypeError) as error:
        root = work.plan.root
        rules = Rules(root, work.plan.policy)
        problem = f"the case's own evaluators cannot be read: {error}"
    execution = Execution(
        case=case_facts(claim.case),
        root=root,
        rules=rules,
        files=work.files,
        output=kept[0],
        kept=kept[1],
        judges_outcomes=bool(work.plan.judge),
    )
    return Job(claim, execution, recorded, earlier, problem)


def _kept(
    claim: Claim,
    outputs: Mapping[int, ResultOutput],
    files: Mapping[int, Mapping[str, bytes]],
    scores: Mapping[int, Sequence[ScoreRow]],
) -> tuple[Output | None, Mapping[str, Outcome]]:
    row = outputs.get(claim.result_id)
    if row is None:
        return None, {}
    output = kept_output(row, files.get(claim.result_id, {}))
    if claim.retry_paths is None:
        return output, {}
    return output, kept_outcomes(scores.get(claim.result_id, ()), row, again=claim.retry_paths)


def _outputs(claims: Sequence[Claim]) -> dict[int, ResultOutput]:
    keeping = [claim.result_id for claim in claims if claim.keeps_output]
    return ResultOutput.objects.in_bulk(keeping) if keeping else {}


def _files(claims: Sequence[Claim]) -> dict[int, dict[str, bytes]]:
    keeping = [claim.result_id for claim in claims if claim.keeps_output]
    left = Artifact.objects.filter(result_id__in=keeping).select_related("content")
    files: dict[int, dict[str, bytes]] = {}
    for one in left if keeping else ():
        files.setdefault(one.result_id, {})[one.path] = bytes(one.content.content)
    return files


def _scores(claims: Sequence[Claim]) -> dict[int, list[ScoreRow]]:
    partial = [claim.result_id for claim in claims if claim.keeps_output and claim.retry_paths]
    scores: dict[int, list[ScoreRow]] = {}
    if partial:
        for row in ScoreRow.objects.filter(result_id__in=partial):
            scores.setdefault(row.result_id, []).append(row)
    return scores
