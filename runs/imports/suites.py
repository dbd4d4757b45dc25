"""A suite file becomes a suite, or the next version of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from evaluators.models import AuditEntry, Evaluator, LanguageModel
from evaluators.scoring.policy import Policy
from runs.formats import CaseContent, SuiteContent
from runs.imports._models import UnknownJudgeError, judge_of, missing_models
from runs.imports._versions import described, note_of
from runs.models import Case, FileContent, Suite, SuiteFile, SuiteVersion
from runs.plan import content_hash

LONGEST_NOTE = 300
BATCH = 1_000


@dataclass(frozen=True, slots=True)
class Imported:
    """What came of one suite: it is new without a version before, and unchanged without a note."""

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
    content: SuiteContent,
    *,
    imported_by: User | None,
    slug: str | None = None,
    judge: str | None = None,
    note: str = "",
) -> Suite:
    """Create the suite, or make the one of that slug the same as the content, and return it.

    A case whose content changed gets a new revision, one that is gone is no longer current, and the
    suite gets a new version if anything at all changed. `slug` and `judge` go before the content's own;
    where neither names a judge the suite keeps the one it has, and a `judge` of "" takes it away.
    Raises UnknownJudgeError for a language model that is not set up here.
    """
    if problems := tuple(missing_models(content, judge=judge)):
        raise UnknownJudgeError(problems)
    return import_content(content, imported_by=imported_by, slug=slug, judge=judge, note=note).suite


def import_content(
    content: SuiteContent,
    *,
    imported_by: User | None,
    slug: str | None = None,
    judge: str | None = None,
    note: str = "",
) -> Imported:
    """Do what import_suite does for a suite whose models are known, and return what came of it."""
    wanted = judge if judge is not None else content.judge or None
    columns = {} if wanted is None else {"judge": judge_of(wanted)}
    with transaction.atomic():
        suite, is_new = _suite(slug or content.slug, content, columns)
        before = None if is_new else suite.versions.filter(number=suite.version).first()
        _store_files(suite, content.files)
        cases = _store_cases(suite, content.cases)
        kept = described(suite, content, cases)
        digest, said = content_hash(kept), ""
        if before is None or before.content_hash != digest:
            suite.version = 1 if before is None else suite.version + 1
            suite.save(update_fields=["version", "updated_at"])
            said = note or note_of(before.content if before else None, kept)
            SuiteVersion.objects.create(
                suite=suite,
                number=suite.version,
                note=said[:LONGEST_NOTE],
                author=imported_by,
                content_hash=digest,
                content=kept,
            )
            _audit(imported_by, "import", suite, before, said)
    return Imported(suite, before.number if before else None, said, len(cases))


def _suite(
    slug: str, content: SuiteContent, chosen: Mapping[str, LanguageModel | None]
) -> tuple[Suite, bool]:
    """Return the suite with the content's own columns, those chosen and the tree, and whether it is new."""
    policy = {column.name: getattr(content.policy, column.name) for column in fields(Policy)}
    columns: dict[str, Any] = {
        "title": content.title,
        "description": content.description,
        "tags": list(content.tags),
        "archived_at": None,
        **policy,
        **chosen,
    }
    found = Suite.objects.select_for_update(of=("self",)).filter(slug=slug).first()
    if found is None:
        root = Evaluator.objects.plant(content.root)
        return Suite.objects.create(slug=slug, root=root, **columns), True
    for name, value in columns.items():
        setattr(found, name, value)
    found.save()
    if Evaluator.objects.tree(found.root) != content.root:
        Evaluator.objects.replant(found.root, content.root)
    return found, False


def _store_files(suite: Suite, files: Mapping[str, bytes]) -> None:
    hashes = dict(zip(files, FileContent.objects.store(files.values()), strict=True))
    suite.files.exclude(path__in=files).delete()
    SuiteFile.objects.bulk_create(
        (SuiteFile(suite=suite, path=path, content_id=digest) for path, digest in hashes.items()),
        update_conflicts=True,
        unique_fields=["suite", "path"],
        update_fields=["content"],
    )


def _store_cases(suite: Suite, cases: tuple[CaseContent, ...]) -> list[dict[str, Any]]:
    """Store what changed and return key, revision and hash of every case, in order."""
    current = {case.key: case for case in _light(suite).filter(is_current=True)}
    latest = _latest_revisions(suite)
    new: list[Case] = []
    moved: list[Case] = []
    stored: list[dict[str, Any]] = []
    for position, content in enumerate(cases):
        columns = _columns(content)
        digest = content_hash(columns)
        old = current.get(content.key)
        if old is not None and old.content_hash == digest:
            if old.position != position:
                old.position = position
                moved.append(old)
            del current[content.key]
            revision = old.revision
        else:
            revision = latest.get(content.key, 0) + 1
            made = Case(suite=suite, key=content.key, revision=revision, position=position)
            for name, value in {**columns, "content_hash": digest}.items():
                setattr(made, name, value)
            new.append(made)
        stored.append({"key": content.key, "revision": revision, "hash": digest})
    _retire(suite, [case.pk for case in current.values()])
    Case.objects.bulk_update(moved, ["position"], batch_size=BATCH)
    Case.objects.bulk_create(new, batch_size=BATCH)
    return stored


def _light(suite: Suite) -> Any:
    return suite.cases.only("id", "key", "revision", "position", "content_hash", "is_current")


def _latest_revisions(suite: Suite) -> dict[str, int]:
    return dict(suite.cases.order_by("revision").values_list("key", "revision"))


def _retire(suite: Suite, keys: list[int]) -> None:
    for start in range(0, len(keys), BATCH):
        suite.cases.filter(pk__in=keys[start : start + BATCH]).update(is_current=False)


def _columns(case: CaseContent) -> dict[str, Any]:
    return {
        "title": case.title,
        "tags": list(case.tags),
        "input": [dict(turn) for turn in case.input],
        "expected_output": case.expected_output,
        "expected_outcomes": list(case.expected_outcomes),
        "criteria": case.criteria,
        "metadata": dict(case.metadata),
        "evaluators": case.evaluators.as_json() if case.evaluators else None,
        "evaluators_append": case.evaluators_append,
        "recorded_output": None if case.recorded_output is None else dict(case.recorded_output),
    }


def _audit(
    actor: User | None, action: str, suite: Suite, before: SuiteVersion | None, note: str
) -> None:
    AuditEntry.objects.create(
        actor=actor,
        actor_name=actor.get_username() if actor else "",
        action=action,
        object_type="suite",
        object_id=str(suite.pk),
        object_name=suite.slug,
        before={"version": before.number} if before else None,
        after={"version": suite.version, "note": note},
    )
