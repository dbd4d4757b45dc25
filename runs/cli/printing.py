"""Say how far a run is, and what it waits for."""

from __future__ import annotations

from datetime import datetime

from django.utils import timezone

from evaluators.models import LanguageModel
from evaluators.templatetags.figures import GAPS, counted, duration, money
from runs.models.results import ANSWERED, CallStatus, ModelCall
from runs.models.runs import Run


def progress_line(run: Run) -> str:
    """Return the progress of a run: results done, verdicts, errors and the known costs."""
    counts = [
        f"{run.done_count} of {run.execution_count}",
        f"{run.pass_count} pass",
        f"{run.borderline_count} borderline",
        f"{run.fail_count} fail",
        counted(run.error_count, "error"),
    ]
    sums = (("target", run.run_cost_usd), ("judge", run.evaluation_cost_usd))
    # Whether no cost means free or unknown is shown at the end: it needs every call.
    costs = [f"{money(usd).translate(GAPS)} {name}" for name, usd in sums if usd]
    return ", ".join(counts + costs)


# How many of a run's newest calls are read to say since when it waits.
MAX_CALLS = 500


def waiting_text(run: Run, quiet_s: float, *, now: datetime) -> str:
    """Say how long there was no result, how the calls since the last answer ended, and what holds back models."""
    columns = ("model_name", "status", "http_status", "created_at", "model_id")
    calls = ModelCall.objects.filter(run=run).order_by("-created_at", "-id")
    failed: dict[tuple[str, str, int | None], list[datetime]] = {}
    model_ids = set()
    for name, status, code, at, model_id in calls.values_list(*columns)[:MAX_CALLS]:
        if status in ANSWERED:
            break
        failed.setdefault((name, status, code), []).append(at)
        model_ids.add(model_id)
    sentences = [f"No result for {duration(quiet_s * 1000)}."]
    for (name, status, code), at in failed.items():
        how = f"{CallStatus(status).label.lower()}{f' (HTTP {code})' if code else ''}"
        since = f"{timezone.localtime(at[-1]):%H:%M:%S}"
        sentences.append(f"{name}: {counted(len(at), 'call')} {how} since {since}.")
    for model in LanguageModel.objects.filter(pk__in=model_ids - {None}):
        slowdown = model.slowdown
        if slowdown.paused_until is not None:
            wait_ms = (slowdown.paused_until - now).total_seconds() * 1000
            sentences.append(f"{model.name} is asked again in {duration(max(0.0, wait_ms))}.")
        elif slowdown.silent_since is not None:
            sentences.append(
                f"{model.name} does not answer; it is retried with one call at a time."
            )
        elif slowdown.rate is not None:
            sentences.append(f"{model.name} is slowed to {slowdown.rate:.3g} calls a second.")
    if not failed:
        sentences.append("No call has failed since the last answer.")
    return " ".join(sentences).translate(GAPS)
