"""Import suites and recorded outputs; each import is one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from evaluators.kinds.hybrid_judge.opinions import check_final_score
from evaluators.models import AuditEntry
from evaluators.scoring.aggregate import HYBRID_KIND, JUDGE_OVERALL
from evaluators.scoring.tree import walk
from evaluators.scoring.types import DomainError
from runs.engine.plan import case_tree
from runs.formats.bundles import bundles_at
from runs.formats.finding import FoundSuite, read_suites
from runs.formats.recorded_outputs import read_outputs, unknown_keys
from runs.formats.suite_files import make_slug
from runs.models.database import insert_rows
from runs.models.suites import Case, FileContent, RecordedOutput, Suite, SuiteFile, Target
from runs.specs.problems import Problem
from runs.specs.suites import CaseSpec, SuiteWithCases
from runs.suites.references import (
    UnknownJudgeError,
    absent_agents,
    check_judge,
    missing_models,
    unfit_agents,
)
from runs.suites.services import (
    NewRevision,
    SlugTakenError,
    current_version,
    move_cases,
    new_revision,
    next_version,
    record_change,
    store_revisions,
    version_spec,
)


def scoreless_cases(content: SuiteWithCases, *, file: str = "") -> Iterator[Problem]:
    """Yield a note if the final score is a hybrid judge's, but some cases have no such judge.

    Every result of those cases would be an error, but would still cost money.
    """
    if content.policy.final_score != JUDGE_OVERALL:
        return
    without = [
        case.key
        for case in content.cases
        if not any(
            node.kind == HYBRID_KIND
            for _, node in walk(
                case_tree(
                    content.evaluators,
                    case.evaluators.as_json() if case.evaluators else None,
                    append=case.evaluators_append,
                )
            )
        )
    ]
    if without:
        message = (
            f"{len(without)} of {len(content.cases)} cases have no hybrid judge, but the final score is its overall "
            "score, so each of their results would be an error; add one, or set final_score: aggregate"
        )
        yield Problem(message, file, 0, without[0], "final_score")


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of importing one suite: without a version before it is new, without a note unchanged."""

    suite: Suite
    version_before: int | None
    note: str
    cases: int

    @property
    def is_new(self) -> bool:
        """Tell whether the suite was created."""
        return self.version_before is None

    @property
    def is_changed(self) -> bool:
        """Tell whether the suite got a version, its first or a new one."""
        return self.version_before != self.suite.version


def import_suite(
    content: SuiteWithCases,
    *,
    imported_by: User | None,
    slug: str | None = None,
    judge: str | None = None,
    note: str = "",
) -> Suite:
    """Create the suite, or replace the content of the one with that slug, and return it.

    A changed case gets a new revision, a missing one is no longer current, and the suite gets a new version if
    anything changed. `slug` and `judge` override the content's own; if neither names a judge the suite keeps
    its judge, and a `judge` of "" removes it. Raises UnknownJudgeError for a language model that is not set up
    here and for a target that cannot judge.
    """
    if problems := (*missing_models(content, judge=judge), *unfit_agents(content)):
        raise UnknownJudgeError(problems)
    return import_content(content, imported_by=imported_by, slug=slug, judge=judge, note=note).suite


def import_content(
    content: SuiteWithCases,
    *,
    imported_by: User | None,
    slug: str | None = None,
    judge: str | None = None,
    note: str = "",
    is_new: bool = False,
) -> Imported:
    """Do what import_suite does for a suite whose models are known, and return the result.

    With `is_new`, raise SlugTakenError if there is a suite with that slug; without, if another member creates it
    at the same time.
    """
    wanted = judge if judge is not None else content.judge or None
    if wanted:
        check_judge(wanted)
    check_final_score(content.evaluators, content.policy)
    with transaction.atomic():
        suites = Suite.objects.select_for_update(of=("self",), no_key=True)
        stored = suites.filter(slug=slug or content.slug).first()
        if is_new and stored:
            raise SlugTakenError(
                f"There is already a suite “{stored.slug}”. Give the new one another short name, or change that one."
            )
        suite = stored or Suite(slug=slug or content.slug)
        before = current_version(stored) if stored else None
        kept_judge = stored.spec.judge if stored else ""
        suite.archived_at = None
        try:
            suite.write(content.replace(judge=kept_judge if wanted is None else wanted))
        except IntegrityError as error:
            # Nobody can lock a row that is not there yet.
            raise SlugTakenError(
                f"Another member has just created the suite “{suite.slug}”. Look at it, then try again."
            ) from error
        _store_files(suite, content.files)
        _store_cases(suite, content.cases)
        spec, version_note = version_spec(suite, metadata=content.metadata), ""
        if before is None or before.spec != spec:
            version = next_version(suite, spec, author=imported_by, note=note)
            version_note, old = version.note, {"version": before.number} if before else None
            new = {"version": version.number, "note": version_note}
            record_change(suite, "import", actor=imported_by, before=old, after=new)
    return Imported(suite, before.number if before else None, version_note, len(content.cases))


def _store_files(suite: Suite, files: Mapping[str, bytes]) -> None:
    hashes = dict(zip(files, FileContent.objects.store(files.values()), strict=True))
    suite.files.exclude(path__in=files).delete()
    SuiteFile.objects.bulk_create(
        (SuiteFile(suite=suite, path=path, content_id=digest) for path, digest in hashes.items()),
        update_conflicts=True,
        unique_fields=["suite", "path"],
        update_fields=["content"],
    )


def _store_cases(suite: Suite, cases: tuple[CaseSpec, ...]) -> None:
    """Store the changed cases, and make these cases, in this order, the current ones."""
    rows = suite.cases.filter(is_current=True).values_list("key", "pk", "position", "content_hash")
    current = {key: (pk, place, digest) for key, pk, place, digest in rows}
    made: list[NewRevision] = []
    moved: list[tuple[int, int]] = []
    for position, content in enumerate(cases):
        new = new_revision(content, position)
        pk, place, digest = current.get(content.key, (0, 0, ""))
        if digest != new.digest:
            made.append(new)
            continue
        if place != position:
            moved.append((position, pk))
        del current[content.key]
    store_revisions(suite, made, [pk for pk, _, _ in current.values()])
    move_cases(moved)


class UnrelatedSuiteError(DomainError):
    """Files would replace every case of suites that happen to have the same name; `problems` says which."""

    code = "unrelated_suite"

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        """Put each problem on its own line."""
        self.problems = problems
        super().__init__("\n".join(map(str, problems)))


def _unrelated_suites(files: Sequence[FoundSuite]) -> Iterator[Problem]:
    """Yield a problem for each file that shares no case with the stored suite of its name."""
    for file in files:
        stored = Case.objects.filter(suite__slug=file.content.slug, is_current=True)
        if problem := file.unrelated_problem(set(stored.values_list("key", flat=True))):
            yield problem


class UnusableSlugError(DomainError):
    """Suites cannot be stored under the given short name."""

    code = "unusable_slug"


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """A file and the result of importing its suite; `notes` name what will keep its cases from a score."""

    path: str
    imported: Imported
    notes: tuple[Problem, ...] = ()


def import_suites(
    files: Sequence[FoundSuite],
    *,
    imported_by: User | None,
    slug: str | None = None,
    judge: str | None = None,
    note: str = "",
    is_new: bool = False,
) -> tuple[ImportedFile, ...]:
    """Create or update the suite of every file and return the results in the same order.

    `slug`, for a single suite only, and `judge` override the files. With `is_new`, a suite that is
    there already raises SlugTakenError. Raises UnusableSlugError,
    UnrelatedSuiteError for a file that shares no case with the suite of its name (not with `slug`, which says
    that this suite is meant), and UnknownJudgeError with a problem for every language model that is not set up
    here and every target that cannot judge; then nothing has changed.
    """
    if slug is not None:
        check_slug(slug, len(files))
    elif unrelated := tuple(_unrelated_suites(files)):
        raise UnrelatedSuiteError(unrelated)
    problems = [
        problem
        for file in files
        for problem in (
            *missing_models(file.content, judge=judge, file=file.path),
            *unfit_agents(file.content, file=file.path),
        )
    ]
    if problems:
        raise UnknownJudgeError(tuple(problems))
    done: dict[str, Imported] = {}
    with transaction.atomic():
        # Always in the same order, so that two imports of the same suites cannot deadlock.
        for file in sorted(files, key=lambda file: file.content.slug):
            done[file.path] = import_content(
                file.content,
                imported_by=imported_by,
                slug=slug,
                judge=judge,
                note=note,
                is_new=is_new,
            )
    return tuple(
        ImportedFile(
            file.path,
            done[file.path],
            (
                *absent_agents(file.content, file=file.path),
                *scoreless_cases(file.content, file=file.path),
            ),
        )
        for file in files
    )


SAMPLE = settings.BASE_DIR / "examples" / "quick-check"
SAMPLE_TARGET = "Sample answers"


def import_sample(*, imported_by: User) -> Suite:
    """Import a small suite that needs no judge, with a target that replays its recorded outputs.

    Raises DomainError where another suite or target has its name.
    """
    [found] = read_suites(bundles_at([SAMPLE / "suite.yaml"])).suites
    with transaction.atomic():
        [file] = import_suites([found], imported_by=imported_by, judge="")
        import_recorded_outputs(
            target_name=SAMPLE_TARGET,
            lines=(SAMPLE / "outputs.jsonl").read_bytes(),
            imported_by=imported_by,
        )
    return file.imported.suite


def check_slug(slug: str, count: int = 1) -> None:
    """Raise UnusableSlugError if a name cannot be part of an address, or if it is for several suites."""
    if count > 1:
        raise UnusableSlugError(
            f"{slug!r} can name one suite, but there are {count}; import only that one."
        )
    if not slug or make_slug(slug) != slug:
        raise UnusableSlugError(
            f"{slug!r} cannot be part of an address; use lower-case letters, digits and hyphens, such as "
            f"{make_slug(slug) or 'support-agent'}."
        )


RECORDED_KIND = "recorded"
MAX_TARGET_NAME_LENGTH = 120


class TargetKindDiffersError(DomainError):
    """A target with recorded outputs was named like a target of another kind."""

    code = "target_kind_differs"


@dataclass(frozen=True, slots=True)
class ImportedOutputs:
    """The target of recorded outputs, and notes about keys that nothing reads."""

    target: Target
    notes: tuple[Problem, ...]


def import_recorded_outputs(
    *,
    target_name: str,
    lines: bytes | Iterable[str],
    imported_by: User | None,
    file: str = "outputs.jsonl",
) -> ImportedOutputs:
    """Create the recorded target, or replace its outputs if they differ, and return it with notes.

    Raises UnreadableFileError with line and reason, or TargetKindDiffersError if a target with that name is
    of another kind; then nothing changes.
    """
    content = lines if isinstance(lines, bytes) else "\n".join(lines).encode()
    outputs = read_outputs(content, file=file)
    notes = unknown_keys(outputs, file)
    with transaction.atomic():
        target, is_new = Target.objects.get_or_create(
            name=target_name.strip()[:MAX_TARGET_NAME_LENGTH], defaults={"kind": RECORDED_KIND}
        )
        if target.kind != RECORDED_KIND:
            raise TargetKindDiffersError(
                f"The target {target.name} is of kind {target.kind} and answers by itself; "
                "record the outputs under another name."
            )
        before = dict(target.recorded_outputs.values_list("case_key", "output"))
        if before == {recorded.key: dict(recorded.output) for recorded in outputs}:
            return ImportedOutputs(target, notes)
        target.recorded_outputs.all().delete()
        # Django would send arrays, in which the driver escapes each quote in Python.
        rows = ((target.pk, recorded.key, dict(recorded.output)) for recorded in outputs)
        insert_rows(RecordedOutput, ("target_id", "case_key", "output"), rows)
        AuditEntry.objects.record(
            "import",
            by=imported_by,
            object_type="target",
            object_id=target.pk,
            object_name=target.name,
            before=None if is_new else {"outputs": len(before)},
            after={"outputs": len(outputs)},
        )
    return ImportedOutputs(target, notes)
