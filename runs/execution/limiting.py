"""How many calls of a model all workers may have in flight: lowered, raised, and told on the runs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from evaluators.judging.sharing import Ask, changed_limit
from evaluators.models import LanguageModel
from runs.models import Hand, RunEvent

LIMIT_MEMORY = timedelta(minutes=2)
WORTH_TELLING_S = 1.0
LOWERED, RAISED = "limit_lowered", "limit_raised"
PAUSED, MINUTE_USED = "model_paused", "minute_used"


def limit_in_force(model: LanguageModel) -> int:
    """Return how many calls all workers together may have in flight."""
    return min(model.concurrency, model.limit_now or model.concurrency)


def forget_old_limit(model: LanguageModel, *, now: datetime) -> None:
    """Lift a lowered limit that nobody has worked under for a while: who would raise it is gone.

    To be called when nobody holds slots. The server that set the limit may have long recovered.
    """
    changed = model.limit_changed_at
    if model.limit_now is not None and (changed is None or changed < now - LIMIT_MEMORY):
        _change(model, limit_now=None, limit_reason="")


def change_limit(model: LanguageModel, ask: Ask, *, run_ids: Iterable[int], now: datetime) -> None:
    """Lower, raise or pause as the hands ask for who know the model's limit, and tell the runs.

    The model's row is held, so what they know is compared and changed in one step.
    """
    before = limit_in_force(model)
    after, cuts = changed_limit(before, model.limit_cuts, ask, most=model.concurrency)
    reason = reason_of(ask)
    if ask.pause_s > 0:
        _pause(model, now + timedelta(seconds=ask.pause_s))
    if cuts != model.limit_cuts:
        facts = {"limit_reason": reason, "limit_changed_at": now}
        _change(model, limit_now=after, limit_cuts=cuts, **facts)
        text = f"at most {_calls(after)} at a time, was {before} ({reason})"
        tell(run_ids, LOWERED, model, text, now=now)
    elif after > before and after == model.concurrency:
        _change(model, limit_now=None, limit_reason="")
        tell(run_ids, RAISED, model, f"back to {_calls(after)} at a time", now=now)
    elif after > before:
        _change(model, limit_now=after)
        text = f"raised to {_calls(after)} at a time after successful calls"
        tell(run_ids, RAISED, model, text, now=now)
    elif ask.pause_s >= WORTH_TELLING_S and before == 1:
        text = f"no calls for {ask.pause_s:.1f} s (429 from the server)"
        tell(run_ids, PAUSED, model, text, now=now)


def reason_of(ask: Ask) -> str:
    """Return why a limit is lowered."""
    return "429 from the server" + (f", paused for {ask.pause_s:.1f} s" if ask.pause_s else "")


def tell_lowered_before(model: LanguageModel, run_id: int, *, now: datetime) -> None:
    """Tell the readers of a run that it found the model's limit lowered."""
    limit = limit_in_force(model)
    if limit < model.concurrency:
        was = f"instead of {model.concurrency} ({model.limit_reason or '429 from the server'})"
        tell([run_id], LOWERED, model, f"at most {_calls(limit)} at a time {was}", now=now)


def tell_minute_used(run_id: int, model_id: int, *, now: datetime) -> None:
    """Tell the readers of a run that it waits for the model's minute."""
    model = LanguageModel.objects.filter(id=model_id).first()
    if model is not None and model.requests_per_minute is not None:
        calls = _calls(model.requests_per_minute)
        tell([run_id], MINUTE_USED, model, f"{calls} a minute are used up; the run waits", now=now)


def tell(
    run_ids: Iterable[int], kind: str, model: LanguageModel, text: str, *, now: datetime
) -> None:
    """Show the readers of each run one event of a kind for a model: the last, however many there were."""
    # A try holds slots like the hands of a run, and has no readers to be told.
    runs = {one for one in run_ids if one}
    told = RunEvent.objects.filter(run__in=runs, kind=kind, text__startswith=f"{model.name}: ")
    told_runs = dict(told.values_list("id", "run_id"))
    text = f"{model.name}: {text}"[:500]
    RunEvent.objects.filter(id__in=told_runs).update(text=text, at=now)
    missing = sorted(runs - set(told_runs.values()))
    new = [RunEvent(run_id=one, at=now, kind=kind, text=text) for one in missing]
    RunEvent.objects.bulk_create(new)


def runs_of(holders: Iterable[str]) -> set[int]:
    """Return the runs whose hands these are."""
    return set(Hand.objects.filter(token__in=list(holders)).values_list("run_id", flat=True))


def _change(model: LanguageModel, **columns: Any) -> None:
    LanguageModel.objects.filter(id=model.pk).update(**columns)
    for name, value in columns.items():
        setattr(model, name, value)


def _pause(model: LanguageModel, until: datetime) -> None:
    if model.paused_until is None or model.paused_until < until:
        _change(model, paused_until=until)


def _calls(count: int) -> str:
    return f"{count} call{'s' if count != 1 else ''}"
