"""What a command line asks to be evaluated: which suite, against what, judged by whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from django.core.management.base import CommandError

from evaluators.models import LanguageModel
from evaluators.scoring.types import DomainError
from runs import services
from runs.management.names import target_named
from runs.models import Case, RecordedOutput, Suite, Target
from runs.reports.cases import case_tags
from runs.services.checking import NoJudgeChosenError, NoOutputsError
from runs.targets import target_kind_named

RECORDED = "recorded"
RECORDED_IN_CASES = "recorded in the cases"
CHAT = "chat"
LONGEST_NAME = 120
MOST_NAMED = 5
NOT_UNDERSTOOD = 2


class CannotAskError(DomainError):
    """What the command line asks for contradicts itself or what is there."""

    code = "cannot_ask"


def check_against_what(name: str, outputs: Path | None, model: str | None) -> None:
    """Raise CommandError unless the options say what is evaluated, and say one thing."""
    if outputs is not None and model:
        raise _misunderstood("--outputs and --model contradict each other: outputs ask no model.")
    if name == RECORDED and model:
        raise _misunderstood("--target recorded asks no language model; leave --model out.")
    if not name and outputs is None and not model:
        raise _misunderstood(
            "Against what? Name a target (--target NAME), a language model (--model SLUG), or "
            "--target recorded for outputs that are there already."
        )


@contextmanager
def options_as_remedies() -> Iterator[None]:
    """Name the option where a refusal inside the block names what is done in the browser."""
    try:
        yield
    except NoJudgeChosenError as error:
        raise CannotAskError(f"{error.reason} Name a language model: --judge SLUG.") from error
    except NoOutputsError as error:
        raise CannotAskError(
            f"{error.reason} Name a file of outputs whose ids are keys of these cases: "
            "--outputs FILE."
        ) from error


def chosen_target(name: str, outputs: Path | None, model: LanguageModel | None) -> Target:
    """Return the target that is meant, made where it can be.

    `outputs` become the outputs of the recorded target of that name, or of the file's. A model
    alone stands for itself; beside a target that talks to a model it takes the place of that one,
    as a target of its own, so that the run can be repeated in the browser. The options have passed
    check_against_what. Raises DomainError saying what is in the way.
    """
    if outputs is not None:
        return _recorded(outputs.stem if name in ("", RECORDED) else name, outputs)
    if name == RECORDED:
        return _made(RECORDED_IN_CASES, RECORDED, None)
    if not name and model is not None:
        return _made(model.slug, CHAT, model)
    target = target_named(name)
    return target if model is None else _with_model(target, model)


def check_tags(suite: Suite, tags: Sequence[str]) -> None:
    """Raise CannotAskError for a tag that no case of the suite has."""
    known = [tag for tag, _ in case_tags(suite)] if tags else []
    for tag in tags:
        if tag not in known:
            there_are = f"there are {', '.join(known)}" if known else "none of its cases has any"
            raise CannotAskError(f"{suite.slug} has no case with the tag {tag!r}; {there_are}.")


def unmatched(
    suite: Suite,
    target: Target,
    tags: Sequence[str] | None,
    keys: Sequence[str] | None = None,
) -> list[str]:
    """Return a sentence for outputs that belong to no case, and one for cases without an output."""
    if target.kind != RECORDED:
        return []
    cases = Case.objects.filter(suite=suite, is_current=True)
    tags_of = dict(cases.values_list("key", "tags"))
    uploads = RecordedOutput.objects.filter(target=target).values_list("case_key", flat=True)
    own = cases.filter(recorded_output__isnull=False).values_list("key", flat=True)
    outputs = set(uploads) or set(own)
    chosen = {key for key, has in tags_of.items() if tags is None or set(tags) & set(has)}
    if keys is not None:
        chosen &= set(keys)
    sentences = []
    if strangers := sorted(outputs - tags_of.keys()):
        verb = "1 output belongs" if len(strangers) == 1 else f"{len(strangers)} outputs belong"
        sentences.append(f"{verb} to no case of {suite.slug}: {_first(strangers)}.")
    if missing := sorted(chosen - outputs):
        count = "1 case has" if len(missing) == 1 else f"{len(missing)} cases have"
        sentences.append(f"{count} no recorded output: {_first(missing)}.")
    return sentences


def _misunderstood(reason: str) -> CommandError:
    return CommandError(reason, returncode=NOT_UNDERSTOOD)


def _recorded(name: str, outputs: Path) -> Target:
    try:
        lines = outputs.read_bytes()
    except OSError as error:
        raise CannotAskError(f"--outputs {outputs} cannot be read: {error.strerror}.") from error
    return services.import_recorded_outputs(
        target_name=name, lines=lines, imported_by=None, file=outputs.name
    )


def _made(name: str, kind: str, model: LanguageModel | None) -> Target:
    """Return the target of that name, made unless it is there; two command lines make it once."""
    target, _ = Target.objects.select_related("model").get_or_create(
        name=name, defaults={"kind": kind, "model": model}
    )
    if target.kind != kind or target.model != model:
        raise CannotAskError(
            f"The target {name} is there already and is another one. Name it with --target, or "
            "rename it in the browser."
        )
    return target


def _with_model(target: Target, model: LanguageModel) -> Target:
    """Return the target that differs from another by its model alone."""
    if not target_kind_named(target.kind).uses_model:
        raise CannotAskError(
            f"The target {target.name} is of kind {target.kind} and asks no language model; "
            "--model goes with chat targets."
        )
    if target.model_id == model.pk:
        return target
    name = f"{target.name} with {model.slug}"[:LONGEST_NAME]
    columns = {"kind": target.kind, "config": target.config, "model": model}
    return Target.objects.update_or_create(name=name, defaults=columns)[0]


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}"
