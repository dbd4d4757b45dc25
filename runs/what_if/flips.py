"""Cases and executions whose verdict changes, with what decides on both sides and what reviews say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from evaluators.scoring.policy import Policy
from evaluators.scoring.types import Verdict
from runs.summary import Execution, case_decision
from runs.what_if.figures import CaseFlip, ExecutionFlip, Stand
from runs.what_if.stored import StoredResult, StoredRun

STATES = {"error": "error", "pending": "waiting", "running": "waiting"}
Standing = Mapping[str, tuple[str, float | None]]
Rows = tuple[Sequence[Execution], Sequence[Execution]]


def flips_of(
    stored: StoredRun,
    rows: Rows,
    cases: tuple[Standing, Standing],
    policies: tuple[Policy, Policy],
    words: Callable[[StoredResult], str],
) -> tuple[CaseFlip, ...]:
    """Return the cases whose verdict changes or that of one of their executions, in their order.

    `words` tells what would decide a result.
    """
    changed: dict[int, list[int]] = {}
    for place, (one, other) in enumerate(zip(*rows, strict=True)):
        if one is not other and (one.status, one.verdict) != (other.status, other.verdict):
            changed.setdefault(stored.results[place].case, []).append(place)
    told = Telling(stored, rows, policies, words)
    found = []
    for case, facts in stored.cases.items():
        if facts.key not in cases[0]:
            continue
        if cases[0][facts.key][0] != cases[1][facts.key][0] or case in changed:
            executions = tuple(told.execution(place) for place in changed.get(case, ()))
            stands = told.stands(case, (cases[0][facts.key], cases[1][facts.key]), executions)
            found.append(CaseFlip(case, facts.key, *stands, executions))
    return tuple(found)


class Telling:
    """Puts both sides of a flip into words."""

    def __init__(
        self,
        stored: StoredRun,
        rows: Rows,
        policies: tuple[Policy, Policy],
        words: Callable[[StoredResult], str],
    ) -> None:
        self.stored, self.rows, self.policies, self.words = stored, rows, policies, words
        self.places: dict[int, list[int]] = {}
        for place, result in enumerate(stored.results):
            self.places.setdefault(result.case, []).append(place)

    def execution(self, place: int) -> ExecutionFlip:
        """Return the flip of one execution."""
        result = self.stored.results[place]
        before, after = (side[place] for side in self.rows)
        return ExecutionFlip(
            result=result.id,
            repetition=result.repetition,
            before=Stand(state_of(before), before.score, result.decided_by or result.error),
            after=Stand(state_of(after), after.score, self.words(result)),
            reviewed=result.reviewed,
            review=_review(before.verdict, after.verdict, before.reviewed_verdict),
        )

    def stands(
        self,
        case: int,
        found: tuple[tuple[str, float | None], tuple[str, float | None]],
        executions: tuple[ExecutionFlip, ...],
    ) -> tuple[Stand, Stand]:
        """Return a case on both sides; the words of one that ran once are those of its execution."""
        places = self.places[case]
        if len(places) == 1 and executions:
            texts = [executions[0].before.decided_by, executions[0].after.decided_by]
        else:
            texts = [
                case_decision([rows[place] for place in places], policy).text
                for rows, policy in zip(self.rows, self.policies, strict=True)
            ]
        (old, old_score), (new, new_score) = found
        return Stand(old, old_score, texts[0]), Stand(new, new_score, texts[1])


def state_of(row: Execution) -> str:
    """Return a verdict, error, waiting or not_run."""
    return row.verdict.value if row.verdict is not None else STATES.get(row.status, "not_run")


def _review(before: Verdict | None, after: Verdict | None, reviewed: Verdict | None) -> str:
    if reviewed is None:
        return ""
    if after is None:
        return ""
    if before is reviewed:
        return "contradicted"
    return "agreed" if after is reviewed else "still_contradicted"
