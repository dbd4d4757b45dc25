"""What changes a suite: create and archive it, choose its baseline, store and restore its versions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Max
from django.utils import timezone

from evaluators.kinds import all_kinds
from evaluators.kinds._judging import named_models
from evaluators.kinds.hybrid_judge.opinions import check_final_score
from evaluators.models import AuditEntry, LanguageModel
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import COMPOSITE, EvaluatorSpec, walk
from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import counted
from runs.engine.plan import content_hash, runs_script
from runs.formats.table_cases import title_from_input
from runs.models.database import among, insert_rows, update_rows
from runs.models.runs import Run, RunStatus
from runs.models.search import CaseText
from runs.models.suites import Case, FileContent, Suite, SuiteFile, SuiteVersion
from runs.requests import RUN_SCRIPTS
from runs.specs.profiles import Profile
from runs.specs.suites import CaseRevision, CaseSpec, SuiteSpec, VersionSpec
from runs.suites.differences import change_facts, compare_specs
from runs.suites.files import find_version

EMPTY_ROOT = EvaluatorSpec(name="suite", kind=COMPOSITE)


class SlugTakenError(DomainError):
    """Another suite already has the short name."""

    code = "slug_taken"


def create_suite(
    *,
    slug: str,
    title: str,
    by: User | None,
    description: str = "",
    tags: Sequence[str] = (),
    judge: LanguageModel | None = None,
    profile: Profile | None = None,
    is_kept: bool = True,
) -> Suite:
    """Return a new suite without cases, at version 1; without a profile it has no evaluators either.

    With `is_kept` false the caller stores the first version, after adding cases in the same transaction.
    Raises SlugTakenError.
    """
    spec = SuiteSpec(
        title=title,
        description=description,
        tags=tuple(tags),
        judge=judge.slug if judge else "",
        policy=profile.policy if profile else PolicySpec(),
        evaluators=profile.root if profile else EMPTY_ROOT,
    )
    with transaction.atomic():
        suite = Suite(slug=slug)
        try:
            with transaction.atomic():
                suite.write(spec)
        except IntegrityError as error:
            raise SlugTakenError(
                f"There is already a suite “{slug}”. Choose another short name."
            ) from error
        note = f"Created from the profile {profile.label}" if profile else "Created empty"
        if is_kept:
            next_version(suite, version_spec(suite), author=by, note=note)
        record_change(suite, "create", actor=by, before=None, after={"version": 1, "note": note})
    return suite


def archive_suite(suite: Suite, *, by: User) -> bool:
    """Take a suite out of all lists; its runs stay readable. Return False if it was already archived."""
    return _put(suite, by, is_archived=True)


def unarchive_suite(suite: Suite, *, by: User) -> bool:
    """Put a suite back into the lists. Return False if it was already there."""
    return _put(suite, by, is_archived=False)


def _put(suite: Suite, by: User, *, is_archived: bool) -> bool:
    with transaction.atomic():
        held = lock_suite(suite)
        if (held.archived_at is not None) == is_archived:
            return False
        held.archived_at = timezone.now() if is_archived else None
        held.save(update_fields=["archived_at", "updated_at"])
        before, after = ({"archived": value} for value in (not is_archived, is_archived))
        record_change(held, "change", actor=by, before=before, after=after)
    return True


class NoBaselineError(DomainError):
    """A run cannot be a baseline."""

    code = "no_baseline"


def make_baseline(run: Run, *, by: User | None) -> bool:
    """Make a run the baseline of its suite, replacing another. Return False if it already is.

    Raises NoBaselineError for a run that is not completed: its figures do not cover the whole suite
    (SCORING §8), and for one that only measures the judge.
    """
    if run.status != RunStatus.COMPLETED:
        raise NoBaselineError(
            f"Run #{run.number} is not completed, so its figures do not cover all its cases. "
            "Choose a completed run."
        )
    if run.measures_judge:
        raise NoBaselineError(
            f"Run #{run.number} only measures the judge, so it says nothing about the target. "
            "Choose another run."
        )
    return _set(run.suite_id, run, by)


def drop_baseline(run: Run, *, by: User | None) -> bool:
    """Make a run the baseline no longer. Return False if it is not the baseline now."""
    return _set(run.suite_id, None, by, only_from=run)


def _set(suite_id: int, run: Run | None, by: User | None, only_from: Run | None = None) -> bool:
    with transaction.atomic():
        suite = Suite.objects.select_for_update(no_key=True).get(pk=suite_id)
        # Read after the lock: a joined row would be that of before another change.
        runs = Run.including_deleted.defer("snapshot", "leaf_scores")
        before = runs.get(pk=suite.baseline_run_id) if suite.baseline_run_id else None
        if run is not None and not Run.objects.filter(pk=run.pk).exists():
            raise NoBaselineError(f"Run {run} was deleted.")
        if before == run or (only_from is not None and before != only_from):
            return False
        suite.baseline_run = run
        suite.save(update_fields=["baseline_run", "updated_at"])
        AuditEntry.objects.record(
            "change",
            by=by,
            object_type="suite",
            object_id=suite.pk,
            object_name=suite.slug,
            before={"baseline": str(before) if before else None},
            after={"baseline": str(run) if run else None},
        )
    return True


def written_titles(suite: Suite | None) -> Mapping[str, str]:
    """Return, by key, the titles of a suite's current cases that were not made from their input."""
    if suite is None:
        return {}
    cases = suite.cases.filter(is_current=True).exclude(title="")
    rows = cases.values_list("key", "title", "input").iterator()
    return {key: title for key, title, turns in rows if title != title_from_input(turns)}


MAX_NOTE_LENGTH = 300
# Edits of cases by one person join one version for this long.
GATHERS_FOR = timedelta(hours=1)


class SuiteArchivedError(DomainError):
    """An archived suite cannot be changed."""

    code = "suite_archived"


def version_spec(suite: Suite, *, metadata: Mapping[str, Any] | None = None) -> VersionSpec:
    """Return what a version of the suite would store now.

    `metadata` are the unused keys of the suite's file; by default those of the current version stay.
    """
    if metadata is None:
        current = current_version(suite)
        metadata = current.spec.metadata if current else {}
    return VersionSpec(
        **dict(suite.spec),
        metadata=metadata,
        files=dict(suite.files.order_by("path").values_list("path", "content_id")),
        cases=_case_revisions(suite),
    )


def lock_suite(suite: Suite) -> Suite:
    """Return the suite as stored now, its row locked until the transaction ends."""
    rows = Suite.objects.select_for_update(of=("self",), no_key=True).select_related("judge")
    return rows.get(pk=suite.pk)


def lock_editable_suite(suite: Suite) -> Suite:
    """Return the suite with its row locked until the transaction ends; raises SuiteArchivedError."""
    held = lock_suite(suite)
    if held.archived_at is not None:
        raise SuiteArchivedError(
            f"{held.title} is archived and cannot be changed. Restore it first."
        )
    return held


@dataclass(frozen=True, slots=True)
class NewRevision:
    """A revision to store: the case's key and place, and the columns of its content with their hash."""

    key: str
    position: int
    columns: Mapping[str, Any]
    digest: str


def new_revision(content: CaseSpec, position: int) -> NewRevision:
    """Return a case as a revision to store."""
    columns = content.columns()
    return NewRevision(content.key, position, columns, content_hash(columns))


PLACE_COLUMNS = ("suite_id", "key", "revision", "position", "is_current", "created_at")
CONTENT_COLUMNS = tuple(name for name in CaseSpec.model_fields if name != "key")


def store_revisions(suite: Suite, made: Sequence[NewRevision], retired: Sequence[int]) -> None:
    """Make new revisions, numbered after the last of their keys, the current ones, and `retired` no longer so.

    The number of queries does not grow with them.
    """
    # A key has one current revision at a time, so retire the old ones first.
    if retired:
        suite.cases.filter(pk__in=among(retired)).update(is_current=False)
    revisions = suite.cases.filter(key__in=among((one.key for one in made), "text")).order_by()
    latest = dict(revisions.values_list("key").annotate(last=Max("revision")))
    now = timezone.now()
    insert_rows(
        Case,
        (*PLACE_COLUMNS, "content_hash", *CONTENT_COLUMNS),
        (
            (
                *(suite.pk, one.key, latest.get(one.key, 0) + 1, one.position, True, now),
                *(one.digest, *(one.columns[name] for name in CONTENT_COLUMNS)),
            )
            for one in made
        ),
    )
    CaseText.objects.add(suite)


def move_cases(places: Iterable[tuple[int, int]]) -> None:
    """Give each revision its position in the suite; pairs of position and id."""
    update_rows(Case, ("position",), places, key=("id",))


def _case_revisions(suite: Suite) -> list[CaseRevision]:
    rows = suite.cases.filter(is_current=True).order_by("position", "id")
    columns = rows.values_list("key", "revision", "content_hash")
    return [{"key": key, "revision": revision, "hash": digest} for key, revision, digest in columns]


def current_version(suite: Suite) -> SuiteVersion | None:
    """Return the suite's current version; None if it has none."""
    return suite.versions.filter(number=suite.version).select_related("author").first()


class SuiteChangedError(DomainError):
    """Somebody saved the suite since the user looked at it."""

    code = "suite_changed"


class ProgramsRefusedError(DomainError):
    """A member who may not run programs would add or change one, which others would then run."""

    code = "programs_refused"


MAY_NOT_RUN = (
    "you may not run scripts, so you cannot add or change them either. An admin can allow it on your "
    "page under Members: “May run scripts”."
)


def check_programs(
    suite: Suite, before: VersionSpec | None, after: VersionSpec, by: User | None
) -> None:
    """Raise ProgramsRefusedError if `after` changes what programs do, and `by` may not run any.

    A program may load any file of its suite by a name that it computes, so next to programs no file may be
    new or different.
    """
    if by is None or by.has_perm(RUN_SCRIPTS):
        return
    known, files = (_programs(suite, before), before.files) if before else ({}, {})
    programs_after = _programs(suite, after)
    if new := [path for digest, path in programs_after.items() if digest not in known]:
        raise ProgramsRefusedError(
            f"The evaluator {new[0] or 'of the whole suite'} runs a program that would be new or "
            f"different, and {MAY_NOT_RUN}"
        )
    changed = [path for path, digest in after.files.items() if files.get(path) != digest]
    if changed and programs_after:
        raise ProgramsRefusedError(
            f"The file {changed[0]} would be new or different. The suite's scripts can load any of its files, "
            f"and {MAY_NOT_RUN}"
        )


def _programs(suite: Suite, spec: VersionSpec) -> dict[str, str]:
    """Return the path of each evaluator of a version that runs a program, by a hash of its settings.

    The cases' own evaluators are included.
    """
    revisions = {(case["key"], case["revision"]) for case in spec.cases}
    own = suite.cases.filter(evaluators__isnull=False).values_list("key", "revision", "evaluators")
    trees = [spec.evaluators]
    trees += [EvaluatorSpec.model_validate(tree) for key, n, tree in own if (key, n) in revisions]
    return {
        content_hash([node.kind, node.config]): path
        for tree in trees
        for path, node in walk(tree)
        if runs_script(node, all_kinds())
    }


def next_version(
    suite: Suite,
    spec: VersionSpec,
    *,
    author: User | None,
    note: str = "",
    gathers: bool = False,
) -> SuiteVersion:
    """Store the suite as its next version and return that; the caller holds a lock on the suite's row.

    Its number is one more than the current one's, or 1 for the first. Without a note the version says
    what changed, in counts. Raises ProgramsRefusedError.
    """
    before = current_version(suite)
    check_programs(suite, before.spec if before else None, spec, author)
    suite.version = suite.version + 1 if before else 1
    suite.save(update_fields=["version", "updated_at"])
    content = spec.as_json()
    return SuiteVersion.objects.create(
        suite=suite,
        number=suite.version,
        note=(note or change_note(before.spec if before else None, spec))[:MAX_NOTE_LENGTH],
        author=author,
        content_hash=content_hash(content),
        content=content,
        gathers=gathers,
    )


def can_join_version(version: SuiteVersion, author: User | None, *, now: datetime) -> bool:
    """Tell whether the author's edit of cases may join this version instead of making the next one.

    It may if the same author made the version by such edits less than an hour ago and no run has used it.
    """
    return (
        version.gathers
        and version.author_id == (author.pk if author else None)
        and now - version.created_at < GATHERS_FOR
        and not version.suite.runs.filter(suite_version=version.number).exists()
    )


def record_change(
    suite: Suite,
    action: str,
    *,
    actor: User | None,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any],
) -> None:
    """Write a change of a suite to the audit."""
    AuditEntry.objects.record(
        action,
        by=actor,
        object_type="suite",
        object_id=suite.pk,
        object_name=suite.slug,
        before=before,
        after=after,
    )


NOTED_AS = {"max_minutes": "longest time"}


def change_note(before: VersionSpec | None, after: VersionSpec) -> str:
    """Return a line that says what a new version changes."""
    if before is None:
        return f"Imported with {counted(len(after.cases), 'case')}"
    old = {case["key"]: case.get("hash") for case in before.cases}
    new = {case["key"]: case["hash"] for case in after.cases}
    counts = {
        "added": len(new.keys() - old.keys()),
        "changed": sum(old[key] != new[key] for key in new.keys() & old.keys()),
        "removed": len(old.keys() - new.keys()),
    }
    notes = [f"{counted(count, 'case')} {word}" for word, count in counts.items() if count]
    notes += [
        f"{NOTED_AS.get(name, name)} changed"
        for name in VersionSpec.model_fields
        if name not in ("judge", "cases") and getattr(before, name) != getattr(after, name)
    ]
    if before.judge != after.judge:
        notes.append(f"judge: {before.judge or 'none'} → {after.judge or 'none'}")
    if not counts["added"] + counts["removed"] and [*old] != [*new]:
        notes.append("cases reordered")
    return ", ".join(notes) or "nothing changed"


MAX_NAMED = 5


class CannotRestoreError(DomainError):
    """A version cannot be restored: it needs something that is gone, or it equals the suite."""

    code = "cannot_restore"


def record_version(
    suite: Suite, *, author: User | None, note: str = "", gathers: bool = False
) -> SuiteVersion:
    """Store the suite as a version and return that; without a change, return the current version.

    With `gathers`, edits of cases join the current version if the same author made that by edits of
    cases alone, less than an hour ago, and no run has used it. Call it in the transaction that made the
    change, after locking the suite's row with `lock_suite`.
    """
    with transaction.atomic():
        held = lock_suite(suite)
        spec, current = version_spec(held), current_version(held)
        if current is not None and current.spec == spec:
            version = current
        elif current is None:
            version = next_version(held, spec, author=author, note=note)
        else:
            version = _change_version(held, current, spec, author, note, gathers=gathers)
    suite.version = version.number
    return version


def restore_version(suite: Suite, number: int, *, by: User | None, note: str = "") -> SuiteVersion:
    """Make a new version with the content of an old one, and return it.

    Cases return in the revisions they had, so results keep pointing at what they ran. Raises
    UnknownVersionError, SuiteArchivedError, or CannotRestoreError naming what is gone.
    """
    with transaction.atomic():
        held = lock_editable_suite(suite)
        old, before = find_version(held, number).spec, version_spec(held)
        if compare_specs(before, old).is_empty:
            raise CannotRestoreError(
                f"{held.title} is the same as version {number}; there is nothing to restore."
            )
        cases = stored_cases(held, number, old)
        _check_models(number, old, cases)
        check_final_score(old.evaluators, old.policy)
        held.write(old)
        _put_files(held, old.files)
        _put_cases(held, cases)
        more = f": {' '.join(note.split())}" if note.strip() else ""
        spec = version_spec(held, metadata=old.metadata)
        version = next_version(held, spec, author=by, note=f"Restored version {number}{more}")
        _record_change(held, "restore", by, (version.number - 1, before), version)
    suite.version = version.number
    return version


def _change_version(
    suite: Suite,
    current: SuiteVersion,
    spec: VersionSpec,
    author: User | None,
    note: str,
    *,
    gathers: bool,
) -> SuiteVersion:
    number, before = current.number, current.spec
    gathers = gathers and _differ_in_cases_alone(before, spec)
    if gathers and can_join_version(current, author, now=timezone.now()):
        check_programs(suite, before, spec, author)
        past = suite.versions.filter(number=current.number - 1).first()
        current.content = spec.as_json()
        current.content_hash = content_hash(current.content)
        current.note = (note or change_note(past.spec if past else before, spec))[:MAX_NOTE_LENGTH]
        current.save(update_fields=["content", "content_hash", "note"])
        version = current
    else:
        version = next_version(suite, spec, author=author, note=note, gathers=gathers)
    _record_change(suite, "change", author, (number, before), version)
    return version


def _differ_in_cases_alone(before: VersionSpec, after: VersionSpec) -> bool:
    difference = compare_specs(before, after)
    return not (difference.scoring or difference.files)


def stored_cases(suite: Suite, number: int, spec: VersionSpec) -> list[Case]:
    """Return the revisions a version names, in its order; raises CannotRestoreError for missing ones."""
    wanted = [(case["key"], case["revision"]) for case in spec.cases]
    rows = suite.cases.filter(key__in=among((key for key, _ in wanted), "text"))
    light = rows.defer("input", "recorded_output", "metadata")
    stored = {(row.key, row.revision): row for row in light}
    if gone := [f"{key} (revision {n})" for key, n in wanted if (key, n) not in stored]:
        raise CannotRestoreError(
            f"Version {number} cannot be restored: its cases {_some(gone)} are no longer stored."
        )
    return [stored[revision] for revision in wanted]


def _check_models(number: int, spec: VersionSpec, cases: Iterable[Case]) -> None:
    """Raise CannotRestoreError if the version names language models that are gone."""
    trees = [("", spec.evaluators)]
    trees += [
        (case.key, EvaluatorSpec.model_validate(case.evaluators))
        for case in cases
        if case.evaluators
    ]
    named = [("the suite's judge", spec.judge)]
    for key, tree in trees:
        where = f"case {key}, evaluator " if key else "evaluator "
        models = named_models(tree, all_kinds())
        named += [(f"{where}{model.path}", model.name) for model in models]
    known = set(LanguageModel.objects.values_list("slug", flat=True))
    gone = [f"{slug!r} ({where})" for where, slug in named if slug and slug not in known]
    if gone:
        raise CannotRestoreError(
            f"Version {number} cannot be restored: the language model {_some(gone)} no longer exists. Add "
            "it again under Language models with that short name, or download the version, name another "
            "and import it."
        )


def _put_files(suite: Suite, files: Mapping[str, str]) -> None:
    known = set(FileContent.objects.filter(pk__in=set(files.values())).values_list("pk", flat=True))
    if gone := [path for path, digest in files.items() if digest not in known]:
        raise CannotRestoreError(f"The version's files {_some(gone)} are no longer stored.")
    suite.files.exclude(path__in=files).delete()
    SuiteFile.objects.bulk_create(
        (SuiteFile(suite=suite, path=path, content_id=digest) for path, digest in files.items()),
        update_conflicts=True,
        unique_fields=["suite", "path"],
        update_fields=["content"],
    )


def _put_cases(suite: Suite, cases: Sequence[Case]) -> None:
    """Make these revisions, in this order, the only current ones."""
    wanted = among([case.pk for case in cases])
    # A key has one current revision at a time, so retire the old ones first.
    suite.cases.filter(is_current=True).exclude(pk__in=wanted).update(is_current=False)
    suite.cases.filter(is_current=False, pk__in=wanted).update(is_current=True)
    move_cases((n, case.pk) for n, case in enumerate(cases) if case.position != n)


def _record_change(
    suite: Suite,
    action: str,
    actor: User | None,
    before: tuple[int, VersionSpec],
    version: SuiteVersion,
) -> None:
    number, spec = before
    facts = change_facts(compare_specs(spec, version.spec))
    after = {"version": version.number, "note": version.note, **facts.after}
    record_change(
        suite, action, actor=actor, before={"version": number, **facts.before}, after=after
    )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more
