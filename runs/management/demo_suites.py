"""What the demo loads: one suite for each profile, the targets it is run against and the judges it asks."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.conf import settings

EXAMPLES = Path(settings.BASE_DIR) / "examples"
JUDGE_FACTS = {
    "send_trace_headers": True,
    "is_scripted": True,
    "concurrency": 8,
    "timeout_s": 20,
}


@dataclass(frozen=True, slots=True)
class DemoJudge:
    """A language model that the scripted judge answers for; prices are dollars for a million tokens."""

    slug: str
    name: str
    input_price: str
    output_price: str

    def columns(self) -> dict[str, Any]:
        """Return what a language model of it is made with, but for its address."""
        return {
            **JUDGE_FACTS,
            "name": self.name,
            "model_id": self.slug,
            "input_price_usd_per_mtok": Decimal(self.input_price),
            "output_price_usd_per_mtok": Decimal(self.output_price),
        }


@dataclass(frozen=True, slots=True)
class DemoTarget:
    """A target: recorded outputs of a file, an agent of the scripted server, or a command."""

    name: str
    outputs: str = ""
    agent: str = ""
    command: str = ""

    def config(self, origin: str, folder: Path) -> dict[str, Any]:
        """Return the settings of an agent at the scripted server's origin, or of a command."""
        if self.command:
            return {"command": self.command, "folder": f"{folder.name}/agent", "timeout_s": 20}
        return {"url": f"{origin}/agents/{self.agent}", **AGENT}


@dataclass(frozen=True, slots=True)
class DemoSuite:
    """An example with what it is run against, each target once, oldest first, and targets that judge it.

    `campaign` names the runs that are started together.
    """

    slug: str
    targets: tuple[DemoTarget, ...] = ()
    judging: tuple[DemoTarget, ...] = ()
    campaign: str = ""
    repetitions: int = 1

    @property
    def folder(self) -> Path:
        """Return where its files are."""
        return EXAMPLES / self.slug


AGENT: dict[str, Any] = {
    "body": {"case": "{{case_id}}", "task": "{{input}}"},
    "output_path": "answer",
    "tool_calls_path": "steps",
    "files_path": "files",
    "input_tokens_path": "usage.input_tokens",
    "output_tokens_path": "usage.output_tokens",
    "cost_path": "cost_usd",
    "timeout_s": 20,
}
JUDGES = (
    DemoJudge("scripted-judge", "Scripted judge", "0.4", "1.6"),
    DemoJudge("scripted-judge-small", "Scripted judge, small", "0.1", "0.4"),
    DemoJudge("scripted-judge-large", "Scripted judge, large", "2.5", "10"),
)


def _recorded(name: str, *versions: str) -> tuple[DemoTarget, ...]:
    return tuple(DemoTarget(f"{name} {v}", outputs=f"outputs-{v}.jsonl") for v in versions)


# One for each profile, in the order of SCORING §10, then what needs no judge.
SUITES = (
    DemoSuite(
        "support-agent",
        _recorded("support-agent", "1.4.0", "1.5.0"),
        campaign="1.5.0 against 1.4.0",
    ),
    DemoSuite(
        "travel-desk",
        _recorded("travel-agent", "2.1", "2.2", "3.0"),
        campaign="Three releases compared",
    ),
    DemoSuite(
        "harbour-office",
        _recorded("office-assistant", "mini", "max"),
        judging=(DemoTarget("harbour reader", agent="reader"),),
        campaign="Small model or large one",
    ),
    DemoSuite(
        "repo-chores",
        (
            DemoTarget("chores 0.9", agent="chores-0.9"),
            DemoTarget("chores 1.0", agent="chores-1.0"),
        ),
        campaign="1.0 against 0.9",
        repetitions=3,
    ),
    DemoSuite("quick-check"),
    DemoSuite("returns-desk", (DemoTarget("returns desk", command="python3 desk.py"),)),
)
