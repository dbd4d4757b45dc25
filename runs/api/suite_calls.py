"""The calls that change suites: their file, their cases, their baseline."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from io import BytesIO
from typing import IO, Annotated, Any

from django.db import transaction
from django.shortcuts import get_object_or_404
from pydantic import Field, WithJsonSchema
from rest_framework.parsers import BaseParser
from rest_framework.request import Request

from evaluators.models import AuditEntry
from evaluators.scoring.tree import EvaluatorSpec
from evaluators.scoring.types import DomainError
from runs.api.bodies import (
    MAX_KEYS,
    Body,
    Key,
    UnusableBodyError,
    pointer,
    read_stream,
)
from runs.api.params import get_run
from runs.api.safe_changes import IF_MATCH, check_unchanged
from runs.api.schema import KEY, SLUG, writes
from runs.cases.checks import InvalidCaseError
from runs.cases.services import current_case, put_cases, remove_case
from runs.documents import Document
from runs.files.importing import check_slug, import_suites
from runs.formats.bundles import read_uploads
from runs.formats.finding import FoundSuites, read_suites
from runs.formats.prompt_programs import run_no_program
from runs.models.suites import Suite
from runs.requests import RUN_SCRIPTS
from runs.scripts import prompt_programs
from runs.specs.problems import Problem, UnreadableFileError
from runs.specs.suites import CaseSpec
from runs.suites.services import drop_baseline, lock_suite, make_baseline

MAY_CHANGE = "runs.change_suite"
MAX_PROBLEMS = 100


ZIP = b"PK\x03\x04"


class YamlSuiteParser(BaseParser):
    """Reads a suite file as YAML; as it is, because its problems have places in it."""

    media_type = "application/yaml"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Any = None
    ) -> Any:
        """Return the file; raises BodyTooLarge."""
        return read_stream(stream)


class ZipSuiteParser(YamlSuiteParser):
    """Reads a zip of a suite file with the files it refers to."""

    media_type = "application/zip"


class JsonSuiteParser(YamlSuiteParser):
    """Reads a suite file as JSON, which is YAML but for a few characters in its texts."""

    media_type = "application/json"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Any = None
    ) -> Any:
        """Return the file with these characters as YAML has them, on the same lines; raises BodyTooLarge."""
        content = read_stream(stream)
        try:
            return NOT_YAML.sub(_as_yaml, content.decode()).encode()
        except UnicodeDecodeError:
            return content


# Characters that JSON escapes in two halves, and those that YAML refuses or takes for the end of a line.
NOT_YAML = re.compile(
    r"\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|\\.|[\x7f-\x9f\u2028\u2029\ufffe\uffff]",
    re.I | re.S,
)


def _as_yaml(found: re.Match[str]) -> str:
    if found[1]:
        return bytes.fromhex(found[1] + found[2]).decode("utf-16-be")
    return found[0] if found[0].startswith("\\") else f"\\u{ord(found[0]):04x}"


PARSERS = (JsonSuiteParser, YamlSuiteParser, ZipSuiteParser)


class StoredSuiteDoc(Document):
    """The suite that a file became."""

    slug: str
    """The short name of the suite."""
    version: int
    """The version that the suite is at now."""
    version_before: int | None
    """The version it was at before; null for a new suite."""
    note: str
    """What changed; "" if nothing did."""
    cases: int
    """How many cases it has."""
    warnings: list[str]
    """Notes on what the file contains but Evalsite does not use."""


class CheckedSuiteDoc(Document):
    """A suite file that could be stored."""

    slug: str
    """The short name that the file gives."""
    cases: int
    """How many cases it has."""
    evaluators: int
    """How many evaluators it has, groups included."""
    warnings: list[str]
    """Notes on what the file contains but Evalsite does not use."""


@writes("Check a suite file", CheckedSuiteDoc, parsers=PARSERS, tag="suites")
def check_suite(request: Request) -> CheckedSuiteDoc:
    """Read a suite file and store nothing; every problem has its place in the file."""
    found = _read(request)
    [suite] = found.suites
    return CheckedSuiteDoc(
        slug=suite.content.slug,
        cases=len(suite.content.cases),
        evaluators=sum(1 for _ in _nodes(suite.content.evaluators)) - 1,
        warnings=[str(note) for note in (*suite.content.warnings, *found.notes)],
    )


@writes(
    "Create a suite",
    StoredSuiteDoc,
    parsers=PARSERS,
    permission=MAY_CHANGE,
    tag="suites",
    status=201,
)
def create_suite(request: Request) -> StoredSuiteDoc:
    """Create a suite from a suite file: JSON, YAML, or a zip with the files it refers to."""
    return _store(request, None)


@writes(
    "Store a suite",
    StoredSuiteDoc,
    parsers=PARSERS,
    permission=MAY_CHANGE,
    path=[SLUG, IF_MATCH],
    tag="suites",
    method="PUT",
)
def put_suite(request: Request, slug: str) -> StoredSuiteDoc:
    """Create the suite of this short name from a suite file, or make the file its next version."""
    return _store(request, slug)


class CaseFieldsBody(Body):
    """The content of a case."""

    input: str | Annotated[tuple[dict[str, Any], ...], Field(min_length=1)]
    """The text to the target, or messages with role and content."""
    title: str = ""
    """Its title."""
    tags: tuple[str, ...] = ()
    """Its tags."""
    expected_output: str = ""
    """A good answer; empty without one."""
    expected_outcomes: tuple[str, ...] = ()
    """What a good answer must achieve, one by one."""
    criteria: str = ""
    """How to judge the answer; empty without any."""
    metadata: dict[str, Any] = {}
    """Its metadata."""
    evaluators: Annotated[EvaluatorSpec, WithJsonSchema({"type": "object"})] | None = None
    """Its own evaluators, as a tree; null without."""
    evaluators_append: bool = False
    """Whether its own evaluators join the suite's instead of replacing them."""
    recorded_output: dict[str, Any] | None = None
    """The answer a recorded target gives; null without one."""

    def case(self, key: str) -> CaseSpec:
        """Return the case with this key."""
        values = {name: getattr(self, name) for name in CaseFieldsBody.model_fields}
        if isinstance(self.input, str):
            values["input"] = ({"role": "user", "content": self.input},)
        return CaseSpec(key=key, **values)


class CaseBody(CaseFieldsBody):
    """A case with its key."""

    key: Key
    """Its key, unique in the suite."""


class PutCasesBody(Body):
    """Cases to add or change."""

    cases: Annotated[tuple[CaseBody, ...], Field(min_length=1, max_length=MAX_KEYS)]
    """The cases; one with the key of a case that the suite has replaces it."""
    note: Annotated[str, Field(max_length=300)] = ""
    """A note for the version; with one, the change gets a version of its own."""


class StoredCasesDoc(Document):
    """How many cases were added or changed."""

    added: int
    """How many are new."""
    changed: int
    """How many got a new revision."""
    unchanged: int
    """How many were as they are already."""
    version: int
    """The version that the suite is at now."""


@writes(
    "Add or change cases",
    StoredCasesDoc,
    body=PutCasesBody,
    permission=MAY_CHANGE,
    path=[SLUG, IF_MATCH],
    tag="suites",
)
def put_suite_cases(request: Request, body: PutCasesBody, slug: str) -> StoredCasesDoc:
    """Add each case, or change the case with its key: all of them, or none; the others stay."""
    suite = get_object_or_404(Suite, slug=slug)
    with transaction.atomic():
        _check_version(request, suite)
        cases = [one.case(one.key) for one in body.cases]
        try:
            done = put_cases(suite, cases, by=_member(request), note=body.note)
        except InvalidCaseError as error:
            by_key = {case.key: pointer("cases", place) for place, case in enumerate(cases)}
            raise _unusable(error, by_key) from None
    return StoredCasesDoc.model_validate(done)


@writes(
    "Store a case",
    StoredCasesDoc,
    body=CaseFieldsBody,
    permission=MAY_CHANGE,
    path=[SLUG, KEY, IF_MATCH],
    tag="suites",
    method="PUT",
)
def put_suite_case(request: Request, body: CaseFieldsBody, slug: str, key: str) -> StoredCasesDoc:
    """Add the case of this key, or make this its next revision."""
    suite = get_object_or_404(Suite, slug=slug)
    with transaction.atomic():
        _check_revision(request, lock_suite(suite), key)
        try:
            done = put_cases(suite, [body.case(key)], by=_member(request))
        except InvalidCaseError as error:
            raise _unusable(error, {key: ""}) from None
    return StoredCasesDoc.model_validate(done)


@writes(
    "Delete a case",
    None,
    permission=MAY_CHANGE,
    path=[SLUG, KEY, IF_MATCH],
    tag="suites",
    method="DELETE",
    status=204,
)
def delete_suite_case(request: Request, slug: str, key: str) -> None:
    """Delete a case from the suite; runs and versions keep its revisions."""
    suite = get_object_or_404(Suite, slug=slug)
    with transaction.atomic():
        now = current_case(lock_suite(suite), key)
        _check_revision(request, suite, key)
        remove_case(suite, key, base_revision=now.revision if now else None, by=_member(request))


class BaselineBody(Body):
    """The run that others are compared with."""

    run: str | None
    """Its id, or suite:number; null for none."""


class BaselineDoc(Document):
    """The baseline of a suite."""

    run: str | None
    """The run, as suite:number; null without one."""


@writes(
    "Set the baseline",
    BaselineDoc,
    body=BaselineBody,
    permission=MAY_CHANGE,
    path=[SLUG],
    tag="suites",
    method="PUT",
)
def put_baseline(request: Request, body: BaselineBody, slug: str) -> BaselineDoc:
    """Make a completed run the baseline that the suite's runs are compared with, or none."""
    suite = get_object_or_404(Suite.objects.select_related("baseline_run"), slug=slug)
    if body.run is None:
        if suite.baseline_run is not None:
            drop_baseline(suite.baseline_run, by=_member(request))
        return BaselineDoc(run=None)
    run = get_run(body.run)
    if run.suite_id != suite.pk:
        raise UnusableBodyError({pointer("run"): [f"{slug} has no run {body.run!r}."]})
    make_baseline(run, by=_member(request))
    return BaselineDoc(run=f"{slug}:{run.number}")


def _member(request: Request) -> Any:
    return request.user


def _nodes(root: EvaluatorSpec) -> Iterable[EvaluatorSpec]:
    yield root
    for child in root.children:
        yield from _nodes(child)


def _read(request: Request) -> FoundSuites:
    """Return the one suite of a body; raises UnusableBodyError with every problem by its place."""
    content: Any = request.data
    if not isinstance(content, bytes):
        raise UnusableBodyError({"": ["There is no suite file in the body."]})
    grant: Any = request.auth
    # Any token may check a file, but a program of the file does more than a token without the scope may do.
    may_run = grant is None or grant.allows(RUN_SCRIPTS)
    run = prompt_programs(_member(request)) if may_run else run_no_program
    # JSON is YAML.
    name = "suite.zip" if content.startswith(ZIP) else "suite.yaml"
    try:
        found = read_suites(read_uploads([(name, BytesIO(content))]), run=run)
    except UnreadableFileError as error:
        raise UnusableBodyError(_by_place(error.problems)) from None
    if len(found.suites) != 1:
        paths = ", ".join(suite.path for suite in found.suites)
        raise UnusableBodyError({"": [f"It has {len(found.suites)} suites, {paths}. Send one."]})
    return found


def _by_place(problems: Iterable[Problem]) -> dict[str, list[str]]:
    """Return problems by the JSON pointers of their keys: evaluators[0].weight is /evaluators/0/weight."""
    errors: dict[str, list[str]] = {}
    for problem in tuple(problems)[:MAX_PROBLEMS]:
        place = pointer(*(part for part in re.split(r"[.\[\]]+", problem.key) if part))
        errors.setdefault(place, []).append(str(problem))
    return errors


def _store(request: Request, slug: str | None) -> StoredSuiteDoc:
    found = _read(request)
    [file] = found.suites
    if slug is not None:
        check_slug(slug)
    with transaction.atomic():
        stored = Suite.objects.filter(slug=slug).first()
        if stored is not None:
            _check_version(request, stored)
        elif slug is not None:
            check_unchanged(request, "", lambda: f"There is no suite “{slug}”")
        try:
            [done] = import_suites(
                found.suites,
                imported_by=_member(request),
                slug=slug or file.content.slug,
                is_new=slug is None,
            )
        except DomainError as error:
            if problems := getattr(error, "problems", ()):
                raise UnusableBodyError(_by_place(problems)) from None
            raise
    warnings = (*file.content.warnings, *found.notes, *done.notes)
    return StoredSuiteDoc(
        slug=done.imported.suite.slug,
        version=done.imported.suite.version,
        version_before=done.imported.version_before,
        note=done.imported.note,
        cases=done.imported.cases,
        warnings=[str(warning) for warning in warnings],
    )


def _check_version(request: Request, suite: Suite) -> None:
    """Lock a suite, and raise PreconditionFailed naming who changed it if it is at another version."""
    held = lock_suite(suite)

    def describe() -> str:
        version = held.versions.select_related("author").get(number=held.version)
        who = version.author.get_username() if version.author else "Somebody"
        at = f"{version.created_at:%Y-%m-%d %H:%M} UTC"
        return f"{who} saved version {held.version} of “{held.slug}” at {at} ({version.note})"

    check_unchanged(request, str(held.version), describe)


def _check_revision(request: Request, suite: Suite, key: str) -> None:
    """Raise PreconditionFailed naming who changed a case of a locked suite if it is at another revision."""
    now = current_case(suite, key)

    def describe() -> str:
        if now is None:
            return f"The case {key} does not exist"
        # The change that made a revision is the first in the audit from then on: the suite was locked.
        changes = AuditEntry.objects.filter(object_type="suite", object_id=str(suite.pk))
        change = changes.filter(at__gte=now.created_at).order_by("at", "id").first()
        who = change.actor_name if change else "Somebody"
        return f"{who} saved revision {now.revision} of the case {key}"

    check_unchanged(request, str(now.revision) if now else "", describe)


def _unusable(error: InvalidCaseError, by_key: Mapping[str, str]) -> UnusableBodyError:
    """Return the problems of cases by their places; `by_key` are the pointers to the cases."""
    return UnusableBodyError(
        {
            f"{by_key[key]}{pointer(field)}": list(messages)
            for key, fields in error.problems.items()
            for field, messages in fields.items()
        }
    )
