"""Print the progress of a run at the command line, and its figures at the end."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import TextIO

from django.core.management.base import OutputWrapper
from django.db.models import F
from django.utils import timezone

from evaluators.models import LanguageModel
from evaluators.templatetags.figures import (
    counted,
    duration,
    money,
    money_parts,
    pct,
    score,
    threshold,
)
from runs.costs import CostPair, run_costs
from runs.models.results import ANSWERED, CallStatus, ModelCall, ResultOutput
from runs.models.run_cases import RunCase
from runs.models.runs import Run, RunStatus
from runs.results.result_state import result_cause
from runs.results.run_figures import Proportion, RunRepetitions, run_repetitions
from runs.results.runs import RunGate, cases_gate, metrics_gate

PLAIN_EVERY_S = 5.0
BAR_CELLS = 10
COMPARED = {"passed": "≥", "failed": "<", "open": "of"}
# Pages use these to keep figure and unit together; a terminal may not support them.
GAPS = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2212": "-"})
# Names of cases and targets may contain anything, including commands to a terminal.
COMMANDS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")

Clock = Callable[[], float]


class ProgressLine:
    """One line that changes in a terminal; otherwise a new line every few seconds if anything changed."""

    def __init__(self, stream: TextIO, *, clock: Clock = time.monotonic) -> None:
        """Print nothing yet."""
        self._stream = stream
        self._clock = clock
        self._is_terminal = stream.isatty()
        self._is_line_open = False
        self._last_line = ""
        self._last_at = float("-inf")

    def show(self, run: Run) -> None:
        """Show the progress of the run."""
        line = progress_line(run)
        if self._is_terminal:
            cells = int(run.done_count / max(1, run.execution_count) * BAR_CELLS)
            width = shutil.get_terminal_size().columns - 1
            bar = "#" * cells + "." * (BAR_CELLS - cells)
            self._write(f"\r{f'[{bar}] {line}'[:width]:<{width}}")
            self._is_line_open = True
        elif line != self._last_line and self._clock() - self._last_at >= PLAIN_EVERY_S:
            self._write(f"{line}\n")
            self._last_line, self._last_at = line, self._clock()

    def say(self, sentence: str) -> None:
        """Print a sentence on its own line."""
        self.close()
        self._write(f"{sentence}\n")

    def close(self) -> None:
        """End the changing line."""
        if self._is_line_open:
            self._write("\n")
            self._is_line_open = False

    def _write(self, text: str) -> None:
        try:
            self._stream.write(printable(self._stream, text))
            self._stream.flush()
        except OSError:
            # The terminal is gone; the run continues.
            self._is_terminal = False


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


def summary_table(run: Run) -> str:
    """Return the figures of a finished run: both gates, verdicts, errors, repetitions, both costs and their sum."""
    policy = run.policy
    done = f"{run.done_count} of {run.execution_count}"
    verdicts = f"{run.pass_count} pass, {run.borderline_count} borderline, {run.fail_count} fail"
    # These counters do not include reviews.
    by_machine = ", without reviews" if (run.summary or {}).get("reviews") else ""
    rows = [
        ("Status", status_sentence(run)),
        ("Mean score", _gate(metrics_gate(run, policy))),
        ("Pass rate", _gate(cases_gate(run, policy))),
        ("Results", f"{done} done: {verdicts}{by_machine}"),
        ("Errors", f"{run.error_count} of {run.execution_count}"),
        *_repetition_rows(run_repetitions(run), run.scale),
        *_cost_rows(run_costs(run)),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in rows)


def _repetition_rows(figures: RunRepetitions | None, scale: int) -> list[tuple[str, str]]:
    """Return the rows about repetitions; none for a run without repetitions."""
    if figures is None:
        return []
    rows = [
        ("Passed every time", _share(figures.all_passed)),
        ("Passed at least once", _share(figures.any_passed)),
        ("Flaky", f"{_share(figures.flaky)}, verdicts vary"),
    ]
    if figures.spread is not None:
        cases = counted(figures.spread_cases, "case")
        spread = f"{score(figures.spread, scale)} of scores, over {cases}"
        rows.append(("Mean spread", spread.translate(GAPS)))
    return rows


def _share(share: Proportion) -> str:
    return f"{share.count} of {counted(share.total, 'case')} ({pct(share.share)})".translate(GAPS)


def status_sentence(run: Run) -> str:
    """Return how the run ended, how long it took, and why it ended."""
    text = RunStatus(run.status).label
    if run.started_at and run.finished_at:
        took_ms = (run.finished_at - run.started_at).total_seconds() * 1000
        text += f" after {duration(took_ms).translate(GAPS)}"
    return f"{text}. {run.status_reason}" if run.status_reason else text


def _cost_rows(spent: CostPair) -> Iterator[tuple[str, str]]:
    """Yield both costs and their sum, rounded so that they add up; an unknown price is never $0."""
    shown = money_parts(spent.run.usd, spent.evaluation.usd)
    names = ("Target cost", "Judge cost")
    for name, part, usd in zip(names, (spent.run, spent.evaluation), shown, strict=True):
        priced = f" for {part.priced} of {counted(part.answers, part.noun)}"
        known = f"{usd}{priced if part.is_partial else ''}".translate(GAPS)
        yield name, "not known" if part.usd is None else known
    least = "at least " if spent.is_partial else ""
    total = f"{least}{money(spent.total_usd)}".translate(GAPS)
    yield "Total cost", "not known" if spent.total_usd is None else total


def print_line(stream: TextIO | OutputWrapper, text: str) -> None:
    """Write a line that the stream can encode; a closed pipe is ignored.

    `evaluate … | head -1` must not change the exit code.
    """
    try:
        stream.write(printable(stream, f"{text}\n"))
        stream.flush()
    except OSError:
        _discard(stream)


def _discard(stream: TextIO | OutputWrapper) -> None:
    """Redirect a stream to nowhere: flushing a closed pipe at exit would fail again."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def printable(stream: TextIO | OutputWrapper, text: str) -> str:
    """Return the text in characters the stream can encode, without commands to a terminal."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    text = COMMANDS.sub("\ufffd", text)
    try:
        "≥".encode(encoding)
    except UnicodeEncodeError:
        text = text.replace("≥", ">=")
    return text.encode(encoding, "replace").decode(encoding)


def _gate(gate: RunGate) -> str:
    if gate.share is None:
        return f"not evaluated, needs {threshold(gate.limit)} ({gate.note})"
    figure = pct(gate.share)
    compared = f"{figure} {COMPARED[gate.state]} {threshold(gate.limit)}"
    state = "open, so far" if gate.state == "open" else f"{gate.state},"
    return f"{state} {compared} ({gate.note})"


MAX_CASES = 20
MAX_REASON_LENGTH = 240
BAD_STATES = {"fail": "failed", "error": "errored"}


def worst_cases(run: Run) -> str:
    """Return one line for each case that failed or errored, failed first, at most 20; "" if there is none."""
    cases = RunCase.objects.filter(run=run, state__in=BAD_STATES).select_related("case")
    # In the alphabet, fail comes after error.
    shown = list(cases.order_by("-state", "position")[:MAX_CASES])
    if not shown:
        return ""
    reasons = _reasons(run, {case.case.key: case.state for case in shown})
    states = [
        f"{BAD_STATES[case.state]} {score(case.score, run.scale) if case.score is not None else ''}"
        for case in shown
    ]
    width, room = max(len(case.case.key) for case in shown), max(map(len, states))
    lines = [
        f"  {case.case.key:<{width}}  {state:<{room}}  {reasons.get(case.case.key, '')}".rstrip()
        for case, state in zip(shown, states, strict=True)
    ]
    left = cases.count() - len(shown)
    more = [f"  and {left} more"] if left else []
    return "\n".join(["Cases that failed or errored", *lines, *more]).translate(GAPS)


def _reasons(run: Run, states: Mapping[str, str]) -> dict[str, str]:
    """Return why cases failed or errored, from the first repetition in the state of its case."""
    results = (
        run.results.filter(case__key__in=states).select_related("case").order_by("-repetition")
    )
    first = {
        result.case.key: result
        for result in results
        if states[result.case.key] in (result.status, result.verdict)
    }
    ids = [result.pk for result in first.values()]
    stored = dict(ResultOutput.objects.filter(pk__in=ids).values_list("pk", F("decision__cause")))
    causes = {key: result_cause(result, stored.get(result.pk)) for key, result in first.items()}
    return {key: one_line(cause.reason) for key, cause in causes.items() if cause}


def one_line(text: str) -> str:
    """Return a text in one line, cut to what a terminal has room for."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_REASON_LENGTH else f"{line[: MAX_REASON_LENGTH - 1]}…"
