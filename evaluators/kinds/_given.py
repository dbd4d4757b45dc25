"""What an evaluator is given for one output: case and answer, a judge to ask, a sandbox, what others came to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from evaluators.scoring.types import Outcome, Usage


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Step:
    """One step the target took: a call of a model or of a tool."""

    type: str
    name: str
    input: Any = None
    output: Any = None
    started_ms: int | None = None
    duration_ms: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class CaseFacts:
    """What an evaluator may know of the case."""

    key: str
    input: tuple[Message, ...]
    expected_output: str = ""
    expected_outcomes: tuple[str, ...] = ()
    criteria: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Output:
    """What the target answered. `trace` is None when the target reports none, never an empty list.

    `warnings` say what of the answer could not be kept.
    """

    text: str
    messages: tuple[Message, ...] = ()
    trace: tuple[Step, ...] | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JudgeReply:
    """A readable reply of a judge: one JSON object that satisfies the schema asked for."""

    content: Mapping[str, Any]
    usage: Usage
    model: str


class JudgeFailure(Exception):  # noqa: N818 - it says what happened
    """The judge gave no readable reply. `stage` is judge or parse; the usage is what it cost all the same."""

    def __init__(self, reason: str, *, stage: str, usage: Usage | None = None) -> None:
        """Keep the reason in words a user can act on."""
        super().__init__(reason)
        self.reason = reason
        self.stage = stage
        self.usage = usage or Usage()


class Judge(Protocol):
    """A model or an agent asked for an opinion. Handed in, so that a kind imports no transport."""

    async def ask(self, question: JudgeQuestion) -> JudgeReply:
        """Return a reply of the schema's form; raise JudgeFailure when there is none."""
        ...


@dataclass(frozen=True, slots=True)
class JudgeQuestion:
    """One question to a judge.

    `instructions` is trusted text of ours and of the suite. Each of `quoted` is untrusted text
    (label, text) that the transport wraps in random delimiters. `check` looks at a reply that
    satisfies the schema and returns what is wrong with it in one sentence, or "": the transport
    asks for a repair once, then raises JudgeFailure. A repaired reply that falls short is taken all the
    same when it satisfies `least`, a schema that asks for less. With `timeout_s` each call may take so long, else
    as long as the model says.
    """

    purpose: str
    instructions: str
    quoted: tuple[tuple[str, str], ...]
    schema: Mapping[str, Any]
    check: Callable[[Mapping[str, Any]], str] | None = None
    least: Mapping[str, Any] | None = None
    model: str = ""
    timeout_s: float | None = None
    sample: int = 0
    round: int = 0


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """One run of a user's program.

    `files` are laid out in the fresh directory it starts in. `workspace` is laid out in another,
    which `EVAL_WORKSPACE` names; with `keeps_workspace` the result holds what the program left there.
    `environment` is all it sees besides PATH, HOME, LANG and EVAL_WORKSPACE. The network is there only
    when it `needs_network`, which is refused where the administrator does not allow it. With a
    `folder`, the name of an agent's folder that the administrator has put up, it starts there instead
    and may only read it.
    """

    command: tuple[str, ...]
    stdin: bytes = b""
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    workspace: Mapping[str, bytes] = field(default_factory=dict)
    seconds: float = 60.0
    needs_network: bool = False
    keeps_workspace: bool = False
    folder: str = ""


@dataclass(frozen=True, slots=True)
class ScriptResult:
    """How a user's program ended.

    `exit_code` is None when it was killed; `ended_by` then says in words by which limit (time, memory,
    processes, output, what is written), as it does when a program that failed by itself says it ran
    into one, or left more than can be kept; else it is "". Texts are decoded with replacement characters.
    `sandbox` says in words what it was locked in.
    """

    stdout: str
    stderr: str
    exit_code: int | None
    ended_by: str = ""
    timed_out: bool = False
    duration_ms: int = 0
    files: Mapping[str, bytes] = field(default_factory=dict)
    sandbox: str = ""


class SandboxRefusal(Exception):  # noqa: N818 - it says what happened
    """The program was not started: scripts are switched off, or no sandbox works here."""


class Sandbox(Protocol):
    """Where users' programs run, each alone, within limits, and killed with all it started."""

    async def run(self, call: ScriptCall) -> ScriptResult:
        """Return how the program ended; raises SandboxRefusal when it could not be started."""
        ...


@dataclass(frozen=True, slots=True)
class ChildResult:
    """What an evaluator under a composite came to, with what lies under it.

    `score` is after negation, None without one; `verdict` is its own by the bands, "" without a score.
    """

    name: str
    kind: str
    weight: float
    outcome: Outcome | None
    score: float | None
    verdict: str = ""
    results: tuple[ChildResult, ...] = ()


@dataclass(frozen=True, slots=True)
class Context:
    """Everything an evaluator is given for one output.

    `children` holds the outcomes of a composite's children by name, in tree order; `results` says of
    all that lies under it what it came to, where a script or a judge makes the score of these.
    `target_as_judge` returns the judge that the target of a name is, None when the run asks no such target.
    """

    path: str
    case: CaseFacts
    output: Output
    judge: Judge | None = None
    sandbox: Sandbox | None = None
    target_as_judge: Callable[[str], Judge | None] | None = None
    children: Mapping[str, Outcome] = field(default_factory=dict)
    results: tuple[ChildResult, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
