"""Write results as a JUnit file, which build servers can read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from xml.sax.saxutils import escape, quoteattr

from runs.formats.results_writing import ResultLine, walk_lines

# What no XML 1.0 document may hold, not even escaped.
UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
REPLACEMENT = "\ufffd"
MAX_OUTPUT_LENGTH = 4_000
PASS, SCORED, ERROR = "pass", "scored", "error"


@dataclass(frozen=True, slots=True)
class JUnitRun:
    """One run as a test suite. `took_ms` is its duration, `began_at` an ISO time.

    With `counts_reviews` a reviewed verdict replaces the machine's. `states` are the numbers of executions by
    status, verdict and reviewed verdict: the file begins with sums, and a large run does not fit into memory.
    """

    name: str
    took_ms: float | None = None
    began_at: str = ""
    repetitions: int = 1
    counts_reviews: bool = False
    states: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def counts(self) -> Mapping[str, int]:
        """Return the number of test cases by outcome."""
        counts: Counter[str] = Counter()
        for state, count in self.states.items():
            counts[_outcome(self, *state)] += count
        return counts


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
    suites = list(runs)
    total: Counter[str] = Counter()
    for run, _ in suites:
        total.update(run.counts)
    took_ms = [run.took_ms for run, _ in suites if run.took_ms is not None]
    name = suites[0][0].name if len(suites) == 1 else f"{len(suites)} runs"
    facts = _facts(name, total, sum(took_ms) if took_ms else None)
    yield '<?xml version="1.0" encoding="UTF-8"?>\n'
    yield f"<testsuites{_attributes(facts)}>\n"
    for run, lines in suites:
        moment = {"timestamp": run.began_at} if run.began_at else {}
        own = _facts(run.name, run.counts, run.took_ms)
        yield f"<testsuite{_attributes({**own, **moment})}>\n"
        yield _properties(run.properties)
        for line in lines:
            yield _case(run, line)
        yield "</testsuite>\n"
    yield "</testsuites>\n"


def _facts(name: str, counts: Mapping[str, int], took_ms: float | None) -> dict[str, str]:
    return {
        "name": name,
        "tests": str(sum(counts.values())),
        "failures": str(counts.get("failure", 0)),
        "errors": str(counts.get("error", 0)),
        "skipped": str(counts.get("skipped", 0)),
        "time": _seconds(took_ms),
    }


def _outcome(run: JUnitRun, status: str, verdict: str, reviewed_verdict: str) -> str:
    if counted := _verdict(run, verdict, reviewed_verdict):
        return PASS if counted == PASS else "failure"
    if status == ERROR:
        return "error"
    return "failure" if status == SCORED else "skipped"


def _verdict(run: JUnitRun, verdict: str, reviewed_verdict: str) -> str:
    return (run.counts_reviews and reviewed_verdict) or verdict


def _case(run: JUnitRun, line: ResultLine) -> str:
    name = line.eval_id
    if run.repetitions > 1:
        name = f"{name} [{line.repetition} of {run.repetitions}]"
    facts = {"classname": line.suite, "name": name, "time": _seconds(line.usage.latency_ms)}
    outcome = _outcome(run, line.status, line.verdict, line.reviewed_verdict)
    elements = _outcome_elements(run, line, outcome)
    return f"<testcase{_attributes(facts)}>\n{_properties(_scores(line))}{elements}</testcase>\n"


def _outcome_elements(run: JUnitRun, line: ResultLine, outcome: str) -> str:
    """Return the element with the reason why a test case did not pass, "" if it passed."""
    if outcome == PASS:
        return ""
    if outcome == "skipped":
        return f"<skipped{_attributes({'message': line.status})}/>\n"
    verdict = _verdict(run, line.verdict, line.reviewed_verdict)
    kind = line.error_stage or "error" if outcome == "error" else verdict or "fail"
    reason = f"{kind}: {line.decided_by or 'no reason kept'}"
    if run.counts_reviews and line.reviewed_verdict:
        reason = f"{kind}: decided by a reviewer (automatic verdict: {line.verdict or line.status})"
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
