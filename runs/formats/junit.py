"""Write results as a JUnit file, which build servers can read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape, quoteattr

from runs.formats.results_writing import ResultLine, walk_lines

LABEL = "JUnit XML"
# What no XML 1.0 document may hold, not even escaped.
UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
REPLACEMENT = "\ufffd"
MAX_OUTPUT_LENGTH = 4_000
PASS, SCORED, ERROR = "pass", "scored", "error"


@dataclass(frozen=True, slots=True)
class JUnitRun:
    """One run as a test suite. `took_ms` is its duration, `began_at` an ISO time.

    With `counts_reviews` a reviewed verdict replaces the machine's.
    """

    name: str
    took_ms: float | None = None
    began_at: str = ""
    repetitions: int = 1
    counts_reviews: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)


def write_junit(run: JUnitRun, lines: Iterable[ResultLine]) -> Iterator[str]:
    """Yield the parts of the file: one test suite, with each execution as a test case.

    A test case passes exactly if the verdict is pass (SCORING §4.3): fail and borderline are failures of
    that type, an error is an error, and an execution that never ran is skipped.
    """
    yield from write_combined_junit([(run, lines)])


def write_combined_junit(
    runs: Iterable[tuple[JUnitRun, Iterable[ResultLine]]],
) -> Iterator[str]:
    """Yield the parts of a file with a test suite for each run; a single run names the whole file."""
    suites = [_suite(run, lines) for run, lines in runs]
    total: Counter[str] = Counter()
    for suite in suites:
        total.update(suite.counts)
    took_ms = [suite.run.took_ms for suite in suites if suite.run.took_ms is not None]
    name = suites[0].run.name if len(suites) == 1 else f"{len(suites)} runs"
    facts = _facts(name, total, sum(took_ms) if took_ms else None)
    yield '<?xml version="1.0" encoding="UTF-8"?>\n'
    yield f"<testsuites{_attributes(facts)}>\n"
    for suite in suites:
        run = suite.run
        moment = {"timestamp": run.began_at} if run.began_at else {}
        own = _facts(run.name, suite.counts, run.took_ms)
        yield f"<testsuite{_attributes({**own, **moment})}>\n"
        yield _properties(run.properties)
        yield from suite.cases
        yield "</testsuite>\n"
    yield "</testsuites>\n"


@dataclass(frozen=True, slots=True)
class _Suite:
    run: JUnitRun
    counts: Mapping[str, int]
    cases: Sequence[str]


def _suite(run: JUnitRun, lines: Iterable[ResultLine]) -> _Suite:
    counts: Counter[str] = Counter()
    cases = []
    for line in lines:
        outcome = _outcome(run, line)
        counts[outcome] += 1
        cases.append(_case(run, line, outcome))
    return _Suite(run, counts, cases)


def _facts(name: str, counts: Mapping[str, int], took_ms: float | None) -> dict[str, str]:
    return {
        "name": name,
        "tests": str(sum(counts.values())),
        "failures": str(counts.get("failure", 0)),
        "errors": str(counts.get("error", 0)),
        "skipped": str(counts.get("skipped", 0)),
        "time": _seconds(took_ms),
    }


def _outcome(run: JUnitRun, line: ResultLine) -> str:
    if _verdict(run, line):
        return PASS if _verdict(run, line) == PASS else "failure"
    if line.status == ERROR:
        return "error"
    return "failure" if line.status == SCORED else "skipped"


def _verdict(run: JUnitRun, line: ResultLine) -> str:
    return (run.counts_reviews and line.reviewed_verdict) or line.verdict


def _case(run: JUnitRun, line: ResultLine, outcome: str) -> str:
    name = line.eval_id
    if run.repetitions > 1:
        name = f"{name} [{line.repetition} of {run.repetitions}]"
    facts = {"classname": line.suite, "name": name, "time": _seconds(line.usage.latency_ms)}
    elements = _outcome_elements(run, line, outcome)
    return f"<testcase{_attributes(facts)}>\n{_properties(_scores(line))}{elements}</testcase>\n"


def _outcome_elements(run: JUnitRun, line: ResultLine, outcome: str) -> str:
    """Return the element with the reason why a test case did not pass, "" if it passed."""
    if outcome == PASS:
        return ""
    if outcome == "skipped":
        return f"<skipped{_attributes({'message': line.status})}/>\n"
    kind = line.error_stage or "error" if outcome == "error" else _verdict(run, line) or "fail"
    reason = f"{kind}: {line.decided_by or 'no reason kept'}"
    if run.counts_reviews and line.reviewed_verdict:
        reason = f"{kind}: decided by review, the machine says {line.verdict or line.status}"
    message = line.error if outcome == "error" else reason
    missed = "".join(f"missed: {text}\n" for text in line.found(passed=False))
    answer = f"output: {line.output[:MAX_OUTPUT_LENGTH]}\n" if line.output else ""
    attributes = _attributes({"message": message, "type": kind})
    return f"<{outcome}{attributes}>{_text(missed + answer)}</{outcome}>\n"


def _scores(line: ResultLine) -> dict[str, str]:
    """Return the reviewed verdict, the final score, every evaluator's score by path, and both costs."""
    scores = {"reviewed_verdict": line.reviewed_verdict} if line.reviewed_verdict else {}
    scores |= {} if line.score is None else {"score": f"{line.score:g}"}
    scores |= {
        f"score.{path}": f"{evaluator.score:g}"
        for path, evaluator in walk_lines(line.evaluators)
        if evaluator.score is not None
    }
    costs = {"run_cost_usd": line.run_cost_usd, "evaluation_cost_usd": line.evaluation_cost_usd}
    return scores | {name: f"{usd:f}" for name, usd in costs.items() if usd is not None}


def _properties(values: Mapping[str, str]) -> str:
    if not values:
        return ""
    rows = "".join(
        f"<property{_attributes({'name': name, 'value': value})}/>\n"
        for name, value in values.items()
    )
    return f"<properties>\n{rows}</properties>\n"


def _attributes(values: Mapping[str, str]) -> str:
    return "".join(f" {name}={quoteattr(_clean(text))}" for name, text in values.items())


def _text(text: str) -> str:
    # Readers turn bare carriage returns into line feeds.
    return escape(_clean(text), {"\r": "&#13;"})


def _clean(text: str) -> str:
    return UNWRITABLE.sub(REPLACEMENT, text)


def _seconds(ms: float | None) -> str:
    return f"{(ms or 0) / 1000:.3f}"
