"""The demo's suite through the real reader, kinds, engine and rules; only the network is left out."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from evaluators.kinds import all_kinds
from evaluators.kinds._base import (
    CaseFacts,
    JudgeFailure,
    JudgeQuestion,
    JudgeReply,
    Kind,
    Message,
    Output,
    Sandbox,
)
from evaluators.scoring.decision import Decision
from evaluators.scoring.score_tree import Rules
from evaluators.scoring.types import Score, Usage
from runs.engine.execute import execute
from runs.engine.plan import OUTCOMES_PATH, case_tree
from runs.engine.ports import Cause, Execution, TargetFailure
from runs.formats import suite_files
from runs.specs.suites import CaseSpec, SuiteWithCases
from runs.target_kinds._outputs import output_from_json
from tests.examples.reading import SUPPORT_AGENT, VERSIONS, Entry, read_lines, read_outputs

REPLIES: dict[tuple[str, str, str], Entry] = {
    (entry["target"], entry["case"], entry["evaluator"]): entry
    for entry in read_lines("judge.jsonl")
}
PASSED = {"1.4.0": 20, "1.5.0": 23}
NOT_PASSED = {
    "1.4.0": {
        "CS-003": "borderline",
        "CS-008": "borderline",
        "CS-012": "borderline",
        "CS-016": "borderline",
        "CS-019": "borderline",
        "CS-025": "borderline",
        "CS-021": "fail",
        "CS-026": "fail",
        "CS-028": "fail",
        "CS-030": "error",
    },
    "1.5.0": {
        "CS-018": "borderline",
        "CS-020": "borderline",
        "CS-029": "borderline",
        "CS-001": "fail",
        "CS-005": "fail",
        "CS-011": "fail",
        "CS-015": "error",
    },
}
GATED = [("1.4.0", "CS-021"), ("1.4.0", "CS-028"), ("1.5.0", "CS-011")]
NEVER_ASKED = {
    "release_ready/resolution/facts",
    "release_ready/resolution/correctness",
    "release_ready/communication/tone",
}


@dataclass
class WrittenJudge:
    """Gives the written reply, held to the schema and the check of the kind that asks."""

    target: str
    case: str
    path: str
    asked: list[str]

    async def ask(self, question: JudgeQuestion) -> JudgeReply:
        self.asked.append(self.path)
        entry = REPLIES[self.target, self.case, self.path]
        if "text" in entry:
            raise JudgeFailure("the reply could not be read", stage="parse")
        Draft202012Validator(question.schema).validate(entry["reply"])
        assert not (question.check and question.check(entry["reply"]))
        return JudgeReply(entry["reply"], Usage(), "scripted-judge")


@dataclass
class WrittenPorts:
    """The recorded line and the judge's replies of one case of one version."""

    target: str
    case: str
    line: Mapping[str, Any] | None
    asked: list[str] = field(default_factory=list)
    kinds: Mapping[str, Kind] = field(default_factory=all_kinds)
    sandbox: Sandbox | None = None

    async def answer(self) -> Output | TargetFailure:
        if self.line is None:
            return TargetFailure("nothing recorded", Cause.MISSING)
        return output_from_json(self.line)

    def judge(self, path: str) -> WrittenJudge:
        return WrittenJudge(self.target, self.case, path, self.asked)

    def target_as_judge(self, path: str, name: str) -> None:
        return None


@dataclass(frozen=True)
class Ended:
    """How a case of a version ended."""

    decision: Decision | None
    has_outcomes: bool
    asked: tuple[str, ...]

    @property
    def word(self) -> str:
        if self.decision is None or self.decision.verdict is None:
            return "error"
        return self.decision.verdict.value


@cache
def imported() -> SuiteWithCases:
    return suite_files.read_suite((SUPPORT_AGENT / "suite.yaml").read_bytes())


def ended(suite: SuiteWithCases, case: CaseSpec, target: str, line: Entry | None) -> Ended:
    own = case.evaluators.as_json() if case.evaluators else None
    facts = CaseFacts(
        key=case.key,
        input=tuple(Message(turn["role"], turn["content"]) for turn in case.input),
        expected_output=case.expected_output,
        expected_outcomes=case.expected_outcomes,
        criteria=case.criteria,
        metadata=case.metadata,
    )
    root = case_tree(suite.evaluators, own, append=case.evaluators_append)
    ports = WrittenPorts(target, case.key, line)
    found = asyncio.run(execute(Execution(facts, root, Rules(root, suite.policy)), ports))
    judged = isinstance(found.outcomes.get(OUTCOMES_PATH), Score)
    return Ended(found.decision, judged, tuple(ports.asked))


@cache
def run_of(version: str) -> Mapping[str, Ended]:
    suite, lines = imported(), read_outputs(version)
    target = f"support-agent {version}"
    return {case.key: ended(suite, case, target, lines.get(case.key)) for case in suite.cases}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_ends_as_its_readme_says(version: str) -> None:
    words = {case: found.word for case, found in run_of(version).items()}
    assert {case: word for case, word in words.items() if word != "pass"} == NOT_PASSED[version]
    assert Counter(words.values())["pass"] == PASSED[version]


@pytest.mark.parametrize("version", VERSIONS)
def test_expected_outcomes_are_judged_wherever_they_are_listed(version: str) -> None:
    listed = {case.key for case in imported().cases if case.expected_outcomes}
    answered = set(read_outputs(version))
    assert {case for case, found in run_of(version).items() if found.has_outcomes} == (
        listed & answered
    )


@pytest.mark.parametrize(("version", "case"), GATED)
def test_a_failed_safety_gate_pays_no_other_judge(version: str, case: str) -> None:
    asked = run_of(version)[case].asked
    assert not NEVER_ASKED & {*asked}
    assert "release_ready/safety/no_harmful_advice" in asked


@pytest.mark.parametrize(
    ("version", "case", "rule"),
    [("1.5.0", "CS-001", "grounded"), ("1.4.0", "CS-026", "within_authority")],
)
def test_a_missed_required_criterion_decides(version: str, case: str, rule: str) -> None:
    decision = run_of(version)[case].decision
    assert decision is not None
    assert decision.rule == "required"
    assert rule in decision.decided_by


def test_an_unreadable_reply_leaves_no_score() -> None:
    decision = run_of("1.5.0")["CS-015"].decision
    assert decision is not None
    assert decision.status == "error"
    assert decision.score is None
    assert "correctness" in (decision.error or "")
