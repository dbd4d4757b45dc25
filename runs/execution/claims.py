"""Lease results to a worker with everything their execution needs, renew the leases, release them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import accumulate
from typing import Any

from django.db import transaction
from django.db.models import Exists, F, QuerySet

from evaluators.kinds._base import BaselineOutput, Output
from evaluators.scoring.score_tree import Rules
from evaluators.scoring.types import DomainError, Outcome
from runs.engine.ports import Execution
from runs.execution.database import DatabaseThread
from runs.execution.large_texts import MAX_HELD_BYTES
from runs.execution.loading import (
    Calls,
    CaseTree,
    RunWork,
    earlier_calls,
    stored_outputs,
    stored_sizes,
)
from runs.execution.shares import register_run_worker
from runs.models.database import among, database_now
from runs.models.results import (
    Artifact,
    Attempt,
    ComparedOutput,
    Result,
    ResultOutput,
    ResultStatus,
)
from runs.models.results import EvaluatorScore as ScoreRow
from runs.models.runs import ACTIVE_RUN_STATUSES, LEASE, Run, RunStatus
from runs.models.stored import kept_outcomes, kept_output
from runs.models.suites import Case


@dataclass(frozen=True, slots=True)
class Claim:
    """One leased result; a record must still match its `attempt` and `generation`.

    `stored_size` is how many bytes its stored output has.
    """

    result_id: int
    case_id: int
    attempt: int
    generation: int
    keeps_output: bool
    retry_paths: tuple[str, ...] | None
    case: Case
    stored_size: int = 0


RELEASED: dict[str, Any] = {
    "status": ResultStatus.PENDING,
    "lease_token": "",
    "lease_until": None,
    "started_at": None,
}
# What an execution needs of a case.
CASE_COLUMNS = (
    *("key", "input", "expected_output", "expected_outcomes", "criteria", "metadata"),
    *("evaluators", "evaluators_append", "recorded_output"),
)
CLAIM_COLUMNS = ("id", "case_id", "attempt", "generation", "keeps_output", "retry_paths")


def begin_run(run_id: int, *, now: datetime) -> None:
    """Move a queued run to running; do nothing when another worker was first."""
    Run.objects.filter(id=run_id, status=RunStatus.QUEUED).update(
        status=RunStatus.RUNNING, started_at=now, dearest_usd=None, is_short_of_money=False
    )


def claim_results(
    run_id: int,
    *,
    token: str,
    most: int,
    now: datetime,
    owner_id: str = "",
    stored_sizes: StoredSizes | None = None,
    holds_none: bool = True,
) -> list[Claim]:
    """Lease up to `most` waiting results of a run to the holder of the token, in suite order.

    It leases none when the run is over or belongs to another owner; the owner id of workers is "". With
    `stored_sizes`, which returns the bytes of their stored outputs by result, it leases only as many as fit into
    memory together, and at least one. A result that one more lost worker would make an error is leased after
    others, and alone, to a worker that holds none.
    """
    with transaction.atomic():
        rows = _waiting_rows(run_id, owner_id, most)
        suspects = _suspects(rows)
        alone = rows[:1] if holds_none else []
        rows = [row for row in rows if row["id"] not in suspects] or alone
        sizes = stored_sizes([row["id"] for row in rows]) if stored_sizes and rows else {}
        rows = rows[: _how_many_fit([sizes.get(row["id"], 0) for row in rows])]
        _lease(rows, token=token, now=now)
    cases = Case.objects.filter(id__in=among({row["case_id"] for row in rows})).only(*CASE_COLUMNS)
    by_id = {case.pk: case for case in cases}
    return [_claim(row, by_id[row["case_id"]], sizes.get(row["id"], 0)) for row in rows]


def waits_alone(run_id: int, owner_id: str = "") -> bool:
    """Tell whether the next waiting result of an active run is one to execute alone."""
    with transaction.atomic():
        return bool(_suspects(_waiting_rows(run_id, owner_id, 1)))


# A result that is lost so often with its worker becomes an error. Only it itself is known to end workers if the last
# one executed nothing else of the run.
MAX_ATTEMPTS = 3
WORKER_LOST, LEASE_LOST = "worker lost", "lease ran out"


def _suspects(rows: Iterable[Mapping[str, Any]]) -> set[int]:
    """Return those of waiting results that one more lost worker would make an error; no query if all are new."""
    again = {row["id"]: row["generation"] for row in rows if row["attempt"] >= MAX_ATTEMPTS - 1}
    if not again:
        return set()
    lost = Attempt.objects.filter(result__in=among(again), reason=WORKER_LOST).order_by()
    losses = Counter(lost.values_list("result_id", "generation"))
    return {pk for pk, known in again.items() if losses[pk, known] >= MAX_ATTEMPTS - 1}


def _waiting_rows(run_id: int, owner_id: str, most: int) -> list[dict[str, Any]]:
    owned = Run.objects.filter(id=run_id, status__in=ACTIVE_RUN_STATUSES, owner_id=owner_id)
    return list(
        Result.objects.ready()
        .filter(Exists(owned), run_id=run_id)
        .select_for_update(skip_locked=True)
        .order_by("position", "id")
        .values(*CLAIM_COLUMNS)[:most]
    )


def _how_many_fit(sizes: Sequence[int]) -> int:
    """Return how many outputs of these sizes, from the first on, fit into memory together."""
    within = sum(total <= MAX_HELD_BYTES for total in accumulate(sizes))
    return max(1, within)


def _lease(rows: Iterable[Mapping[str, Any]], *, token: str, now: datetime) -> None:
    ids = among(row["id"] for row in rows)
    Result.objects.filter(id__in=ids, status=ResultStatus.PENDING).update(
        status=ResultStatus.RUNNING,
        attempt=F("attempt") + 1,
        lease_token=token,
        lease_until=now + LEASE,
        started_at=now,
    )


def _claim(row: dict[str, Any], case: Case, stored_size: int) -> Claim:
    paths = row["retry_paths"]
    return Claim(
        result_id=row["id"],
        case_id=row["case_id"],
        attempt=row["attempt"] + 1,
        generation=row["generation"],
        keeps_output=row["keeps_output"],
        retry_paths=None if paths is None else tuple(paths),
        case=case,
        stored_size=stored_size,
    )


def held_results(run_id: int, token: str) -> QuerySet[Result]:
    """Return the results of a run that the holder of the token has leased."""
    return Result.objects.filter(run_id=run_id, status=ResultStatus.RUNNING, lease_token=token)


def note_return(lost: Sequence[Claim]) -> None:
    """Note that the worker that lost these claims is alive after all: no result has killed it."""
    claims = {(claim.result_id, claim.generation, claim.attempt) for claim in lost}
    results = among(claim.result_id for claim in lost)
    attempts = Attempt.objects.filter(result__in=results, reason=WORKER_LOST)
    rows = attempts.values_list("pk", "result_id", "generation", "attempt")
    survived = [pk for pk, *claim in rows if tuple(claim) in claims]
    Attempt.objects.filter(pk__in=among(survived)).update(reason=LEASE_LOST)


def renew_leases(run_id: int, token: str, held: Mapping[int, Claim], *, under_way: int) -> set[int]:
    """Extend the leases that the worker still holds and return their results; record that it is alive.

    `held` are its claims by result. Nobody holds anything of a deleted run.
    """
    now = database_now()
    with transaction.atomic():
        if Run.objects.hold_if_there(run_id) is None:
            return set()
        leased = held_results(run_id, token).filter(id__in=held)
        still = set(leased.values_list("id", flat=True))
        leased.update(lease_until=now + LEASE)
        register_run_worker(run_id, token, under_way=under_way, now=now)
        if lost := [claim for result_id, claim in held.items() if result_id not in still]:
            note_return(lost)
    return still


def release_held(run_id: int, token: str, *, but: Collection[int] = ()) -> None:
    """Release the results that the token holds, so that other workers can claim them."""
    with transaction.atomic():
        Run.objects.hold_if_there(run_id)
        held_results(run_id, token).exclude(id__in=but).update(**RELEASED)


RENEW_EVERY_S = LEASE.total_seconds() / 6
# After this long the lease may have run out, so the worker asks before it relies on it.
DOUBT_AFTER_S = LEASE.total_seconds() / 2

Clock = Callable[[], float]
StoredSizes = Callable[[Sequence[int]], Mapping[int, int]]


def time_since_boot() -> float:
    """Return seconds of a clock that also runs while the process is stopped or the machine sleeps."""
    boot_clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot_clock is None else time.clock_gettime(boot_clock)


class Leases:
    """The claims that a worker holds, by result; `count_under_way` returns how many it executes.

    `released` is called with the results that it stops holding.
    """

    def __init__(
        self,
        run_id: int,
        token: str,
        database: DatabaseThread,
        *,
        count_under_way: Callable[[], int],
        released: Callable[[Collection[int]], None],
        clock: Clock = time_since_boot,
    ) -> None:
        """Hold nothing yet."""
        self.held: dict[int, Claim] = {}
        self._run_id = run_id
        self._token = token
        self._database = database
        self._count_under_way = count_under_way
        self._released = released
        self._clock = clock
        self._renewed_at = clock()
        self._renewing = asyncio.Lock()

    def take(self, claims: Iterable[Claim]) -> None:
        """Hold results that were just claimed."""
        self.held.update((claim.result_id, claim) for claim in claims)

    def release(self, result_ids: Iterable[int]) -> None:
        """Stop holding results."""
        released = tuple(result_ids)
        for result_id in released:
            self.held.pop(result_id, None)
        self._released(released)

    async def holds(self, result_id: int) -> bool:
        """Tell whether a result is still ours; ask the database when the last answer is old."""
        if self._is_doubtful():
            async with self._renewing:
                if self._is_doubtful():
                    await self.renew()
        return result_id in self.held

    async def renew(self) -> None:
        """Record that the worker is alive, and extend every lease that it still holds."""
        asked_at, held = self._clock(), dict(self.held)
        still = await self._database.do(
            renew_leases, self._run_id, self._token, held, under_way=self._count_under_way()
        )
        self.release(held.keys() - still)
        self._renewed_at = asked_at

    def _is_doubtful(self) -> bool:
        return self._clock() - self._renewed_at > DOUBT_AFTER_S


@dataclass(frozen=True, slots=True)
class Job:
    """One execution; `problem` says why its case cannot be scored, "" when it can."""

    claim: Claim
    execution: Execution
    recorded: Mapping[str, Any] | None = None
    earlier: Calls = field(default_factory=dict)
    problem: str = ""


def claim_jobs(
    work: RunWork, *, token: str, most: int, held: Collection[int], is_repeated: bool = False
) -> list[Job]:
    """Claim up to `most` results and read what they need; return none when nothing waits.

    `is_repeated` means that an earlier attempt may have claimed results without our knowing, so
    everything but `held` is released first.
    """
    if is_repeated:
        release_held(work.run_id, token, but=held)
    claims = claim_results(
        work.run_id,
        token=token,
        most=most,
        now=database_now(),
        owner_id=work.owner_id,
        stored_sizes=partial(stored_sizes, work),
        holds_none=not held,
    )
    stored = stored_outputs(work, {claim.result_id: claim.case for claim in claims})
    # Only an earlier claim of the same generation can have left replies.
    reclaimed = {claim.result_id: claim.generation for claim in claims if claim.attempt > 1}
    earlier = earlier_calls(reclaimed) if reclaimed else {}
    outputs, files = _outputs(claims), _files(claims)
    scores, baselines = _scores(claims), _baselines(work, claims)
    return [
        _job(
            work,
            claim,
            stored.get(claim.result_id),
            earlier.get(claim.result_id, {}),
            kept,
            baselines.get(claim.result_id),
        )
        for claim in claims
        for kept in [_kept(claim, outputs, files, scores)]
    ]


def _job(
    work: RunWork,
    claim: Claim,
    recorded: Mapping[str, Any] | None,
    earlier: Calls,
    kept: tuple[Output | None, Mapping[str, Outcome]],
    baseline: BaselineOutput | None,
) -> Job:
    problem = ""
    try:
        tree = work.tree(claim.case)
    except (DomainError, KeyError, TypeError) as error:
        tree = CaseTree(work.plan.root, Rules(work.plan.root, work.plan.policy))
        problem = f"the case's own evaluators cannot be read: {error}"
    execution = Execution(
        case=claim.case.facts,
        root=tree.root,
        rules=tree.rules,
        configs=tree.configs,
        files=work.files,
        output=kept[0],
        kept=kept[1],
        judges_outcomes=bool(work.plan.judge),
        baseline=baseline,
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


def _baselines(work: RunWork, claims: Sequence[Claim]) -> dict[int, BaselineOutput]:
    """Return what the results are compared with; none, without a query, in a run that has no baseline."""
    if not work.plan.baseline:
        return {}
    rows = ComparedOutput.objects.in_bulk([claim.result_id for claim in claims])
    return {pk: BaselineOutput(row.text, row.problem) for pk, row in rows.items()}


def _outputs(claims: Sequence[Claim]) -> dict[int, ResultOutput]:
    keeping = [claim.result_id for claim in claims if claim.keeps_output]
    return ResultOutput.objects.in_bulk(keeping) if keeping else {}


def _files(claims: Sequence[Claim]) -> dict[int, dict[str, bytes]]:
    keeping = [claim.result_id for claim in claims if claim.keeps_output]
    left = Artifact.objects.filter(result_id__in=keeping).select_related("content")
    files: dict[int, dict[str, bytes]] = {}
    for artifact in left if keeping else ():
        files.setdefault(artifact.result_id, {})[artifact.path] = bytes(artifact.content.content)
    return files


def _scores(claims: Sequence[Claim]) -> dict[int, list[ScoreRow]]:
    partial = [
        claim.result_id for claim in claims if claim.keeps_output and claim.retry_paths is not None
    ]
    scores: dict[int, list[ScoreRow]] = {}
    if partial:
        for row in ScoreRow.objects.filter(result_id__in=partial):
            scores.setdefault(row.result_id, []).append(row)
    return scores
