"""A person's draft of a suite: begin, change, check, discard it, and save it as the next version.

Problems keep a draft from being saved; warnings only tell what is odd about its evaluators.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from evaluators.kinds import all_kinds, get_kind, read_config
from evaluators.kinds._judging import named_models
from evaluators.kinds._prompts import literal_variable, reference_text
from evaluators.kinds._refusals import InvalidConfigError, UnknownKindError
from evaluators.kinds.composite import prompt_file, runs_script
from evaluators.kinds.hybrid_judge.opinions import TwoFinalScoresError, check_final_score
from evaluators.kinds.script.program import locate_script
from evaluators.models import LanguageModel
from evaluators.scoring.numbers import format_weight
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import ROOT_PATH, Aggregator, EvaluatorSpec, below, validate, walk
from evaluators.scoring.types import DomainError
from runs.engine.plan import case_tree, judge_models
from runs.models.suites import Suite, SuiteDraft, SuiteVersion
from runs.specs.suites import SuiteSpec
from runs.suites.differences import (
    DifferingValue,
    change_facts,
    compare_specs,
    differing_values,
    merge_draft,
)
from runs.suites.edits import Content, Operation, begin_draft, change, check, nodes_with_paths
from runs.suites.files import suite_files
from runs.suites.services import (
    lock_editable_suite,
    lock_suite,
    next_version,
    record_change,
    version_spec,
)

MAX_SHOWN = 20


@dataclass(frozen=True, slots=True)
class DraftProblem:
    """One problem: the path of the evaluator ("" for the whole suite), the field and the message.

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
    """A draft cannot be saved as it is; `problems` lists every reason."""

    code = "invalid_draft"

    def __init__(self, problems: tuple[DraftProblem, ...]) -> None:
        """Put each problem on its own line."""
        self.problems = problems
        lines = [str(problem) for problem in problems[:MAX_SHOWN]]
        more = len(problems) - MAX_SHOWN
        super().__init__("\n".join([*lines, f"and {more} more"] if more > 0 else lines))


def find_problems(suite: Suite, content: Content) -> list[DraftProblem]:
    """Return what keeps the content from becoming a version, in the order of the tree.

    The rules are those of imports: the tree and its weights, the settings of every kind, the suite's
    files that these name, the language models, and the tree together with the cases' own evaluators.
    """
    try:
        check(content)
    except DomainError as error:
        return [DraftProblem("", "", str(error))]
    spec = SuiteSpec.model_validate(content)
    root = spec.evaluators
    files = suite_files(suite)
    models = set(LanguageModel.objects.values_list("slug", flat=True))
    ids = _ids(content)
    problems = list(_judge_problems(spec.judge, models))
    try:
        check_final_score(root, spec.policy)
    except TwoFinalScoresError as error:
        problems.append(DraftProblem("", "final_score", f"{error}."))
    for path, node in walk(root):
        for field, message in _problems(path, node, files, models):
            problems.append(DraftProblem(path, field, message, ids.get(path, "")))
    return [*problems, *_case_problems(suite, root)]


def missing_model(slug: str) -> str:
    """Return the message for a slug that no language model has."""
    return f"there is no language model {slug!r}. Choose another, or add it under Language models first."


def _judge_problems(judge: str, models: set[str]) -> Iterator[DraftProblem]:
    if judge and judge not in models:
        yield DraftProblem("", "judge", missing_model(judge))


def _problems(
    path: str, node: EvaluatorSpec, files: Mapping[str, bytes], models: set[str]
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
        for model in named_models(node.replace(children=()), all_kinds()):
            if model.name not in models:
                yield model.setting, missing_model(model.name)


def _file_problems(
    kind: str, config: Mapping[str, Any], options: Mapping[str, Any], files: Mapping[str, bytes]
) -> Iterator[tuple[str, str]]:
    if get_kind(kind).uses_sandbox:
        yield from _script_problems(config, files)
    for part in config.get(get_kind(kind).programs_in) or ():
        if isinstance(part, Mapping) and part.get("type") == "script":
            problems = _script_problems(part, files)
            yield from ((get_kind(kind).programs_in, message) for _, message in problems)
    if runs_script(options):
        yield from _script_problems(options, files)
    if named := prompt_file(options):
        try:
            reference_text(named, files)
        except ValueError as error:
            yield "aggregator.prompt", f"{error}."


def _script_problems(
    config: Mapping[str, object], files: Mapping[str, bytes]
) -> Iterator[tuple[str, str]]:
    try:
        script = locate_script(config, "", files)
    except ValueError as error:
        yield "script", f"{error}."
        return
    for name in script.missing:
        yield (
            "script",
            f"the file {name!r} is not among the files of the suite. Import it with the suite.",
        )
    for name in script.outside:
        yield "script", f"the file {name!r} lies outside of the suite's files."


def _case_problems(suite: Suite, root: EvaluatorSpec) -> Iterator[DraftProblem]:
    """Yield conflicts between the tree and the evaluators that cases add to it."""
    own = suite.cases.filter(is_current=True, evaluators__isnull=False, evaluators_append=True)
    for key, evaluators in own.order_by("position").values_list("key", "evaluators"):
        try:
            validate(case_tree(root, evaluators, append=True))
        except DomainError as error:
            message = f"together with the own evaluators of case {key}: {error}."
            yield DraftProblem("", "", message)


def _ids(content: Content) -> dict[str, str]:
    """Return the ids of a draft's evaluators by path."""
    nodes = nodes_with_paths(content["evaluators"])
    return {path: str(node.get("id", "")) for path, node in nodes}


# A form still finds its draft when up to this many versions were saved after its page was opened.
MAX_VERSIONS_BACK = 20
CHANGED = (
    "Your draft or the suite has changed since this page was opened, perhaps in another tab. "
    "Nothing on this form was saved. Open the page again and make the change there."
)


class DraftChangedError(DomainError):
    """The draft a form was made for has since been changed, saved or discarded."""

    code = "draft_changed"


def get_draft(suite: Suite, author: User) -> SuiteDraft:
    """Return the person's draft of the suite; without one, an unstored draft of the suite as it is now."""
    draft = SuiteDraft.objects.filter(suite=suite, author=author).first()
    return draft or _begun(suite, author)


def draft_for(suite: Suite, author: User, stamp: str) -> SuiteDraft:
    """Return the draft that a form was made for.

    That is the person's draft. If none is stored and others saved since the page was opened, it is a draft
    of the version the page showed, so that the person's input is kept and shown as a conflict with theirs.
    """
    draft = get_draft(suite, author)
    if not stamp or is_stored(draft) or draft.stamp == stamp:
        return draft
    earlier = suite.versions.filter(number__lt=suite.version).order_by("-number")
    for version in earlier.only("suite", "number", "content")[:MAX_VERSIONS_BACK]:
        earlier_draft = SuiteDraft(
            suite=suite,
            author=author,
            base_version=version.number,
            content=begin_draft(version.spec),
        )
        if earlier_draft.stamp == stamp:
            return earlier_draft
    return draft


def is_stored(draft: SuiteDraft) -> bool:
    """Tell whether the draft is stored, which the first change does."""
    return not draft._state.adding


def change_draft(draft: SuiteDraft, stamp: str, *operations: Operation) -> SuiteDraft:
    """Make all the changes or none, and return the changed draft; the first change stores it.

    `stamp` is that of the draft the form was made for. Raises DraftChangedError when the draft has
    changed since, and the errors of `runs.suites.edits.change`; the draft then stays as it was.
    """
    with transaction.atomic():
        held = lock_draft(draft, stamp)
        content = change(held.content, *operations)
        if content != held.content:
            _refuse_repeated_form(held, content)
            held.content = content
            held.revision += 1
            held.save()
    return held


def discard_draft(draft: SuiteDraft, stamp: str) -> None:
    """Delete the draft; the suite stays as it is. Raises DraftChangedError."""
    with transaction.atomic():
        held = lock_draft(draft, stamp)
        if is_stored(held):
            held.delete()


def lock_draft(draft: SuiteDraft, stamp: str) -> SuiteDraft:
    """Return the stored draft, locked until the transaction ends; raises DraftChangedError.

    For a draft that is not stored the suite's row is locked: nobody can store one or change the suite.
    """
    if is_stored(draft):
        held = (
            SuiteDraft.objects.select_for_update(of=("self",), no_key=True)
            .filter(pk=draft.pk)
            .first()
        )
        if held is None:
            raise DraftChangedError(
                "This draft has since been saved or discarded in another tab. Open the page again."
            )
    else:
        held = draft_for(lock_suite(draft.suite), draft.author, draft.stamp)
    if held.stamp != stamp:
        raise DraftChangedError(CHANGED)
    return held


def _refuse_repeated_form(draft: SuiteDraft, content: Content) -> None:
    """Refuse to begin a draft of an earlier version that equals the suite: its form was sent twice."""
    if is_stored(draft) or draft.base_version == draft.suite.version:
        return
    if SuiteSpec.model_validate(content) == draft.suite.spec:
        raise DraftChangedError(CHANGED)


def _begun(suite: Suite, author: User) -> SuiteDraft:
    content = begin_draft(suite.spec)
    return SuiteDraft(suite=suite, author=author, base_version=suite.version, content=content)


class NothingToSaveError(DomainError):
    """A draft equals the suite."""

    code = "nothing_to_save"


@dataclass(frozen=True, slots=True)
class Conflict:
    """A draft and what others saved since the version it is based on.

    `theirs` are their versions that change more than cases, newest first. `version` is the suite's
    version now; `values` are the draft's values that differ from it.
    """

    draft: SuiteDraft
    base: SuiteVersion | None
    theirs: Sequence[SuiteVersion]
    version: int
    values: Sequence[DifferingValue]

    @property
    def open(self) -> tuple[DifferingValue, ...]:
        """Return the values that need a decision."""
        return tuple(value for value in self.values if value.is_open)


class DraftConflictError(DomainError):
    """A draft cannot be saved because the suite changed since; `conflict` holds both. Nothing is lost."""

    code = "draft_conflict"

    def __init__(self, conflict: Conflict) -> None:
        """Name who changed the suite, and say what to do."""
        self.conflict = conflict
        latest = conflict.theirs[0] if conflict.theirs else None
        author = latest.author.get_username() if latest and latest.author else "Another member"
        super().__init__(
            f"{author} saved version {conflict.version} while you were editing version "
            f"{conflict.draft.base_version}. Your draft is kept. Choose which changes to keep."
        )


def save_draft(draft: SuiteDraft, stamp: str, *, note: str = "") -> SuiteVersion:
    """Save the draft as the next version of its suite, delete the draft and return the version.

    Without a note the version says what changed. Raises DraftConflictError when others changed more
    than cases since, InvalidDraftError with every problem, NothingToSaveError, SuiteArchivedError and
    DraftChangedError. After any error suite and draft are as they were.
    """
    with transaction.atomic():
        suite = lock_editable_suite(draft.suite)
        held = lock_draft(draft, stamp)
        held.suite = suite
        if is_stored(held) and (conflict := find_conflict(held)):
            raise DraftConflictError(conflict)
        if not is_stored(held) or SuiteSpec.model_validate(held.content) == suite.spec:
            raise NothingToSaveError(
                f"Your draft is the same as version {suite.version}; there is nothing to save."
            )
        if problems := find_problems(suite, held.content):
            raise InvalidDraftError(tuple(problems))
        version = _store(suite, held, note)
        if is_stored(held):
            held.delete()
    draft.suite.version = version.number
    return version


def find_conflict(draft: SuiteDraft) -> Conflict | None:
    """Return the conflict that keeps the draft from being saved; None without one."""
    suite = draft.suite
    if draft.base_version == suite.version:
        return None
    base = suite.versions.filter(number=draft.base_version).first()
    now = suite.spec
    before = base.spec.plain() if base else now
    if before == now:
        return None
    return Conflict(
        draft=draft,
        base=base,
        theirs=_theirs(suite, draft.base_version, before),
        version=suite.version,
        values=differing_values(before, now, SuiteSpec.model_validate(draft.content)),
    )


def rebase_draft(
    draft: SuiteDraft, stamp: str, *, version: int, choices: Mapping[str, str]
) -> SuiteDraft:
    """Bring a draft up to the suite's version: the changes of both sides, and the chosen one where both changed.

    `version` is the one the choices were made against; `choices` has "mine" or "theirs" for the key
    of every open value. Only the draft changes. Raises DraftChangedError when the suite changed
    again, UndecidedError, and TreeError or ScoreOutOfRangeError when the choices do not fit together.
    """
    with transaction.atomic():
        suite = lock_suite(draft.suite)
        held = lock_draft(draft, stamp)
        held.suite = suite
        if suite.version != version:
            raise DraftChangedError(
                f"Version {suite.version} was saved while you were choosing. Your draft is unchanged. "
                "Look at the differences now and choose again."
            )
        conflict = find_conflict(held)
        if conflict is not None:
            base = conflict.base.spec if conflict.base else suite.spec
            content = merge_draft(base, suite.spec, held.content, choices)
            check(content)
            held.content = content
        held.base_version = suite.version
        held.revision += 1
        held.save()
    return held


def _store(suite: Suite, draft: SuiteDraft, note: str) -> SuiteVersion:
    old, before, spec = suite.version, suite.spec, SuiteSpec.model_validate(draft.content)
    suite.write(spec)
    difference = compare_specs(before, spec)
    version = next_version(
        suite,
        version_spec(suite),
        author=draft.author,
        note=" ".join(note.split()) or ", ".join(difference.words),
    )
    facts = change_facts(difference)
    record_change(
        suite,
        "save",
        actor=draft.author,
        before={"version": old, **facts.before},
        after={"version": version.number, "note": version.note, **facts.after},
    )
    return version


def _theirs(suite: Suite, base: int, before: SuiteSpec) -> Sequence[SuiteVersion]:
    """Return the versions after the base that change more than cases, newest first."""
    rows = suite.versions.filter(number__gt=base).select_related("author").order_by("number")
    versions: list[SuiteVersion] = []
    for version in rows:
        spec = version.spec.plain()
        if spec != before:
            versions.append(version)
        before = spec
    return versions[::-1]


# Rules under which weights of children do not change the score (SCORING §3).
WEIGHTLESS = {
    "minimum": "the lowest score counts",
    "maximum": "the highest score counts",
    "threshold": "passes are counted",
}
JUDGE_OVERALL = "judge_overall"
HYBRID = "hybrid_judge"
NOBODY: Mapping[str, Collection[str]] = {}


@dataclass(frozen=True, slots=True)
class TreeWarning:
    """One warning, as a sentence.

    `code` is no_effect, zero_sum, never_decides, own_model, literal or unfinished; `path` is that of the
    evaluator in the draft, "" for the whole suite; `field` is the setting, "" for none in particular.
    """

    code: str
    path: str
    text: str
    field: str = ""


def tree_warnings(
    content: Content, *, target_models: Mapping[str, Collection[str]] = NOBODY
) -> list[TreeWarning]:
    """Return the warnings, in the order of the tree.

    `target_models` has the names of the targets that use a language model, by its slug: a judge that
    would judge its own answers gets a warning.
    """
    spec = SuiteSpec.model_validate(content)
    root, policy = spec.evaluators, spec.policy
    nodes = dict(walk(root))
    overall = _overall_judge(root, policy)
    reach = _reach(root, policy, overall)
    warnings: list[TreeWarning] = []
    if overall is not None:
        text = f"The final score is the overall score of “{overall}”, so weights change nothing."
        warnings.append(TreeWarning("no_effect", ROOT_PATH, text, "weight"))
    for path, node in nodes.items():
        above = nodes[path.rpartition("/")[0]] if path != ROOT_PATH else None
        warnings += _unfinished(path, node)
        warnings += _literal(path, node)
        warnings += _zero_sums(path, node)
        if above is not None and overall is None:
            warnings += _no_effect(path, node, above)
        if above is not None:
            warnings += _never_decides(path, node, above, reach)
    warnings += _own_models(root, spec.judge, target_models)
    return warnings


def _unfinished(path: str, node: EvaluatorSpec) -> Iterator[TreeWarning]:
    try:
        read_config(node.kind, node.as_json()["config"], evaluator=path or node.name)
    except UnknownKindError as error:
        yield TreeWarning("unfinished", path, str(error), "kind")
    except InvalidConfigError as error:
        for refusal in error.refusals:
            setting = f"{refusal.setting}: " if refusal.setting else ""
            text = f"“{path or node.name}”: {setting}{refusal.reason}."
            yield TreeWarning("unfinished", path, text, refusal.setting)


def _literal(path: str, node: EvaluatorSpec) -> Iterator[TreeWarning]:
    """Warn of a prompt variable in a text that is searched for literally."""
    if variable := literal_variable(node.kind, node.config):
        text = f"“{path or node.name}” {variable.text}."
        yield TreeWarning("literal", path, text, variable.setting)


def _zero_sums(path: str, node: EvaluatorSpec) -> Iterator[TreeWarning]:
    aggregator = node.aggregator
    if aggregator is None or not node.children:
        return
    counted = [child for child in node.children if not aggregator.is_gate_alone(child.name)]
    if sum(node.child_weight(child) for child in counted) == 0:
        if aggregator.is_judging:
            text = f"All weights in “{path or node.name}” are 0, and its judge reads them."
        else:
            text = f"The weights in “{path or node.name}” sum to 0, so it has no score. Raise one."
        yield TreeWarning("zero_sum", path, text, "weight")


def _no_effect(path: str, node: EvaluatorSpec, above: EvaluatorSpec) -> Iterator[TreeWarning]:
    """Warn of a weight other than 1 that cannot change the score."""
    aggregator, weight = above.aggregator, above.child_weight(node)
    if aggregator is None or weight in (0, 1):
        return
    subject = f"The weight {format_weight(weight)} of “{path}” changes nothing:"
    if aggregator.type in WEIGHTLESS:
        yield TreeWarning("no_effect", path, f"{subject} {WEIGHTLESS[aggregator.type]}.", "weight")
    elif aggregator.is_gate_alone(node.name):
        message = "it is only a gate and left out of the average"
        yield TreeWarning("no_effect", path, f"{subject} {message}.", "weight")
    elif not aggregator.is_judging and _counts_alone(above, aggregator, node):
        yield TreeWarning(
            "no_effect", path, f"{subject} nothing else in its composite counts.", "weight"
        )


def _never_decides(
    path: str, node: EvaluatorSpec, above: EvaluatorSpec, reach: Mapping[str, bool]
) -> Iterator[TreeWarning]:
    """Warn of an evaluator that no verdict depends on; in a branch, only of the outermost one."""
    if reach[path] or not reach[path.rpartition("/")[0]]:
        return
    why = (
        "its weight is 0" if above.child_weight(node) == 0 else "only the judge's own score counts"
    )
    message = f"“{path}” can never change a verdict: {why}, and it is neither required nor a gate"
    yield TreeWarning("never_decides", path, f"{message}. It is only recorded.")


def _overall_judge(root: EvaluatorSpec, policy: PolicySpec) -> str | None:
    """Return the path of the judge whose overall score is the final score, None without one (SCORING §4.4)."""
    if policy.final_score != JUDGE_OVERALL:
        return None
    return next((path for path, node in walk(root) if node.kind == HYBRID), None)


def _reach(root: EvaluatorSpec, policy: PolicySpec, overall: str | None) -> dict[str, bool]:
    """Return by path whether an evaluator, or one inside it, can change a verdict."""
    kinds = all_kinds()
    reach: dict[str, bool] = {}

    def look(node: EvaluatorSpec, path: str, *, counts: bool) -> bool:
        inner = [
            look(child, below(path, child.name), counts=_counts(node, child, counts, overall))
            for child in node.children
        ]
        kind = kinds.get(node.kind)
        supplies = kind is not None and kind.supplies_outcomes and policy.outcomes_decide
        reach[path] = counts or node.is_required or supplies or path == overall or any(inner)
        return reach[path]

    look(root, ROOT_PATH, counts=True)
    return reach


def _counts(
    above: EvaluatorSpec, node: EvaluatorSpec, above_counts: bool, overall: str | None
) -> bool:
    if above.aggregator is not None and above.aggregator.is_gate(node.name):
        return above_counts
    return above_counts and overall is None and above.child_weight(node) > 0


def _counts_alone(above: EvaluatorSpec, aggregator: Aggregator, node: EvaluatorSpec) -> bool:
    others = (child for child in above.children if child is not node)
    return all(
        above.child_weight(other) == 0 or aggregator.is_gate_alone(other.name) for other in others
    )


def _own_models(
    root: EvaluatorSpec, judge: str, target_models: Mapping[str, Collection[str]]
) -> Iterator[TreeWarning]:
    for path, node in walk(root):
        alone = EvaluatorSpec(name=node.name, kind=node.kind, config=node.as_json()["config"])
        for slug in sorted(judge_models(alone, all_kinds(), default=judge)):
            if slug in target_models:
                names = " and ".join(sorted(target_models[slug]))
                text = f"“{path or node.name}” asks {slug}, which is the model of {names}: it judges itself."
                yield TreeWarning("own_model", path, text, "model")
