"""The head of a run's page: what it is, how it stands, what can be done, and what was frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from evaluators.kinds import all_kinds
from evaluators.scoring.policy import Policy
from evaluators.templatetags.figures import money
from runs.models import OPEN_RESULT_STATUSES, Run, RunOwner
from runs.reports.case_groups import policy_of
from runs.reports.run_changes import run_changes


@dataclass(frozen=True, slots=True)
class OutlineLine:
    """One evaluator of the frozen tree, and what is set beside the defaults."""

    depth: int
    name: str
    kind: str
    facts: str


@dataclass(frozen=True, slots=True)
class RunHead:
    """What the head of the page says and offers, and what was frozen when the run began.

    `took_ms` is the time worked over all stretches, of which there was more than one with
    `has_stretches`. `own_host` is the machine whose command line carries the run out, "" for the
    workers'. `changes` are what it did otherwise than its suite. `source_number` is the run whose stored scores it was made of, None for one carried out.
    """

    status: str
    is_active: bool
    own_host: str
    errored: int
    failed: int
    took_ms: float | None
    has_stretches: bool
    policy: Policy
    judge: Mapping[str, Any] | None
    models: tuple[Mapping[str, Any], ...]
    agents: tuple[Mapping[str, Any], ...]
    target: Mapping[str, Any]
    files: tuple[str, ...]
    snapshot_hash: str
    evaluators: tuple[OutlineLine, ...]
    source_number: int | None
    changes: tuple[str, ...]
    stop_title: str
    stop_text: str


def run_head(run: Run, *, now: datetime) -> RunHead:
    """Return the head of a run's page."""
    snapshot = run.snapshot
    return RunHead(
        status=run.status,
        is_active=run.is_active,
        own_host=run.owner_id.split("/")[0] if run.owner == RunOwner.COMMAND_LINE else "",
        errored=0 if run.imported_from else run.error_count,
        failed=0 if run.imported_from else run.fail_count,
        took_ms=None if run.is_active else run.worked_ms(now=now),
        has_stretches=bool(run.worked_before_ms),
        policy=policy_of(run),
        judge=snapshot.get("judge"),
        models=tuple(snapshot.get("models", {}).values()),
        agents=tuple(agent for _, agent in sorted(snapshot.get("agents", {}).items())),
        target=snapshot["target"],
        files=tuple(sorted(snapshot.get("files", {}))),
        snapshot_hash=run.snapshot_hash,
        evaluators=tuple(_outline(snapshot["evaluators"])),
        source_number=(snapshot.get("rescored") or {}).get("run"),
        changes=run_changes(snapshot),
        stop_title=f"Cancel run #{run.number}?",
        stop_text=_stop_text(run),
    )


def _stop_text(run: Run) -> str:
    spent = run.run_cost_usd + run.evaluation_cost_usd
    left = run.results.filter(status__in=OPEN_RESULT_STATUSES).count() if run.is_active else 0
    kept = f"{run.done_count} of {run.execution_count} executions are finished and are kept."
    return (
        f"{kept} What is under way stops now; {left} {'is' if left == 1 else 'are'} left. "
        f"{money(spent)} is spent so far; calls that are on their way may still be billed."
    )


def _outline(node: Mapping[str, Any], depth: int = 0) -> list[OutlineLine]:
    facts = [f"×{node.get('weight', 1):g}"] if depth else []
    if node.get("required_below") is not None:
        facts.append(f"required {node['required_below']:g}")
    elif node.get("required"):
        facts.append("required")
    aggregator = node.get("config", {}).get("aggregator") or {}
    kind = str(aggregator.get("type") or node["kind"]).replace("_", " ")
    found = all_kinds().get(node["kind"])
    if agents := found.targets_asked(node["config"]) if found else ():
        facts.append(f"by {agents[0]}")
    lines = [OutlineLine(depth, str(node["name"]), kind, ", ".join(facts))]
    for child in node.get("children", ()):
        lines += _outline(child, depth + 1)
    return lines
