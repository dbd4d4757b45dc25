"""A suite file becomes a suite, or the next version of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from evaluators.models import Evaluator, LanguageModel
from runs.formats import CaseContent, SuiteContent
from runs.imports._agents import unfit_agents
from runs.imports._models import UnknownJudgeError, judge_of, missing_models
from runs.imports.case_columns import columns_of
from runs.models import Case, FileContent, Suite, SuiteFile
from runs.plan import content_hash
from runs.versions import current_version, is_version, next_version, put_parts, write_down

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
    Raises UnknownJudgeError for a language model that is not set up here and a target that cannot judge.
    """
    if problems := (*missing_models(content, judge=judge), *unfit_agents(content)):
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
        before = None if is_new else current_version(suite)
        _store_files(suite, content.files)
        kept = _kept(suite, content, _store_cases(suite, content.cases))
        said = ""
        if before is None or not is_version(before, kept):
            version = next_version(suite, kept, author=imported_by, note=note)
            said, old = version.note, {"version": before.number} if before else None
            new = {"version": version.number, "note": said}
            write_down(suite, "import", actor=imported_by, before=old, after=new)
    return Imported(suite, before.number if before else None, said, len(content.cases))


def _suite(
    slug: str, content: SuiteContent, chosen: Mapping[str, LanguageModel | None]
) -> tuple[Suite, bool]:
    """Return the suite with the content's own columns, those chosen and the tree, and whether it is new."""
    columns: dict[str, Any] = {
        "title": content.title,
        "description": content.description,
        "tags": list(content.tags),
        "archived_at": None,
        **chosen,
    }
    found = Suite.objects.select_for_update(of=("self",)).filter(slug=slug).first()
    if found is None:
        root = Evaluator.objects.plant(content.root)
        policy = content.policy.as_json()
        return Suite.objects.create(slug=slug, root=root, **columns, **policy), True
    put_parts(found, content.policy, content.root, columns)
    return found, False


def _kept(suite: Suite, content: SuiteContent, cases: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the version keeps: everything but the cases' own texts."""
    return {
        "title": content.title,
        "description": content.description,
        "tags": list(content.tags),
        "judge": suite.judge.slug if suite.judge else "",
        "metadata": dict(content.metadata),
        "policy": content.policy.as_json(),
        "evaluators": content.root.as_json(),
        "files": dict(suite.files.order_by("path").values_list("path", "content_id")),
        "cases": cases,
    }


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
        columns = columns_of(content)
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
