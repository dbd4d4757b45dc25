"""Print the progress of a run at the command line, and its figures at the end."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from typing import TextIO

from django.core.management.base import OutputWrapper

from evaluators.templatetags.figures import counted, duration, money, pct, score, threshold
from runs.costs import Cost, run_costs
from runs.models.runs import Run, RunStatus
from runs.results.documents import case_summaries
from runs.results.runs import (
    CountOf,
    RunGate,
    RunRepetitions,
    cases_gate,
    metrics_gate,
    repetitions_of_run,
)

PLAIN_EVERY_S = 5.0
BAR_CELLS = 10
COMPARED = {"passed": "≥", "failed": "<", "open": "of"}
# Pages keep figure and unit together by these; a terminal may not know them.
GAPS = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2212": "-"})
# Names of cases and targets are anybody's texts, which a terminal may take for commands.
COMMANDS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")

Clock = Callable[[], float]


class ProgressLine:
    """One line that changes on a terminal; elsewhere a line every few seconds, if anything changed."""

    def __init__(self, stream: TextIO, *, clock: Clock = time.monotonic) -> None:
        """Tell nothing yet."""
        self._stream = stream
        self._clock = clock
        self._is_terminal = stream.isatty()
        self._is_line_open = False
        self._last_line = ""
        self._last_at = float("-inf")

    def show(self, run: Run) -> None:
        """Tell how far the run is."""
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
        """Tell something that stays, on a line of its own."""
        self.close()
        self._write(f"{sentence}\n")

    def close(self) -> None:
        """Leave the line that changes as it is."""
        if self._is_line_open:
            self._write("\n")
            self._is_line_open = False

    def _write(self, text: str) -> None:
        try:
            self._stream.write(written_for(self._stream, text))
            self._stream.flush()
        except OSError:
            # The terminal is gone; the run goes on.
            self._is_terminal = False


def progress_line(run: Run) -> str:
    """Return how far the run is: done of N, verdicts, errors and both costs as far as they are known."""
    counts = [
        f"{run.done_count} of {run.execution_count}",
        f"{run.pass_count} pass",
        f"{run.borderline_count} borderline",
        f"{run.fail_count} fail",
        counted(run.error_count, "error"),
    ]
    sums = (("run", run.run_cost_usd), ("evaluation", run.evaluation_cost_usd))
    # Whether nothing means free or not known is said at the end: it takes a look at every call.
    costs = [f"{money(usd).translate(GAPS)} {whose}" for whose, usd in sums if usd]
    return ", ".join(counts + costs)


def summary_table(run: Run) -> str:
    """Return how an ended run went: both gates, verdicts, errors, repetitions and both costs."""
    policy, spent = run.policy, run_costs(run)
    done = f"{run.done_count} of {run.execution_count}"
    verdicts = f"{run.pass_count} pass, {run.borderline_count} borderline, {run.fail_count} fail"
    # The counters are kept while the work goes on, before anybody reviews.
    by_whom = ", by the machine" if (run.summary or {}).get("reviews") else ""
    rows = [
        ("Status", status_words(run)),
        ("Metrics gate", _gate(metrics_gate(run, policy))),
        ("Cases gate", _gate(cases_gate(run, policy))),
        ("Executions", f"{done} done: {verdicts}{by_whom}"),
        ("Errors", f"{run.error_count} of {run.execution_count}"),
        *_repeated(repetitions_of_run(run), run.scale),
        ("Run cost", cost(spent.run)),
        ("Evaluation cost", cost(spent.evaluation)),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in rows)


def _repeated(found: RunRepetitions | None, scale: int) -> list[tuple[str, str]]:
    """Return what the repetitions of each case came to together, nothing where each ran once."""
    if found is None:
        return []
    rows = [
        (f"All {found.each} passed", _part(found.all_passed)),
        (f"Any of {found.each}", _part(found.any_passed)),
        ("Flaky", f"{_part(found.flaky)}, verdicts differ"),
    ]
    if found.spread is not None:
        of = counted(found.spread_cases, "case")
        rows.append(
            ("Mean spread", f"{score(found.spread, scale)} of scores, over {of}".translate(GAPS))
        )
    return rows


def _part(part: CountOf) -> str:
    return f"{part.count} of {counted(part.total, 'case')} ({pct(part.share)})".translate(GAPS)


def status_words(run: Run) -> str:
    """Return how the run ended, why, and how long it took."""
    words = RunStatus(run.status).label
    if run.started_at and run.finished_at:
        took_ms = (run.finished_at - run.started_at).total_seconds() * 1000
        words += f" after {duration(took_ms).translate(GAPS)}"
    return f"{words}. {run.status_reason}" if run.status_reason else words


def cost(spent: Cost) -> str:
    """Return what a spent holds; a price nobody knows is said to be unknown, never $0."""
    if spent.usd is None:
        return "not known"
    priced = f" for {spent.priced} of {counted(spent.answers, spent.noun)}"
    return f"{money(spent.usd)}{priced if spent.is_partial else ''}".translate(GAPS)


def tell(stream: TextIO | OutputWrapper, text: str) -> None:
    """Write a line in letters the stream knows, as long as anybody reads it.

    What came of a run is told by its exit code too, which `evaluate … | head -1` must not change.
    """
    try:
        stream.write(written_for(stream, f"{text}\n"))
        stream.flush()
    except OSError:
        _lead_nowhere(stream)


def _lead_nowhere(stream: TextIO | OutputWrapper) -> None:
    """Drop the rest of what goes to a stream: Python would stumble over it again at its end."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def written_for(stream: TextIO | OutputWrapper, text: str) -> str:
    """Return the text in letters the stream can write, and without commands to a terminal."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    text = COMMANDS.sub("\ufffd", text)
    readable = text.replace("≥", ">=") if not _can_write("≥", encoding) else text
    return readable.encode(encoding, "replace").decode(encoding)


def _can_write(letter: str, encoding: str) -> bool:
    try:
        letter.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def _gate(gate: RunGate) -> str:
    if gate.share is None:
        return f"not judged, needs {threshold(gate.limit)} ({gate.note})"
    figure = pct(gate.share)
    compared = f"{figure} {COMPARED[gate.state]} {threshold(gate.limit)}"
    words = {"open": f"open, so far {compared}"}
    return f"{words.get(gate.state, f'{gate.state}, {compared}')} ({gate.note})"


MOST = 20
WORDS = {"fail": "failed", "error": "errored"}


def worst_cases(run: Run) -> str:
    """Return a line a case that failed or errored, failed ones first, at most 20; "" where none did."""
    found = [one for one in case_summaries(run) if one.state in WORDS]
    if not found:
        return ""
    found.sort(key=lambda one: [*WORDS].index(one.state))
    shown = found[:MOST]
    width = max(len(one.case) for one in shown)
    lines = [
        f"  {one.case:<{width}}  {WORDS[one.state]}"
        + (f" {score(one.means.score, run.scale)}" if one.means.score is not None else "")
        for one in shown
    ]
    more = [f"  and {len(found) - MOST} more"] if len(found) > MOST else []
    return "\n".join(["Cases that failed or errored", *lines, *more]).translate(GAPS)
