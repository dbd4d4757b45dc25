"""What every kind of evaluator builds on: its config, its registration, and the context of a call."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar, Protocol, TypedDict, Unpack

from pydantic import BaseModel, ConfigDict

from evaluators.scoring.types import DomainError, Outcome, Score, Usage


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation; `files` are the paths of the suite's files whose text is in it."""

    role: str
    content: str
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the target: a call of a model (type `model`) or of a tool (`tool`), or what these belong to.

    `parent_id` is the `id` of the step that it is part of. The tokens and the cost of a step contain those of
    its own steps.
    """

    type: str
    name: str
    input: Any = None
    output: Any = None
    started_ms: int | None = None
    duration_ms: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    error: str = ""
    cost_usd: Decimal | None = None
    id: str = ""
    parent_id: str = ""


@dataclass(frozen=True, slots=True)
class CaseFacts:
    """The facts of the case that an evaluator may see."""

    key: str
    input: tuple[Message, ...]
    expected_output: str = ""
    expected_outcomes: tuple[str, ...] = ()
    criteria: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Output:
    """The answer of the target. `trace` is None if the target reports none, never an empty list.

    `warnings` name the parts of the answer that could not be kept.
    """

    text: str
    messages: tuple[Message, ...] = ()
    trace: tuple[Step, ...] | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BaselineOutput:
    """What the baseline run answered in the same case; without an answer, `problem` says why."""

    text: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class JudgeReply:
    """A readable reply of a judge: one JSON object that satisfies the schema."""

    content: Mapping[str, Any]
    usage: Usage
    model: str


class JudgeFailure(Exception):  # noqa: N818 - it says what happened
    """The judge gave no readable reply. `stage` is judge or parse; `usage` is what the calls cost."""

    def __init__(self, reason: str, *, stage: str, usage: Usage | None = None) -> None:
        """Keep the reason, in words that help a user fix it."""
        super().__init__(reason)
        self.reason = reason
        self.stage = stage
        self.usage = usage or Usage()


class Judge(Protocol):
    """A model or an agent that judges. It is passed in, so that kinds import no transport."""

    async def ask(self, question: JudgeQuestion) -> JudgeReply:
        """Return a reply that satisfies the schema; raise JudgeFailure if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class JudgeQuestion:
    """One question to a judge.

    `instructions` is trusted text from us and from the suite. `quoted` is untrusted text as pairs of label
    and text; the transport wraps it in random delimiters. `check` returns what is wrong with a reply that
    satisfies the schema, or "". The transport asks once for a repair, then raises JudgeFailure. A repaired
    reply is accepted if it satisfies `least`, a schema with fewer requirements. `timeout_s` limits each
    call; without it the model's own timeout applies.

    With `embedded` the question is for the embeddings of these texts: the content of the reply has them as
    `vectors`, in the same order, and nothing but model, sample and timeout counts besides.
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
    embedded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """One run of a user's program.

    `files` are written to the fresh folder it starts in, `workspace` to the folder that `EVAL_WORKSPACE`
    names. With `keeps_workspace` the result holds the files that the program left there. Besides
    `environment` it sees only PATH, HOME, LANG and EVAL_WORKSPACE. It has the network only if it
    `needs_network`, which is refused unless the administrator allows it. With `folder`, the name of an
    agent's folder set up by the administrator, it starts there instead and may only read it.
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

    `exit_code` is None if it was killed. `ended_by` names the limit that ended it (time, memory, processes,
    output, files written), also for a program that failed because of a limit or left more files than can be
    kept; else it is "". Texts are decoded with replacement characters. `sandbox` describes the sandbox.
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
    """The program was not started: scripts are off, or no sandbox works here."""


class Sandbox(Protocol):
    """Runs each program of a user alone, within limits, and kills all its processes at the end."""

    async def run(self, call: ScriptCall) -> ScriptResult:
        """Return how the program ended; raises SandboxRefusal if it could not be started."""
        ...


@dataclass(frozen=True, slots=True)
class ChildResult:
    """The result of an evaluator under a composite, with the results below it.

    `score` is after negation, None without one; `verdict` follows from the bands, "" without a score.
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
    """Everything an evaluator gets for one output.

    `children` holds the outcomes of a composite's children by name, in tree order. `results` holds the
    results of everything below, for a script or a judge that combines them. `target_as_judge` returns the
    target of a name as a judge, None if the run uses no such target. `baseline` is None if the run has no
    baseline.
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
    baseline: BaselineOutput | None = None


class PartsMissingError(DomainError):
    """A stored score lacks the parts that other settings need; only a new run can score them."""

    code = "parts_missing"


class KindConfig(BaseModel):
    """The settings of one evaluator; unknown keys are refused by name.

    `prompt_fields` may name a file of the suite (`./prompts/tone.md`) in place of a text; `file_fields` name one of
    any content.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    prompt_fields: ClassVar[tuple[str, ...]] = ()
    file_fields: ClassVar[tuple[str, ...]] = ()

    def judged_settings(self) -> Mapping[str, object]:
        """Return the settings that a judge's answer depends on, by name, such as the text of a criterion.

        If one of them changes, `rescore` cannot use the stored parts and the judge has to be called again.
        """
        return {}


EXAMPLE = re.compile(r"^```yaml\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# A line break inside a paragraph, not next to a table row, a list item or an empty line.
WRAP = re.compile(r"(?<![|\n])\n(?!\n|\||- )[ ]*")
ScoreFunction = Callable[[Any, Context], Awaitable[Outcome]]
RescoreFunction = Callable[[Any, Mapping[str, Any]], Score]
ListModels = Callable[[Mapping[str, Any]], tuple[str, ...]]
ListTargets = Callable[[Mapping[str, Any]], tuple[str, ...]]
FindMissing = Callable[[Mapping[str, Any], CaseFacts], str]


@dataclass(frozen=True, slots=True)
class Kind:
    """A registered kind.

    `spellings` are its other type names in suite files, each with the settings it implies (`contains` is
    text_check with the operator contains). `read` turns the settings of a file into those of the config and
    may raise ValueError; `implied_kind` names another kind that these settings mean, "" for none. `in_gallery` is
    False for kinds that the product uses itself. A kind that `supplies_outcomes` also judges the expected
    outcomes of the case, so they need no call of their own.

    A kind that `uses_sandbox` runs programs of the suite's author. If only some settings do,
    `runs_programs` tells whether a config does, and `programs_in` names the setting whose entries of type
    script are the programs. `list_models` returns the model of every judge call that a config can make, ""
    for the suite's judge; without it, a kind that `uses_judge` calls the model of its config once a sample.
    `list_targets` returns the target of every call that asks a target to judge.

    `needs` names what it cannot score without, besides an answer. `find_missing` returns what a case lacks to be
    scored with a config, in words after "no", else "". A kind that `needs_baseline` reads what the baseline run
    answered in the same case.
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
    implied_kind: Callable[[Mapping[str, Any]], str] | None = None
    uses_judge: bool = False
    in_gallery: bool = True
    supplies_outcomes: bool = False
    uses_sandbox: bool = False
    list_models: ListModels | None = None
    runs_programs: Callable[[Mapping[str, Any]], bool] | None = None
    programs_in: str = ""
    list_targets: ListTargets | None = None
    needs: tuple[str, ...] = ()
    find_missing: FindMissing | None = None
    needs_baseline: bool = False

    def judge_targets(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the target of every call in which a config asks a target to judge."""
        return self.list_targets(config) if self.list_targets is not None else ()

    def judge_models(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the model of every judge call that a config can make, "" for the suite's judge."""
        if self.list_models is not None:
            return self.list_models(config)
        return sample_models(config) if self.uses_judge else ()

    @property
    def asks_agent(self) -> bool:
        """Tell whether it asks targets to judge."""
        return self.list_targets is not None

    @property
    def may_ask_judge(self) -> bool:
        """Tell whether only some configs use a judge."""
        return self.list_models is not None and not self.uses_judge

    @property
    def summary(self) -> str:
        """Return the first sentence of the manual."""
        return " ".join(self.manual.split("\n\n", 1)[0].split())

    @property
    def explanation(self) -> str:
        """Return the manual without summary and example, in Markdown."""
        text = EXAMPLE.sub("", self.manual.partition("\n\n")[2]).strip()
        return WRAP.sub(" ", text)

    @property
    def example(self) -> str:
        """Return the manual's example: one evaluator of a suite file in YAML, "" without one."""
        match = EXAMPLE.search(self.manual)
        return match.group(1) if match else ""


class KindOptions(TypedDict, total=False):
    """The options of a kind besides label, icon and config; see the fields of Kind."""

    rescore: RescoreFunction
    spellings: Mapping[str, Mapping[str, Any]]
    read: Callable[[dict[str, Any]], dict[str, Any]]
    implied_kind: Callable[[Mapping[str, Any]], str]
    uses_judge: bool
    in_gallery: bool
    supplies_outcomes: bool
    uses_sandbox: bool
    runs_programs: Callable[[Mapping[str, Any]], bool]
    programs_in: str
    list_models: ListModels
    list_targets: ListTargets
    needs: tuple[str, ...]
    find_missing: FindMissing
    needs_baseline: bool


def sample_models(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the model of a config, "" for the suite's judge, once for each sample."""
    return (str(config.get("model") or ""),) * int(config.get("samples") or 1)


def kind(
    *, label: str, icon: str, config: type[KindConfig], **options: Unpack[KindOptions]
) -> Callable[[ScoreFunction], ScoreFunction]:
    """Mark a module's score function; the scan makes a Kind with the module's name and docstring as manual."""

    def mark(function: ScoreFunction) -> ScoreFunction:
        facts = {"label": label, "icon": icon, "config": config, **options}
        function.kind_facts = facts  # type: ignore[attr-defined]  # the scan reads it there
        return function

    return mark
