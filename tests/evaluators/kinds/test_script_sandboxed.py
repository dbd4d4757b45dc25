"""Scripts that really run, in every sandbox that this machine has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from evaluators.kinds._base import ChildResult
from evaluators.sandbox.local import LocalSandbox
from evaluators.scoring.types import Finding, Outcome, Score, Unscored
from tests.evaluators.kinds.doubles import context_of, outcome_of
from tests.evaluators.sandbox.offers import make_sandbox, name_of, offers

# The shape of the tests-against-the-agent's-code example that scripts are described by.
BASH = """\
#!/bin/bash
cd "$EVAL_WORKSPACE"
cat results.json 2>/dev/null | python3 -c "
import json, sys
data = json.load(sys.stdin)
passed, total = data['passed'], data['total']
print(json.dumps({'score': int(passed / total * 100), 'reasoning': f'{passed}/{total} tests passed'}))
"
"""
WHOLE = """\
#!/usr/bin/env python3
import json, os
text = open(os.environ["EVAL_OUTPUT_FILE"], encoding="utf-8").read()
print(json.dumps({"score": 100, "reasoning": f"{len(text)} {len(os.environ['EVAL_OUTPUT'])}"}))
"""
JUDGE = b"""\
import json, pathlib, sys
from lib.words import WORDS
told = json.load(sys.stdin)
here = pathlib.Path(__file__).parent
hits = [word for word in WORDS if word in told["candidateAnswer"]]
extra = (here / "notes.txt").read_text()
print(json.dumps({"score": len(hits) / len(WORDS), "hits": hits, "reasoning": extra}))
"""
FILES = {
    "judges/check.py": JUDGE,
    "judges/lib/__init__.py": b"",
    "judges/lib/words.py": b"WORDS = ('out', 'never')",
    "judges/notes.txt": b"as agreed",
    "judges/run": b"#!/bin/sh\nexec python3 judges/check.py\n",
}


@pytest.fixture(params=offers(), ids=name_of)
def sandbox(request: pytest.FixtureRequest) -> LocalSandbox:
    """Give every sandbox of this machine in turn."""
    return make_sandbox(request.param)


def run(sandbox: LocalSandbox, config: Mapping[str, Any], text: str = "", **facts: Any) -> Outcome:
    context = context_of(text or "It is out.", sandbox=sandbox, **facts)
    return outcome_of("script", config, context)


def test_a_bash_script_counts_what_the_agent_left(sandbox: LocalSandbox) -> None:
    left = {"results.json": b'{"passed": 7, "total": 8}'}

    outcome = run(sandbox, {"script": BASH}, left=left)

    assert isinstance(outcome, Score), outcome
    assert (outcome.raw_score, outcome.reasoning) == (87.0, "7/8 tests passed")
    assert outcome.details["sandbox"] == sandbox.offer.in_words
    assert outcome.usage.latency_ms is not None


@pytest.mark.parametrize(
    "config",
    [
        {"command": ["python", "./judges/check.py"]},
        {"command": ["./judges/check.py"]},
        {"command": ["./judges/run"]},
        {"script": "true && ./judges/run"},
        {"command": ["check.py"], "cwd": "judges"},
    ],
    ids=str,
)
def test_scripts_import_and_read_what_lies_beside_them(
    sandbox: LocalSandbox, config: dict[str, Any]
) -> None:
    outcome = run(sandbox, {**config, "protocol": "stdin"}, files=FILES)

    assert isinstance(outcome, Score), outcome
    assert (outcome.score, outcome.reasoning) == (0.5, "as agreed")
    assert outcome.findings == (Finding("out", True),)


def test_the_whole_answer_is_in_the_file(sandbox: LocalSandbox) -> None:
    outcome = run(sandbox, {"script": WHOLE}, "é" * 300_000)

    assert isinstance(outcome, Score), outcome
    assert outcome.reasoning == f"300000 {(128 * 1024 - len('EVAL_OUTPUT') - 2) // 2}"


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"script": "echo oh no >&2; exit 4"}, "exit code 4; stderr ends: oh no"),
        ({"script": "sleep 60", "timeout_s": 0.5}, "the time limit of 0.5 s"),
        ({"command": ["no-such-program"]}, "no-such-program"),
        ({"command": ["python3", "./gone.py"]}, "gone.py"),
        ({"script": "head -c 5000000 /dev/zero"}, "the output limit"),
    ],
)
def test_what_goes_wrong_is_no_score(
    sandbox: LocalSandbox, config: dict[str, Any], reason: str
) -> None:
    outcome = run(sandbox, config)

    assert isinstance(outcome, Unscored), outcome
    assert reason in outcome.reason


def test_a_script_makes_one_score_of_the_evaluators_below(sandbox: LocalSandbox) -> None:
    script = """\
#!/usr/bin/env python3
import json, sys
told = json.load(sys.stdin)
safety, quality = told["evaluator_results"]
inner = quality["evaluatorResults"][0]
assert told["results"]["safety"]["score"] == safety["score"] and told["output"] == "It is out."
print(json.dumps({"score": min(safety["score"], inner["score"]), "misses": inner["misses"]}))
"""
    tone = Score(0.25, findings=(Finding("Dry", False),))
    results = (
        ChildResult("safety", "text_check", 2.0, Score(1.0), 1.0, "pass"),
        ChildResult(
            "quality",
            "composite",
            1.0,
            Score(0.25),
            0.25,
            "fail",
            (ChildResult("tone", "llm_judge", 1.0, tone, 0.25, "fail"),),
        ),
    )
    config = {"aggregator": {"type": "code_judge", "script": script}}
    context = context_of("It is out.", sandbox=sandbox, results=results)

    outcome = outcome_of("composite", config, context)

    assert isinstance(outcome, Score), outcome
    assert (outcome.score, outcome.findings) == (0.25, (Finding("Dry", False),))
    assert json.loads(outcome.details["stdout"])["score"] == 0.25
