"""What keeps a suite's tree and policy from being saved, every problem with its evaluator and field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from evaluators.kinds import (
    InvalidConfigError,
    UnknownKindError,
    all_kinds,
    kind_of,
    models_named,
    read_config,
)
from evaluators.kinds._files import text_of
from evaluators.kinds._script_files import placed
from evaluators.kinds.composite import prompt_file, runs_script
from evaluators.models import LanguageModel
from evaluators.scoring.tree import Node, validate, walk
from evaluators.scoring.types import DomainError
from runs.drafting import Content, check, tree_of
from runs.drafting.content import nodes_with_paths
from runs.models import FileContent, Suite
from runs.plan import tree_of_case

MOST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class DraftProblem:
    """One thing that is wrong: the path of the evaluator ("" for the whole), the field, and what is.

    `node` is the evaluator's id in a draft, "" outside of drafts.
    """

    path: str
    field: str
    message: str
    node: str = ""

    def __str__(self) -> str:
        """Return evaluator, field and message as one line."""
        owner = f"Evaluator {self.path}" if self.path else ""
        place = ", ".join(part for part in (owner, self.field) if part)
        return f"{place}: {self.message}" if place else self.message


class InvalidDraftError(DomainError):
    """A draft cannot be saved as it is; `problems` says everything that is in the way."""

    code = "invalid_draft"

    def __init__(self, problems: tuple[DraftProblem, ...]) -> None:
        """Say every problem on a line of its own."""
        self.problems = problems
        lines = [str(problem) for problem in problems[:MOST_SHOWN]]
        more = len(problems) - MOST_SHOWN
        super().__init__("\n".join([*lines, f"and {more} more"] if more > 0 else lines))


def problems_of(suite: Suite, content: Content) -> list[DraftProblem]:
    """Return what keeps the content from being what the suite is scored by, in the order of the tree.

    It is held to the rules of imports: the tree and its weights, the settings of every kind, the
    files they name among those of the suite, the language models, and the cases' own evaluators beside it.
    """
    try:
        check(content)
    except DomainError as error:
        return [DraftProblem("", "", str(error))]
    root = tree_of(content)
    files = _files(suite)
    models = set(LanguageModel.objects.values_list("slug", flat=True))
    ids = _ids(content)
    found = list(_judge_problems(str(content["judge"]), models))
    for path, node in walk(root):
        for field, message in _problems(path, node, files, models):
            found.append(DraftProblem(path, field, message, ids.get(path, "")))
    return [*found, *_case_problems(suite, root)]


def missing_model(slug: str) -> str:
    """Say that there is no language model of a slug, and what would help."""
    return f"there is no language model {slug!r}. Choose another, or add it under Language models first."


def _judge_problems(judge: str, models: set[str]) -> Iterator[DraftProblem]:
    if judge and judge not in models:
        yield DraftProblem("", "judge", missing_model(judge))


def _problems(
    path: str, node: Node, files: Mapping[str, bytes], models: set[str]
) -> Iterator[tuple[str, str]]:
    config = node.as_json()["config"]
    try:
        read_config(node.kind, config, evaluator=path or node.name, files=files)
    except InvalidConfigError as error:
        for refusal in error.refusals:
            yield refusal.setting, f"{refusal.reason.rstrip('.')}."
    except UnknownKindError as error:
        yield "kind", str(error)
    else:
        options = config.get("aggregator") or {}
        yield from _file_problems(node.kind, config, options, files)
        for _, field, slug in models_named(replace(node, children=()), all_kinds()):
            if slug not in models:
                yield field, missing_model(slug)


def _file_problems(
    kind: str, config: Mapping[str, Any], options: Mapping[str, Any], files: Mapping[str, bytes]
) -> Iterator[tuple[str, str]]:
    if kind_of(kind).uses_sandbox:
        yield from _script_problems(config, files)
    for part in config.get(kind_of(kind).programs_in) or ():
        if isinstance(part, Mapping) and part.get("type") == "script":
            found = _script_problems(part, files)
            yield from ((kind_of(kind).programs_in, said) for _, said in found)
    if runs_script(options):
        yield from _script_problems(options, files)
    if named := prompt_file(options):
        try:
            text_of(named, files)
        except ValueError as error:
            yield "aggregator.prompt", f"{error}."


def _script_problems(
    config: Mapping[str, object], files: Mapping[str, bytes]
) -> Iterator[tuple[str, str]]:
    try:
        found = placed(config, "", files)
    except ValueError as error:
        yield "script", f"{error}."
        return
    for name in found.missing:
        yield (
            "script",
            f"the file {name!r} is not among the files of the suite. Import it with the suite.",
        )
    for name in found.outside:
        yield "script", f"the file {name!r} lies outside of the suite's files."


def _files(suite: Suite) -> dict[str, bytes]:
    hashes = dict(suite.files.values_list("path", "content_id"))
    rows = FileContent.objects.filter(pk__in=set(hashes.values()))
    contents = {row.sha256: bytes(row.content) for row in rows}
    return {path: contents[digest] for path, digest in hashes.items()}


def _case_problems(suite: Suite, root: Node) -> Iterator[DraftProblem]:
    """Yield what the tree and the evaluators that cases add to it contradict each other in."""
    own = suite.cases.filter(is_current=True, evaluators__isnull=False, evaluators_append=True)
    for key, evaluators in own.order_by("position").values_list("key", "evaluators"):
        try:
            validate(tree_of_case(root, evaluators, append=True))
        except DomainError as error:
            said = f"with the evaluators of its own that case {key} has: {error}."
            yield DraftProblem("", "", said)


def _ids(content: Content) -> dict[str, str]:
    """Return by path the ids of a draft's evaluators."""
    found = nodes_with_paths(content["evaluators"])
    return {path: str(node.get("id", "")) for path, node in found}
