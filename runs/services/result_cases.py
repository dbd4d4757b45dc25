"""A result becomes a case of its suite, or its answer what the case expects."""

from __future__ import annotations

from dataclasses import replace

from django.contrib.auth.models import User

from evaluators.scoring.types import DomainError
from runs.exports import case_content
from runs.formats import CaseContent
from runs.formats._cases import LONGEST_KEY
from runs.models import Case, Result, Suite
from runs.services.cases import UnknownCaseError, add_case, change_case

FROM = "from_result"
ROOM = 20


class NoAnswerError(DomainError):
    """The target answered nothing in a result."""

    code = "no_answer"


def free_key(suite: Suite, like: str) -> str:
    """Return a key that no current case of the suite has: the given one with a number behind it."""
    short = like[: LONGEST_KEY - ROOM]
    taken = set(
        suite.cases.filter(is_current=True, key__startswith=f"{short}-").values_list(
            "key", flat=True
        )
    )
    return next(key for n in range(2, len(taken) + 3) if (key := f"{short}-{n}") not in taken)


def content_of_result(result: Result, *, with_answer: bool) -> CaseContent:
    """Return a new case that asks what the result was asked, and expects what its case expects.

    With its answer as expected output the case's own expectations stay behind: they may not be what the
    answer meets. Its key names the run, the same each time, so that pressing twice makes one case.
    Raises NoAnswerError.
    """
    case, number = result.case, result.run.number
    nth = f"-{result.repetition}" if result.repetition > 1 else ""
    origin = {"run": number, "case": case.key, "repetition": result.repetition}
    return CaseContent(
        key=f"{case.key[: LONGEST_KEY - ROOM]}-run{number}{nth}",
        title=case.title,
        tags=tuple(case.tags),
        input=tuple(case.input),
        expected_output=answer_of(result) if with_answer else case.expected_output,
        expected_outcomes=() if with_answer else tuple(case.expected_outcomes),
        criteria="" if with_answer else case.criteria,
        metadata={**case.metadata, FROM: origin},
    )


def make_case(result: Result, *, with_answer: bool, by: User | None) -> Case:
    """Make a case of a result and return it; raises what add_case raises, and NoAnswerError."""
    content = content_of_result(result, with_answer=with_answer)
    return add_case(result.run.suite, content, by=by)


def expect_answer(result: Result, *, by: User | None) -> tuple[Case, int]:
    """Make the answer what the case expects; return the case and the revision it was at before.

    Raises NoAnswerError, UnknownCaseError for a case that was removed, and what change_case raises.
    """
    suite, key = result.run.suite, result.case.key
    now = suite.cases.filter(key=key, is_current=True).first()
    if now is None:
        raise UnknownCaseError(f"{suite.title} has no case {key} any more. Bring it back first.")
    content = replace(case_content(now), expected_output=answer_of(result))
    return change_case(suite, key, content, base_revision=now.revision, by=by), now.revision


def answer_of(result: Result) -> str:
    """Return the text the target answered; raises NoAnswerError."""
    output = getattr(result, "output", None)
    if output is None or not output.text:
        raise NoAnswerError("The target answered nothing here, so there is no answer to take.")
    return str(output.text)
