"""What the tests of the measures of retrieval share: a context, and replies that no judge may give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evaluators.kinds._base import Step
from tests.evaluators.kinds.doubles import ListedJudge, context_of, score_of, unscored_of

PASSAGES = ("It is out for delivery.", "The window is 14:00 to 17:00.")
SEARCHED = (
    Step("model", "m"),
    Step("tool", "search", output=list(PASSAGES)),
    Step("tool", "weather", output={"sky": "blue"}),
    Step("tool", "search", output="lost", error="timed out"),
)


def statements(verdict: str, *found: bool) -> dict[str, Any]:
    parts = [
        {"statement": f"Statement {n}.", "evidence": f"words {n}", verdict: one}
        for n, one in enumerate(found, 1)
    ]
    return {"reasoning": "Looked twice.", "statements": parts}


def check_hostile_replies(kind: str, good: Mapping[str, Any], name: str, **facts: Any) -> None:
    """A reply that is not exactly what was asked for is asked for again, and never read as a score."""
    part = good[name][0]
    spoilt: list[Any] = [
        "",
        "All is well: 1.0",
        "x" * 1_000_001,
        '{"reasoning": "", "' + name + '": [NaN]}',
        {**good, name: "all"},
        {**good, name: [{**part, "score": 1}]},
        {**good, name: [{key: part[key] for key in list(part)[1:]}]},
        {**good, name: [part] * 201},
        '{"reasoning": "", "' + name + '": [' + ",".join(["{}"] * 300_000) + "]}",
        {**good, "score": 1},
    ]
    for bad in spoilt:
        judge = ListedJudge(bad, good)
        repaired = score_of(kind, {}, context_of(judge=judge, **facts))
        assert repaired.usage.calls == 2
        failed = unscored_of(kind, {}, context_of(judge=ListedJudge(bad, bad), **facts))
        assert (failed.stage, failed.usage.calls) == ("parse", 2)
    lost = unscored_of(kind, {}, context_of(judge=ListedJudge(), **facts))
    assert (lost.stage, lost.usage.input_tokens) == ("judge", 10)
    assert unscored_of(kind, {}, context_of(**facts)).stage == "config"


def check_missing_contexts(kind: str, **facts: Any) -> None:
    """Without a context nothing is asked, and the reason says where it was looked for."""
    in_case = {"context": "metadata.context"}
    for config, own, stage, said in (
        ({}, {}, "target", "reports no trace"),
        ({}, {"trace": ()}, "target", "no call returned anything"),
        ({"tool": "find"}, {"trace": SEARCHED}, "target", "no call of find returned anything"),
        (in_case, {}, "config", "metadata.context is missing or empty"),
        (in_case, {"metadata": {"context": ["", " "]}}, "config", "missing or empty"),
        (in_case, {"metadata": {"context": ["x"] * 101}}, "limits", "101 passages"),
        (in_case, {"metadata": {"context": "x" * 5_000_000}}, "limits", "5,000,000 characters"),
    ):
        judge = ListedJudge("{}")
        outcome = unscored_of(kind, config, context_of(judge=judge, **{**facts, **own}))
        assert (outcome.stage, said in outcome.reason, judge.questions) == (stage, True, []), (
            outcome
        )
