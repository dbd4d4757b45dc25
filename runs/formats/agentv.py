"""Suite files in YAML: the AgentEvals family, and the format Evalsite exports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from evaluators.scoring.policy import Policy
from evaluators.scoring.tree import Node
from runs.formats._cases import Defaults, read_cases
from runs.formats._cases_beside import folder_of, with_cases
from runs.formats._content import SuiteContent
from runs.formats._document import Document, named, read_document
from runs.formats._evaluators import read_evaluators
from runs.formats._fields import Fields
from runs.formats._model_places import model_places
from runs.formats._policy import read_policy
from runs.formats._problems import UnreadableFileError
from runs.formats._reading import Reading
from runs.formats._text import decoded as decoded
from runs.formats._text import refuse_size as refuse_size
from runs.formats._trees import check_composite, default_children, read_aggregator, root_of
from runs.formats._turns import read_shared
from runs.formats._writing import written
from runs.profiles import Profile, UnknownProfileError, profile_named

LABEL = "YAML suite file"
SUFFIXES = (".yaml", ".yml")
LONGEST_SLUG = 80
LONGEST_TITLE = 200
ALIASES = {
    "tests": ("cases", "evalcases", "eval_cases"),
    "evaluators": ("assertions", "assert"),
}


def read(
    content: bytes,
    *,
    file: str = "suite.yaml",
    files: Mapping[str, bytes] | None = None,
    profile: Profile | None = None,
) -> SuiteContent:
    """Return what a suite file says, and what a chosen profile says where the file says nothing.

    `file` is the path of the suite file and `files` holds the files around it by path; prompts it
    names are looked up beside it. Raises UnreadableFileError with every problem found.
    """
    return suite_of(read_document(decoded(content, file), file), files or {}, profile)


def suite_of(
    document: Document, files: Mapping[str, bytes], profile: Profile | None = None
) -> SuiteContent:
    """Return what the values of a suite file say; raises UnreadableFileError like read."""
    document, beside = with_cases(document, files)
    reading = Reading(document, files, folder_of(document.file))
    suite = Fields(reading, (), aliases=ALIASES, value=document.value)
    found = _suite(reading, suite, _stem(document.file), profile)
    if reading.problems:
        raise UnreadableFileError(reading.in_order())
    places = model_places(document, found.cases)
    return replace(found, read_with=beside, model_places=places)


def write(content: SuiteContent) -> bytes:
    """Return the suite file that reads back as this suite; the files it names go beside it."""
    return b"".join(written(content))


def write_parts(content: SuiteContent) -> Iterator[bytes]:
    """Yield the same file part by part, so that nobody waits for the last case of thousands."""
    return written(content)


def slug_of(name: str) -> str:
    """Return a name as it stands in addresses: small letters, digits and hyphens; a slug stays as it is."""
    if len(name) <= LONGEST_SLUG and re.fullmatch(r"[a-z0-9_]+(-+[a-z0-9_]+)*", name):
        return name
    return re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-")[:LONGEST_SLUG]


def _stem(file: str) -> str:
    """Return the name of a file without its endings, the family's usual `.eval.yaml` among them."""
    return re.sub(r"(?<=.)\.evals?\Z", "", PurePosixPath(file).stem, flags=re.IGNORECASE)


def _suite(reading: Reading, suite: Fields, stem: str, chosen: Profile | None) -> SuiteContent:
    name = suite.text("name") or stem
    title = suite.text("title") or name
    slug = slug_of(name)
    if not slug:
        said = "has no letter or digit an address could be made of; give the suite another name"
        suite.refuse("name", f"{name!r} {said}")
    if len(title) > LONGEST_TITLE:
        suite.refuse("title", f"the title is longer than {LONGEST_TITLE} characters; shorten it")
    children, rest = _evaluators(reading, suite)
    aggregator_key, options = suite.mapping("aggregator")
    aggregator = read_aggregator(reading, (aggregator_key,), options) if options else None
    profile = _profile(suite, chosen)
    usual = profile.evaluators if profile else default_children()
    root = root_of(children or usual, aggregator)
    check_composite(reading, (aggregator_key or "evaluators",), root)
    defaults = Defaults(root, not (children or profile), read_shared(suite))
    cases_key, items = _cases(suite)
    cases = read_cases(reading, (cases_key,), items, defaults)
    own = reading.kept.pop("", {})
    return SuiteContent(
        slug=slug,
        title=title,
        description=suite.text("description"),
        tags=suite.texts("tags"),
        judge=suite.text("judge"),
        policy=read_policy(reading, suite, profile.policy if profile else Policy()),
        root=root,
        cases=cases,
        metadata=suite.metadata(rest, {"evaluators": own} if own else {}),
        files=dict(sorted(reading.used_files.items())),
        warnings=tuple(sorted(reading.warnings, key=lambda one: (one.file, one.line))),
    )


def _profile(suite: Fields, chosen: Profile | None) -> Profile | None:
    """Return the profile the suite starts from: its policy and evaluators stand where it says nothing.

    The file's own line goes before the one that was chosen, as everything does that it writes.
    """
    key, _ = suite.peek("profile")
    name = suite.text("profile")
    try:
        own = profile_named(name) if name else None
    except UnknownProfileError as error:
        suite.refuse("profile", str(error))
        return None
    if own and chosen and own != chosen:
        said = f"the file starts from {own.name}, which goes before the chosen {chosen.name}"
        suite.warn(key, f"{said}; remove the line to start from {chosen.name}")
    return own or chosen


def _cases(suite: Fields) -> tuple[str, list[Any]]:
    """Return the list of cases with its key; what is no list of any is noted."""
    key, value = suite.take("tests")
    if isinstance(value, str):
        said = "names no cases; list them here, or name a file of them that ends in .yaml or .jsonl"
        suite.refuse(key, f"{value[:100]!r} {said}")
        return key, []
    if value is not None and not isinstance(value, list):
        suite.refuse(key, f"{named(value)} stands where a list of cases is expected")
        return key, []
    if not value:
        suite.refuse(key, "the suite has no cases; list them under tests")
    return key, value or []


def _evaluators(reading: Reading, suite: Fields) -> tuple[tuple[Node, ...], dict[str, Any]]:
    """Return the evaluators of the suite and what else its `execution` block holds."""
    execution_key, block = suite.mapping("execution")
    aliases = {"evaluators": ALIASES["evaluators"]}
    execution = Fields(reading, (execution_key,), aliases=aliases, value=block)
    found: tuple[Node, ...] = ()
    for fields in (suite, execution):
        key, items = fields.items("evaluators")
        if items and found:
            said = "evaluators stand at the top and under execution; keep one list"
            fields.refuse(key, said)
        found += read_evaluators(reading, fields.place(key), items, beside=found)
    key, rubrics = suite.items("rubrics")
    if rubrics:
        items = [{"type": "rubric", "rubrics": rubrics}]
        found += read_evaluators(reading, (key,), items, beside=found)
    execution.flag("skip_defaults")
    rest = execution.keep_rest()
    return found, {"execution": rest} if rest else {}
