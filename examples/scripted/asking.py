"""What a judge was asked, taken out of the request: the quoted texts, the form of the reply, who asks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

QUOTED = re.compile(r"^<<<(\w+) ([^\n]*)\n(.*?)\n\1>>>$", re.MULTILINE | re.DOTALL)
NUMBERED = re.compile(r"^\d+\. (.*)$", re.MULTILINE)
OPINION = {"properties": {"reasoning": {}, "hits": {}, "misses": {}, "score": {}}}
# Everything the agent produced, in any format; the task and the expectations are not evidence.
EVIDENCE = ("candidate_answer", "tool_calls", "files", "check_results", "messages")


@dataclass(frozen=True, slots=True)
class Asked:
    """One question to a judge, with the case and target it is about."""

    target: str
    case: str
    evaluator: str
    model: str
    text: str
    quoted: Mapping[str, str]
    schema: Mapping[str, Any]

    @property
    def answer(self) -> str:
        """Return the answer under test."""
        return self.quoted.get("candidate_answer", "")

    @property
    def evidence(self) -> str:
        """Return everything the agent left behind as one text."""
        return "\n".join(self.quoted.get(label, "") for label in EVIDENCE)

    @property
    def is_later_round(self) -> bool:
        """Tell whether other judges' reasons are quoted."""
        return any(label.startswith("judge ") for label in self.quoted)

    @property
    def tools(self) -> list[str]:
        """Return the names of the tools that were called, in order."""
        return re.findall(r'"tool": "([^"]+)"', self.quoted.get("tool_calls", ""))

    def listed(self, label: str) -> list[str]:
        """Return the lines of a numbered list that is quoted."""
        return NUMBERED.findall(self.quoted.get(label, ""))

    def parts(self) -> set[str]:
        """Return the names of the parts that the reply is to have."""
        return set(self.schema.get("properties", ()))


def read_asked(body: Mapping[str, Any], key: tuple[str, ...]) -> Asked:
    """Return what a chat completion asks, for the target, case and evaluator of its headers."""
    text = "\n".join(str(message.get("content")) for message in body["messages"])
    form = body.get("response_format") or {}
    schema = (form.get("json_schema") or {}).get("schema") or {}
    return Asked(*key, str(body.get("model", "")), text, _quoted(text), schema)


def read_agent_question(text: str, case: str, agent: str) -> Asked:
    """Return the question that an agent was sent as one text, under the case's id and the evaluator's."""
    key, _, evaluator = case.partition("/")
    return Asked("", key, evaluator, agent, text, _quoted(text), OPINION)


def _quoted(text: str) -> dict[str, str]:
    return {label: said for _, label, said in QUOTED.findall(text)}
