"""Change a suite's cases: one, many at once, or from a result.

Each change makes a revision of its case; the changes a person makes within an hour share one version, and tags
of many cases get their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Max

from evaluators.models import COMMAND_LINE
from evaluators.scoring.tree import EvaluatorSpec
from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import counted
from runs.cases.checks import check_cases
from runs.formats.suite_cases import MAX_KEY_LENGTH
from runs.models.database import among
from runs.models.results import Result
from runs.models.suites import Case, Suite
from runs.specs.suites import MAX_CASE_TAGS, CaseSpec
from runs.suites.services import (
    NewRevision,
    SuiteChangedError,
    lock_editable_suite,
    move_cases,
    new_revision,
    record_version,
    store_revisions,
)


def record_edit(suite: Suite, held: Suite, by: User | None, note: str = "") -> int:
    """Record the version after an edit of cases and return its number.

    The edits of an hour share a version; an edit with a note gets its own.
    """
    suite.version = record_version(held, author=by, note=note, gathers=not note).number
    return suite.version


def current_case(suite: Suite, key: str) -> Case | None:
    """Return the current revision of a case, None when the suite has none."""
    return suite.cases.filter(key=key, is_current=True).first()


def is_same(case: Case, content: CaseSpec) -> bool:
    """Tell whether a revision has exactly this content."""
    return case.spec.columns() == content.columns()


def next_place(suite: Suite) -> int:
    """Return the position after the last case."""
    last = suite.cases.filter(is_current=True).aggregate(last=Max("position"))["last"]
    return 0 if last is None else int(last) + 1


class CaseKeyTakenError(DomainError):
    """Another case of the suite has the key."""

    code = "case_key_taken"


class CaseKeyInUseError(DomainError):
    """The key of a case with results cannot change: the results are found by it."""

    code = "case_key_in_use"


class UnknownCaseError(DomainError):
    """The suite has no such case now."""

    code = "unknown_case"


class CaseChangedError(DomainError):
    """Somebody saved the case since the form was made; holds the old content, theirs and mine.

    `theirs` is None if the case was removed.
    """

    code = "case_changed"

    def __init__(self, base: Case | None, theirs: Case | None, mine: CaseSpec) -> None:
        """Say what happened to the case."""
        self.base, self.theirs, self.mine = base, theirs, mine
        change = f"is now at revision {theirs.revision}" if theirs else "has been removed"
        super().__init__(f"The case {change}. Nothing was saved.")


def add_case(suite: Suite, content: CaseSpec, *, by: User | None) -> Case:
    """Add a case after the others and return it; an identical case that exists is returned as it is.

    Raises SuiteArchivedError, InvalidCaseError and CaseKeyTakenError.
    """
    with transaction.atomic():
        held = lock_editable_suite(suite)
        check_cases(held, (content,))
        now = current_case(held, content.key)
        if now is not None:
            if is_same(now, content):
                return now
            raise CaseKeyTakenError(f"There is already a case “{content.key}”. Choose another key.")
        case = _create_revision(held, content, next_place(held), None)
        record_edit(suite, held, by)
    return case


def change_case(
    suite: Suite, key: str, content: CaseSpec, *, base_revision: int, by: User | None
) -> Case:
    """Store the case as a new revision and return it; without a change, return the current revision.

    A key can change until the case has a result. The revisions under the old key then stay for the
    versions that contain them. Raises CaseChangedError if the case is no longer at `base_revision`, and
    SuiteArchivedError, InvalidCaseError, CaseKeyTakenError, CaseKeyInUseError.
    """
    with transaction.atomic():
        held = lock_editable_suite(suite)
        check_cases(held, (content,))
        there = current_case(held, content.key)
        if there is not None and is_same(there, content):
            return there
        now = there if content.key == key else current_case(held, key)
        if now is None or now.revision != base_revision:
            base = held.cases.filter(key=key, revision=base_revision).first()
            raise CaseChangedError(base, now, content)
        if content.key != key:
            _check_new_key(held, key, content.key, is_taken=there is not None)
        case = _create_revision(held, content, now.position, now)
        record_edit(suite, held, by)
    return case


def restore_case(
    suite: Suite, key: str, *, revision: int, base_revision: int | None, by: User | None
) -> Case:
    """Make an earlier revision the current one again and return it; a second call changes nothing.

    `base_revision` is the current one the caller has seen, None for a removed case. Raises
    CaseChangedError, UnknownCaseError and SuiteArchivedError.
    """
    with transaction.atomic():
        held = lock_editable_suite(suite)
        wanted = held.cases.filter(key=key, revision=revision).first()
        if wanted is None:
            raise UnknownCaseError(f"The case {key} has no revision {revision}.")
        if wanted.is_current:
            return wanted
        now = current_case(held, key)
        if (now.revision if now else None) != base_revision:
            raise CaseChangedError(wanted, now, wanted.spec)
        if now is not None:
            held.cases.filter(pk=now.pk).update(is_current=False)
        wanted.is_current, wanted.position = True, now.position if now else wanted.position
        wanted.save(update_fields=["is_current", "position"])
        record_edit(suite, held, by)
    return wanted


def remove_case(suite: Suite, key: str, *, base_revision: int | None, by: User | None) -> None:
    """Take a case out of the suite; its revisions stay for the runs and versions that contain them.

    A case that is already out stays out. Raises CaseChangedError if the case is no longer at
    `base_revision`, and SuiteArchivedError.
    """
    with transaction.atomic():
        held = lock_editable_suite(suite)
        now = current_case(held, key)
        if now is None:
            return
        if now.revision != base_revision:
            raise CaseChangedError(None, now, now.spec)
        held.cases.filter(pk=now.pk).update(is_current=False)
        record_edit(suite, held, by)


def move_case(suite: Suite, key: str, place: int, *, by: User | None) -> int:
    """Move a case to a place in the suite's order, from 1, and return its new place.

    Raises UnknownCaseError and SuiteArchivedError.
    """
    with transaction.atomic():
        held = lock_editable_suite(suite)
        rows = held.cases.filter(is_current=True).only("suite", "key", "position")
        cases = list(rows.order_by("position", "id"))
        moved = next((case for case in cases if case.key == key), None)
        if moved is None:
            raise UnknownCaseError(f"{held.title} no longer has a case {key}.")
        cases.remove(moved)
        cases.insert(max(0, place - 1), moved)
        move_cases((n, case.pk) for n, case in enumerate(cases) if case.position != n)
        record_edit(suite, held, by)
    return cases.index(moved) + 1


def has_results(suite: Suite, key: str) -> bool:
    """Tell whether any revision of the case was ever run; its key is then fixed."""
    return Result.objects.filter(case__suite=suite, case__key=key).exists()


def _check_new_key(suite: Suite, old: str, new: str, *, is_taken: bool) -> None:
    if is_taken:
        raise CaseKeyTakenError(f"There is already a case “{new}”. Choose another key.")
    if has_results(suite, old):
        raise CaseKeyInUseError(
            f"{old} has results, which are found by its key, so the key cannot change. Duplicate the case "
            "under another key, and delete this one if it is no longer needed."
        )


def _create_revision(suite: Suite, content: CaseSpec, position: int, now: Case | None) -> Case:
    store_revisions(suite, [new_revision(content, position)], [now.pk] if now else [])
    return suite.cases.get(key=content.key, is_current=True)


@dataclass(frozen=True, slots=True)
class PutCases:
    """How many cases were added, changed and left unchanged, and the resulting version."""

    added: int
    changed: int
    unchanged: int
    version: int


def put_cases(
    suite: Suite,
    contents: Sequence[CaseSpec],
    *,
    by: User | None,
    note: str = "",
    are_from_table: bool = False,
) -> PutCases:
    """Add each case, or change the case with its key: all of them, or none.

    New cases go after the others, in their order; an unchanged case gets no revision. Cases from a table have no
    evaluators, so those that change keep their own. Raises SuiteArchivedError, and InvalidCaseError by key and field.
    """
    with transaction.atomic():
        held = lock_editable_suite(suite)
        own = ("evaluators", "evaluators_append") if are_from_table else ()
        light = held.cases.filter(is_current=True)
        light = light.only("suite", "key", "position", "content_hash", *own)
        current = {case.key: case for case in light}
        if are_from_table:
            contents = [_with_evaluators(content, current.get(content.key)) for content in contents]
        check_cases(held, tuple(contents))
        made, retired = [], []
        place = next_place(held)
        for content in contents:
            old = current.get(content.key)
            new = new_revision(content, old.position if old else place)
            if old is None:
                place += 1
            elif old.content_hash == new.digest:
                continue
            else:
                retired.append(old.pk)
            made.append(new)
        store_revisions(held, made, retired)
        version = record_edit(suite, held, by, note)
    return PutCases(len(made) - len(retired), len(retired), len(contents) - len(made), version)


def _with_evaluators(content: CaseSpec, case: Case | None) -> CaseSpec:
    """Return the content with the evaluators that the case itself has."""
    if case is None or case.evaluators is None:
        return content
    own = EvaluatorSpec.model_validate(case.evaluators)
    return content.replace(evaluators=own, evaluators_append=case.evaluators_append)


def remove_cases(suite: Suite, keys: Sequence[str], *, by: User | None) -> int:
    """Take cases out of the suite and return how many; runs and versions keep their revisions."""
    with transaction.atomic():
        held = lock_editable_suite(suite)
        chosen = held.cases.filter(is_current=True, key__in=among(keys, "text"))
        gone = chosen.update(is_current=False)
        if gone:
            record_edit(suite, held, by)
    return gone


class TooManyTagsError(DomainError):
    """A case would have more tags than a case may have."""

    code = "too_many_tags"


def tag_cases(
    suite: Suite, keys: Sequence[str], tags: Sequence[str], *, by: User | None, seen: str = ""
) -> int:
    """Add these tags to the cases in one version whose note says so, and return how many cases changed.

    `seen` is the `version_stamp` of the suite when the cases were chosen; raises SuiteChangedError if somebody
    else has saved another since, TooManyTagsError, and SuiteArchivedError.
    """
    added = dict.fromkeys(tags)
    note = f"tagged {', '.join(added)}"
    return _retag(suite, keys, lambda own: list(dict.fromkeys([*own, *added])), note, by, seen)


def untag_cases(
    suite: Suite, keys: Sequence[str], tags: Sequence[str], *, by: User | None, seen: str = ""
) -> int:
    """Remove these tags from the cases, as `tag_cases` adds them."""
    note = f"no longer tagged {', '.join(dict.fromkeys(tags))}"
    return _retag(suite, keys, lambda own: [tag for tag in own if tag not in tags], note, by, seen)


def _retag(
    suite: Suite,
    keys: Sequence[str],
    change: Callable[[list[str]], list[str]],
    note: str,
    by: User | None,
    seen: str,
) -> int:
    made: list[NewRevision] = []
    retired: list[int] = []
    with transaction.atomic():
        held = lock_editable_suite(suite)
        _check_seen(held, seen, by)
        chosen = held.cases.filter(is_current=True, key__in=among(keys, "text"))
        for pk, position, *values in chosen.values_list("pk", "position", *CaseSpec.model_fields):
            content = CaseSpec.model_validate(dict(zip(CaseSpec.model_fields, values, strict=True)))
            tags = change(list(content.tags))
            if len(tags) > MAX_CASE_TAGS and len(tags) > len(content.tags):
                raise TooManyTagsError(
                    f"{content.key} would have {len(tags)} tags; {MAX_CASE_TAGS} is the limit. No tag was changed."
                )
            if tags != list(content.tags):
                made.append(new_revision(content.replace(tags=tuple(tags)), position))
                retired.append(pk)
        if made:
            store_revisions(held, made, retired)
            record_edit(suite, held, by, f"{counted(len(made), 'case')} {note}")
    return len(made)


def _check_seen(held: Suite, seen: str, by: User | None) -> None:
    if not seen or held.version_stamp == seen:
        return
    number, author, name = held.versions.values_list("number", "author_id", "author__username").get(
        number=held.version
    )
    if by is None or author != by.pk:
        raise SuiteChangedError(
            f"{name or COMMAND_LINE} saved {held.title} meanwhile: it is at version {number} now. "
            "No tag was changed. Check the cases and try again."
        )


# What the metadata of a case say of where it comes from: a result, or a model that drafted it.
FROM, DRAFTED = "from_result", "drafted"
ROOM = 20


class NoAnswerError(DomainError):
    """A result has no answer."""

    code = "no_answer"


def unused_key(suite: Suite, like: str) -> str:
    """Return a key that no current case of the suite has: the given one with a number after it."""
    short = like[: MAX_KEY_LENGTH - ROOM]
    taken = set(
        suite.cases.filter(is_current=True, key__startswith=f"{short}-").values_list(
            "key", flat=True
        )
    )
    return next(key for n in range(2, len(taken) + 3) if (key := f"{short}-{n}") not in taken)


def case_from_result(result: Result, *, with_answer: bool) -> CaseSpec:
    """Return a new case with the input of a result's case and its expectations.

    With the result's answer as expected output the other expectations are left out, because the answer
    may not meet them. The key names the run, always the same, so that pressing twice makes one case.
    Raises NoAnswerError.
    """
    case, number = result.case, result.run.number
    nth = f"-{result.repetition}" if result.repetition > 1 else ""
    origin = {"run": number, "case": case.key, "repetition": result.repetition}
    return CaseSpec(
        key=f"{case.key[: MAX_KEY_LENGTH - ROOM]}-run{number}{nth}",
        title=case.title,
        tags=tuple(case.tags),
        input=tuple(case.input),
        expected_output=answer_text(result) if with_answer else case.expected_output,
        expected_outcomes=() if with_answer else tuple(case.expected_outcomes),
        criteria="" if with_answer else case.criteria,
        metadata={**case.metadata, FROM: origin},
    )


def add_case_from_result(result: Result, *, with_answer: bool, by: User | None) -> Case:
    """Make a case from a result and return it; raises what add_case raises, and NoAnswerError."""
    content = case_from_result(result, with_answer=with_answer)
    return add_case(result.run.suite, content, by=by)


def set_expected_output(result: Result, *, by: User | None) -> tuple[Case, int]:
    """Make the answer the case's expected output; return the case and its revision before.

    Raises NoAnswerError, UnknownCaseError for a removed case, and what change_case raises.
    """
    suite, key = result.run.suite, result.case.key
    now = suite.cases.filter(key=key, is_current=True).first()
    if now is None:
        raise UnknownCaseError(f"{suite.title} no longer has a case {key}. Restore it first.")
    content = now.spec.replace(expected_output=answer_text(result))
    return change_case(suite, key, content, base_revision=now.revision, by=by), now.revision


def add_expected_outcome(result: Result, text: str, *, by: User | None) -> tuple[Case, int]:
    """Add an expected outcome to the current case of a result; return the case and its revision before.

    An outcome that it already has is not added again. Raises UnknownCaseError for a removed case, and what
    change_case raises.
    """
    suite, key = result.run.suite, result.case.key
    now = current_case(suite, key)
    if now is None:
        raise UnknownCaseError(f"{suite.title} no longer has a case {key}. Restore it first.")
    outcomes = now.spec.expected_outcomes
    added = outcomes if text in outcomes else (*outcomes, text)
    content = now.spec.replace(expected_outcomes=added)
    return change_case(suite, key, content, base_revision=now.revision, by=by), now.revision


def answer_text(result: Result) -> str:
    """Return the text the target answered; raises NoAnswerError."""
    output = getattr(result, "output", None)
    if output is None or not output.text:
        raise NoAnswerError("The target gave no answer here, so there is none to use.")
    return str(output.text)
