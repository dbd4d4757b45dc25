"""What a command line asks to be evaluated: which suite, against what, judged by whom, and what came of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from django.core.management.base import CommandError

from evaluators.models import LanguageModel
from evaluators.scoring.numbers import is_at_least
from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import counted
from runs.cases.queries import case_tags
from runs.cli.names import suite_named, target_named
from runs.files.importing import Imported, import_recorded_outputs, import_suites
from runs.formats.bundles import bundles_at
from runs.formats.finding import SUFFIXES, read_suites
from runs.models.runs import Run, RunStatus
from runs.models.suites import Case, RecordedOutput, Suite, Target
from runs.results.documents import RunFileDoc, run_file_document
from runs.running.checks import NoJudgeChosenError, NoOutputsError
from runs.summary.figures import Summary
from runs.target_kinds import target_kind_named

Note = Callable[[str], None]


class SeveralSuitesError(DomainError):
    """A path holds more suites than one."""

    code = "several_suites"


class ProfileOfStoredSuiteError(DomainError):
    """A suite of the site was to start from a profile."""

    code = "profile_of_stored_suite"


def find_suite(word: str, *, judge: str, profile: str = "", note: Note) -> Suite:
    """Return the suite; one at a path is imported first, as a new version where it changed.

    A short name goes before a path of the same letters: write ./NAME for the path. `judge` is the
    slug that judges, which stands in where the file names a model that is not here; `profile` is what
    the file starts from. What was imported is noted. Raises DomainError, UnreadableFileError with
    every problem of the files.
    """
    if _is_path(word):
        return _imported(Path(word), judge=judge, profile=profile, note=note)
    suite = suite_named(word)
    if profile:
        raise ProfileOfStoredSuiteError(
            f"--profile says what a file starts from, and {word} is a suite of this site, which has "
            "its evaluators and thresholds. Name a path, or leave --profile out."
        )
    return suite


def told(imported: Imported) -> str:
    """Return in one line what came of a suite."""
    suite, before = imported.suite, imported.version_before
    if before is None:
        return f"{suite.slug}: new, at version {suite.version}. {imported.note}."
    if not imported.is_changed:
        return f"{suite.slug}: unchanged, still at version {suite.version}."
    return f"{suite.slug}: version {suite.version}, before {before}. {imported.note}."


def _is_path(word: str) -> bool:
    if os.sep in word or word.lower().endswith((*SUFFIXES, ".zip")):
        return True
    return Path(word).exists() and not Suite.objects.filter(slug=word).exists()


def _imported(path: Path, *, judge: str, profile: str, note: Note) -> Suite:
    found = read_suites(bundles_at([path]), profile=profile)
    if len(found.suites) > 1:
        files = ", ".join(one.path for one in found.suites)
        raise SeveralSuitesError(
            f"{path} holds {len(found.suites)} suites, and a run is of one. Name its file: {files}."
        )
    [suite] = found.suites
    own_is_known = LanguageModel.objects.filter(slug=suite.content.judge).exists()
    stand_in = judge if judge and suite.content.judge and not own_is_known else None
    [done] = import_suites(found.suites, imported_by=None, judge=stand_in)
    for warning in (*found.warnings, *done.notes):
        note(f"Note: {warning}")
    note(told(done.imported))
    return done.imported.suite


RECORDED = "recorded"
RECORDED_IN_CASES = "recorded in the cases"
CHAT = "chat"
MAX_NAME_LENGTH = 120
MAX_NAMED = 5
NOT_UNDERSTOOD = 2


class ContradictoryOptionsError(DomainError):
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
        raise ContradictoryOptionsError(
            f"{error.reason} Name a language model: --judge SLUG."
        ) from error
    except NoOutputsError as error:
        raise ContradictoryOptionsError(
            f"{error.reason} Name a file of outputs whose ids are keys of these cases: "
            "--outputs FILE."
        ) from error


def find_target(name: str, outputs: Path | None, model: LanguageModel | None) -> Target:
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
            raise ContradictoryOptionsError(
                f"{suite.slug} has no case with the tag {tag!r}; {there_are}."
            )


def output_warnings(
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
        raise ContradictoryOptionsError(
            f"--outputs {outputs} cannot be read: {error.strerror}."
        ) from error
    return import_recorded_outputs(
        target_name=name, lines=lines, imported_by=None, file=outputs.name
    )


def _made(name: str, kind: str, model: LanguageModel | None) -> Target:
    """Return the target of that name, made unless it is there; two command lines make it once."""
    target, _ = Target.objects.select_related("model").get_or_create(
        name=name, defaults={"kind": kind, "model": model}
    )
    if target.kind != kind or target.model != model:
        raise ContradictoryOptionsError(
            f"The target {name} is there already and is another one. Name it with --target, or "
            "rename it in the browser."
        )
    return target


def _with_model(target: Target, model: LanguageModel) -> Target:
    """Return the target that differs from another by its model alone."""
    if not target_kind_named(target.kind).uses_model:
        raise ContradictoryOptionsError(
            f"The target {target.name} is of kind {target.kind} and asks no language model; "
            "--model goes with chat targets."
        )
    if target.model_id == model.pk:
        return target
    name = f"{target.name} with {model.slug}"[:MAX_NAME_LENGTH]
    columns = {"kind": target.kind, "config": target.config, "model": model}
    return Target.objects.update_or_create(name=name, defaults=columns)[0]


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"{', '.join(names[:MAX_NAMED])}{more}"


PASSED, GATE_FAILED, NOT_EVALUATED = 0, 1, 3


@dataclass(frozen=True, slots=True)
class ExitConclusion:
    """An exit code and the sentence that explains it."""

    code: int
    sentence: str


def conclude(run: Run) -> ExitConclusion:
    """Return what came out of a run that is over.

    A gate counts as failed only where it fails whatever the errors would have been: a run in which
    they decide could not evaluate its target.
    """
    if run.status != RunStatus.COMPLETED or not run.summary:
        return ExitConclusion(NOT_EVALUATED, f"Not evaluated: {_why_it_ended(run)}")
    summary = Summary.from_json(run.summary)
    metrics, cases = summary.metrics_gate, summary.cases_gate
    if metrics.passed and cases.passed:
        return ExitConclusion(PASSED, f"Both gates passed{_with_reviews(summary)}.")
    if metrics.passed is None:
        return ExitConclusion(
            NOT_EVALUATED, f"Not evaluated: none of {summary.executions} executions has a score."
        )
    best = (summary.passed + summary.errors) / summary.executions
    if metrics.passed and is_at_least(best, cases.threshold):
        return ExitConclusion(
            NOT_EVALUATED,
            f"Not evaluated: the cases gate fails by errors alone, {summary.errors} of "
            f"{summary.executions} executions. See what went wrong and try them again.",
        )
    names = [name for name, gate in (("metrics", metrics), ("cases", cases)) if not gate.passed]
    gates = f"The {' gate and the '.join(names)} gate failed{_with_reviews(summary)}."
    return ExitConclusion(GATE_FAILED, gates)


def _with_reviews(summary: Summary) -> str:
    return f", with {counted(summary.reviews, 'review')}" if summary.reviews else ""


class EvaluatedRunDoc(RunFileDoc):
    """A run with what a command line concluded from it."""

    exit_code: int
    """The exit code of the command."""
    conclusion: str
    """The sentence that explains it."""


def summary_document(run: Run, conclusion: ExitConclusion, *, url: str) -> EvaluatedRunDoc:
    """Describe a run, its cases and what was concluded."""
    document = dict(run_file_document(run, url=url))
    return EvaluatedRunDoc(**document, exit_code=conclusion.code, conclusion=conclusion.sentence)


def _why_it_ended(run: Run) -> str:
    if run.is_active:
        return "the workers go on with this run."
    reason = run.status_reason or RunStatus(run.status).label
    return reason if reason.endswith((".", "!", "?")) else f"{reason}."
