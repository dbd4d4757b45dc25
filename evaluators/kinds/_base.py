"""What every kind of evaluator is made of: its config, how it is registered, and what it is given."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypedDict, Unpack

from pydantic import BaseModel, ConfigDict

from evaluators.scoring.types import DomainError, Outcome, Score, Usage


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


class PartsMissingError(DomainError):
    """A stored score lacks the parts that the asked-for settings need; only a new run can tell."""

    code = "parts_missing"


class KindConfig(BaseModel):
    """The settings of one evaluator; unknown keys are refused by name.

    `prompt_fields` may name a file of the suite (`./prompts/tone.md`) in place of a text.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    prompt_fields: ClassVar[tuple[str, ...]] = ()

    def stands_on(self) -> Mapping[str, object]:
        """Return by name what of these settings a judge was asked with: other answers need it asked again.

        What a kind's `rescore` cannot tell from stored parts stands here, such as the words of a
        criterion. Stored parts serve settings whose every entry is the same in those they came from.
        """
        return {}


EXAMPLE = re.compile(r"^```yaml\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# A line break inside a paragraph: neither of its sides is a row of a table, an item or a gap.
WRAP = re.compile(r"(?<![|\n])\n(?!\n|\||- )[ ]*")
ScoreFunction = Callable[[Any, Context], Awaitable[Outcome]]
RescoreFunction = Callable[[Any, Mapping[str, Any]], Score]
AskedModels = Callable[[Mapping[str, Any]], tuple[str, ...]]
AskedTargets = Callable[[Mapping[str, Any]], tuple[str, ...]]
Lacks = Callable[[Mapping[str, Any], CaseFacts], str]


@dataclass(frozen=True, slots=True)
class Kind:
    """A registered kind.

    `spellings` are the type names under which suite files know it, its own name included; a value
    is merged into the config, so one kind serves many spellings (`contains` is text_check with
    operator contains). `read` turns a file's mapping into the config's when that is more than
    renaming, and may raise ValueError; `meant` names the kind that a mapping means instead of this
    one, "" for none. `in_gallery` is False for kinds the product uses itself. A kind that
    `supplies_outcomes` judges the case's expected outcomes too, so no call beside the tree is made.
    One that `uses_sandbox` runs programs of the suite's author; where only some settings do,
    `runs_programs` tells which, and `programs_in` names the setting whose entries of type script
    they are. `asked_models` returns for a config the slug of the model of each judge call that it makes at most, "" for the suite's judge; without it a kind that
    `uses_judge` asks the model of its config as often as its samples say. `asked_targets` returns for a
    config the name of the target that each call asks for a judgement; only a kind that has it asks targets.
    `needs` says in words what it cannot score without, besides an answer. `lacks` returns for a config
    and a case what the case would have to have to be scored at all, in words after "no", else "".
    """

    name: str
    label: str
    icon: str
    config: type[KindConfig]
    score: ScoreFunction
    manual: str
    rescore: RescoreFunction | None = None
    spellings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    read: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    meant: Callable[[Mapping[str, Any]], str] | None = None
    uses_judge: bool = False
    in_gallery: bool = True
    supplies_outcomes: bool = False
    uses_sandbox: bool = False
    asked_models: AskedModels | None = None
    runs_programs: Callable[[Mapping[str, Any]], bool] | None = None
    programs_in: str = ""
    asked_targets: AskedTargets | None = None
    needs: tuple[str, ...] = ()
    lacks: Lacks | None = None

    def targets_asked(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the name of the target of each call that a config makes of a target that judges."""
        return self.asked_targets(config) if self.asked_targets is not None else ()

    def models_asked(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the slug of the model of each judge call that a config makes at most, "" for the suite's."""
        if self.asked_models is not None:
            return self.asked_models(config)
        return models_of_samples(config) if self.uses_judge else ()

    @property
    def asks_agent(self) -> bool:
        """Tell whether it asks a target for a judgement."""
        return self.asked_targets is not None

    @property
    def may_ask_judge(self) -> bool:
        """Tell whether some configs of a kind that else asks no judge do."""
        return self.asked_models is not None and not self.uses_judge

    @property
    def summary(self) -> str:
        """Return the first sentence of the manual."""
        return " ".join(self.manual.split("\n\n", 1)[0].split())

    @property
    def explanation(self) -> str:
        """Return the manual without summary and example, as Markdown."""
        text = EXAMPLE.sub("", self.manual.partition("\n\n")[2]).strip()
        return WRAP.sub(" ", text)

    @property
    def example(self) -> str:
        """Return the manual's example: one evaluator of a suite file in YAML, "" without one."""
        found = EXAMPLE.search(self.manual)
        return found.group(1) if found else ""


class KindOptions(TypedDict, total=False):
    """What a kind may add to its label, icon and config; the fields of Kind say what each means."""

    rescore: RescoreFunction
    spellings: Mapping[str, Mapping[str, Any]]
    read: Callable[[dict[str, Any]], dict[str, Any]]
    meant: Callable[[Mapping[str, Any]], str]
    uses_judge: bool
    in_gallery: bool
    supplies_outcomes: bool
    uses_sandbox: bool
    runs_programs: Callable[[Mapping[str, Any]], bool]
    programs_in: str
    asked_models: AskedModels
    asked_targets: AskedTargets
    needs: tuple[str, ...]
    lacks: Lacks


def models_of_samples(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the model that a config names, "" for the suite's judge, once for each sample."""
    return (str(config.get("model") or ""),) * int(config.get("samples") or 1)


def kind(
    *, label: str, icon: str, config: type[KindConfig], **options: Unpack[KindOptions]
) -> Callable[[ScoreFunction], ScoreFunction]:
    """Mark a module's score function; the scan makes the Kind, named after the module, with its docstring as manual."""

    def mark(function: ScoreFunction) -> ScoreFunction:
        facts = {"label": label, "icon": icon, "config": config, **options}
        function.kind_facts = facts  # type: ignore[attr-defined]  # the scan reads it there
        return function

    return mark
