"""What every kind of evaluator is made of: its config, how it is registered, and what it is given."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypedDict, TypeVar, Unpack

from pydantic import BaseModel, ConfigDict

from evaluators.kinds._given import (
    CaseFacts,
    ChildResult,
    Context,
    Judge,
    JudgeFailure,
    JudgeQuestion,
    JudgeReply,
    Message,
    Output,
    Sandbox,
    SandboxRefusal,
    ScriptCall,
    ScriptResult,
    Step,
)
from evaluators.scoring.types import DomainError, Outcome, Score

__all__ = [
    "AskedModels",
    "AskedTargets",
    "CaseFacts",
    "ChildResult",
    "Config",
    "Context",
    "Judge",
    "JudgeFailure",
    "JudgeQuestion",
    "JudgeReply",
    "Kind",
    "KindConfig",
    "KindOptions",
    "Lacks",
    "Message",
    "Output",
    "PartsMissingError",
    "RescoreFunction",
    "Sandbox",
    "SandboxRefusal",
    "ScoreFunction",
    "ScriptCall",
    "ScriptResult",
    "Step",
    "kind",
    "models_of_samples",
]


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
Config = TypeVar("Config", bound=KindConfig)
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
