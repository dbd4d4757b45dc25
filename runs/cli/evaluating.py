"""Find the suite and the target that `evaluate` names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from evaluators.models import LanguageModel
from evaluators.scoring.types import DomainError
from runs.cli.command import MISUSED, get_run, get_suite, get_target
from runs.cli.options import ContradictoryOptionsError
from runs.cli.terminal import import_message
from runs.files.importing import import_recorded_outputs, import_suites
from runs.formats.bundles import bundles_at
from runs.formats.finding import SUFFIXES, FoundSuites, read_suites
from runs.models.runs import Run
from runs.models.suites import Case, RecordedOutput, Suite, Target
from runs.running.checks import NoJudgeChosenError, NoOutputsError
from runs.scripts import prompt_programs
from runs.target_kinds import get_target_kind

Note = Callable[[str], None]


class SeveralSuitesError(DomainError):
    """A path contains more than one suite."""

    code = "several_suites"


class OptionOfFilesError(DomainError):
    """An option for files was given for a suite that is already stored."""

    code = "option_of_files"


def read_suite_at(word: str, *, profile: str = "") -> FoundSuites | None:
    """Return what the files at a path hold, before a transaction: that may take long. None for a short name.

    A short name takes precedence over a path of the same name: write ./NAME for the path. Raises DomainError, and
    UnreadableFileError with every problem of the files.
    """
    if not _is_path(word):
        return None
    run = prompt_programs(None, command="evaluate")
    reading = read_suites(bundles_at([Path(word)]), profile=profile, run=run)
    if len(reading.suites) > 1:
        files = ", ".join(suite.path for suite in reading.suites)
        raise SeveralSuitesError(
            f"{word} contains {len(reading.suites)} suites, and a run needs one. Name its file: {files}."
        )
    return reading


def find_suite(
    word: str,
    reading: FoundSuites | None,
    *,
    judge: str,
    profile: str = "",
    slug: str | None = None,
    note: Note,
) -> Suite:
    """Return the suite of a short name, or import the one that was read at a path.

    `judge` is the slug of a model that replaces the file's judge if that is unknown here, and `slug` a name that
    replaces the file's. `note` receives messages about the import. Raises DomainError.
    """
    if reading is not None:
        return _import_suite(reading, judge=judge, slug=slug, note=note)
    suite = get_suite(word)
    if option := next(
        (f"--{name}" for name, value in (("profile", profile), ("slug", slug)) if value), ""
    ):
        raise OptionOfFilesError(
            f"{option} is only for files, and {word} is a suite of this site, which has its own name, "
            f"evaluators and thresholds. Name a path, or leave {option} out."
        )
    return suite


def _is_path(word: str) -> bool:
    if os.sep in word or word.lower().endswith((*SUFFIXES, ".zip")):
        return True
    return Path(word).exists() and not Suite.objects.filter(slug=word).exists()


def _import_suite(reading: FoundSuites, *, judge: str, slug: str | None, note: Note) -> Suite:
    [suite] = reading.suites
    is_known = LanguageModel.objects.filter(slug=suite.content.judge).exists()
    replacement = judge if judge and suite.content.judge and not is_known else None
    [stored] = import_suites(reading.suites, imported_by=None, slug=slug, judge=replacement)
    for warning in (*reading.warnings, *stored.notes):
        note(f"Note: {warning}")
    imported = stored.imported
    note(
        import_message(
            imported.suite.slug, imported.suite.version, imported.version_before, imported.note
        )
    )
    return imported.suite


RECORDED = "recorded"
RECORDED_IN_CASES = "recorded in the cases"
CHAT = "chat"
MAX_NAME_LENGTH = 120
MAX_NAMED = 5


def check_judging_options(options: Mapping[str, Any]) -> None:
    """Raise CommandError for options that contradict --outputs-of, or that only it takes."""
    if not options["outputs_of"]:
        if name := next((name for name in ("version", "filter", "ask_again") if options[name]), ""):
            reason = f"--{name.replace('_', '-')} is for stored outputs; name their run with --outputs-of."
            raise CommandError(reason, returncode=MISUSED)
        return
    refused = ("target", "outputs", "model", "tag")
    if name := next((name for name in refused if options[name]), ""):
        remedy = " Choose cases by --case, or --filter 'tag = NAME'." if name == "tag" else ""
        reason = f"--outputs-of and --{name} contradict each other: no target is asked.{remedy}"
    elif options["repetitions"] != 1:
        reason = "--outputs-of judges the repetitions that there are; leave --repetitions out."
    else:
        return
    raise CommandError(reason, returncode=MISUSED)


def find_sources(suite: Suite, words: Sequence[str]) -> list[Run]:
    """Return the runs of the suite whose outputs are named; raises DomainError for a run of another suite."""
    runs = [get_run(word) for word in words]
    if other := next((run for run in runs if run.suite_id != suite.pk), None):
        raise ContradictoryOptionsError(
            f"{other.suite.slug}{other} is a run of {other.suite.slug}, so {suite.slug} cannot judge its outputs."
        )
    return runs


def check_target_options(name: str, outputs: Path | None, model: str | None) -> None:
    """Raise CommandError unless the options name exactly one thing to evaluate."""
    if outputs is not None and model:
        reason = "--outputs and --model contradict each other: outputs need no model."
    elif name == RECORDED and model:
        reason = "--target recorded needs no language model; leave --model out."
    elif not name and outputs is None and not model:
        reason = (
            "Name a target (--target NAME), a language model (--model SLUG), or "
            "--target recorded for outputs that are already stored."
        )
    else:
        return
    raise CommandError(reason, returncode=MISUSED)


@contextmanager
def options_as_remedies() -> Iterator[None]:
    """Replace remedies for the browser by options of the command line."""
    try:
        yield
    except NoJudgeChosenError as error:
        raise ContradictoryOptionsError(
            f"{error.reason} Name a language model: --judge SLUG."
        ) from error
    except NoOutputsError as error:
        raise ContradictoryOptionsError(
            f"{error.reason} Name a file of outputs whose ids are keys of these cases: "
            "--outputs FILE."
        ) from error


def find_target(
    name: str,
    outputs: Path | None,
    model: LanguageModel | None,
    *,
    lines: bytes | None = None,
    note: Note,
) -> Target:
    """Return the target that the options name, made if necessary.

    `outputs`, which are `lines`, are stored as a recorded target, named `name` or after the file. A model alone becomes a
    chat target. A model with a chat target makes a copy of that target with the model, so that the
    run can be repeated in the browser. The options must have passed check_target_options. Raises
    DomainError.
    """
    if outputs is not None and lines is not None:
        imported = import_recorded_outputs(
            target_name=outputs.stem if name in ("", RECORDED) else name,
            lines=lines,
            imported_by=None,
            file=outputs.name,
        )
        for problem in imported.notes:
            note(f"Note: {problem}")
        return imported.target
    if name == RECORDED:
        return _get_or_make_target(RECORDED_IN_CASES, RECORDED, None)
    if not name and model is not None:
        return _get_or_make_target(model.slug, CHAT, model)
    target = get_target(name)
    return target if model is None else _with_model(target, model)


def check_tags(suite: Suite, tags: Sequence[str]) -> None:
    """Raise ContradictoryOptionsError for a tag that no case of the suite has."""
    known = [tag for tag, _ in suite.tag_counts()] if tags else []
    for tag in tags:
        if tag not in known:
            there_are = f"there are {', '.join(known)}" if known else "none of its cases has any"
            raise ContradictoryOptionsError(
                f"{suite.slug} has no case with the tag {tag!r}; {there_are}."
            )


def output_warnings(
    suite: Suite,
    target: Target,
    tags: Sequence[str] | None,
    keys: Sequence[str] | None = None,
) -> list[str]:
    """Return a sentence about outputs without a case, and one about cases without an output."""
    if target.kind != RECORDED:
        return []
    cases = Case.objects.filter(suite=suite, is_current=True)
    tags_by_key = dict(cases.values_list("key", "tags"))
    uploads = RecordedOutput.objects.filter(target=target).values_list("case_key", flat=True)
    own = cases.filter(recorded_output__isnull=False).values_list("key", flat=True)
    outputs = set(uploads) or set(own)
    chosen = {
        key for key, case_tags in tags_by_key.items() if tags is None or set(tags) & set(case_tags)
    }
    if keys is not None:
        chosen &= set(keys)
    sentences = []
    if unmatched := sorted(outputs - tags_by_key.keys()):
        verb = "1 output belongs" if len(unmatched) == 1 else f"{len(unmatched)} outputs belong"
        sentences.append(f"{verb} to no case of {suite.slug}: {_first(unmatched)}.")
    if missing := sorted(chosen - outputs):
        count = "1 case has" if len(missing) == 1 else f"{len(missing)} cases have"
        sentences.append(f"{count} no recorded output: {_first(missing)}.")
    return sentences


def _get_or_make_target(name: str, kind: str, model: LanguageModel | None) -> Target:
    """Return the target of that name, made if necessary; concurrent commands make it once."""
    target, _ = Target.objects.select_related("model").get_or_create(
        name=name, defaults={"kind": kind, "model": model}
    )
    if target.kind != kind or target.model != model:
        raise ContradictoryOptionsError(
            f"There is already another target named {name}. Use it with --target, or rename it in "
            "the browser."
        )
    return target


def _with_model(target: Target, model: LanguageModel) -> Target:
    """Return a copy of a chat target with another model."""
    if not get_target_kind(target.kind).uses_model:
        raise ContradictoryOptionsError(
            f"The target {target.name} is of kind {target.kind} and uses no language model; "
            "--model works with chat targets only."
        )
    if target.model_id == model.pk:
        return target
    name = f"{target.name} with {model.slug}"[:MAX_NAME_LENGTH]
    columns = {"kind": target.kind, "config": target.config, "model": model}
    return Target.objects.update_or_create(name=name, defaults=columns)[0]


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"{', '.join(names[:MAX_NAMED])}{more}"
