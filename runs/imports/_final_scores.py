"""Where the final score of a suite cannot come from what its policy names (SCORING §4.4)."""

from __future__ import annotations

from collections.abc import Iterator

from evaluators.scoring.evaluation import HYBRID_KIND, JUDGE_OVERALL
from evaluators.scoring.tree import walk
from runs.formats import Problem, SuiteContent
from runs.plan import tree_of_case


def scoreless_cases(content: SuiteContent, *, file: str = "") -> Iterator[Problem]:
    """Yield a note where the score is to be a hybrid judge's own and cases have no such judge.

    Every result of theirs would be an error, paid for all the same.
    """
    if content.policy.final_score != JUDGE_OVERALL:
        return
    without = [
        case.key
        for case in content.cases
        if not any(
            node.kind == HYBRID_KIND
            for _, node in walk(
                tree_of_case(
                    content.root,
                    case.evaluators.as_json() if case.evaluators else None,
                    append=case.evaluators_append,
                )
            )
        )
    ]
    if without:
        said = (
            f"{len(without)} of {len(content.cases)} cases have no hybrid judge, whose overall score is to be "
            "theirs, so that every result of them would be an error; add one, or set final_score: aggregate"
        )
        yield Problem(said, file, 0, without[0], "final_score")
