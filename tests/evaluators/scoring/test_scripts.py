"""What a script prints becomes a score, or none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evaluators.kinds.script import ScriptReplyError, read_env_reply, read_stdin_reply
from evaluators.scoring.types import Finding


def test_the_env_protocol_scores_0_to_100() -> None:
    score = read_env_reply('{"score": 85, "reasoning": "close"}\n')
    assert (score.score, score.raw_score, score.scale) == (0.85, 85.0, 100.0)
    assert score.reasoning == "close"


def test_the_stdin_protocol_scores_0_to_1_with_findings() -> None:
    reply: dict[str, Any] = {
        "score": 0.5,
        "hits": ["found"],
        "misses": ["lost"],
        "assertions": [{"text": "a", "passed": True, "evidence": "line 3"}],
        "checks": [{"name": "b", "passed": False, "evidence": {"line": 4}}],
        "reasoning": ["two", "of four"],
    }
    score = read_stdin_reply(json.dumps(reply))
    assert score.findings == (
        Finding("found", True),
        Finding("lost", False),
        Finding("a", True, "line 3"),
        Finding("b", False, '{"line": 4}'),
    )
    assert score.reasoning == '["two", "of four"]'


def test_zero_is_a_score() -> None:
    assert read_env_reply('{"score": 0, "reasoning": null}').score == 0.0


@pytest.mark.parametrize(
    ("stdout", "reason"),
    [
        ("", "printed nothing"),
        ("  \n", "printed nothing"),
        ("ok", "printed no JSON"),
        ("[1]", "not an object"),
        ("{}", "score None is not a number"),
        ('{"score": "85"}', "score '85' is not a number"),
        ('{"score": true}', "score True is not a number"),
        ('{"score": 101}', "score: 101 is not a number from 0 to 100"),
        ('{"score": -1}', "score: -1"),
        ('{"score": NaN}', "NaN is not JSON"),
        ('{"score": 1, "hits": "x"}', "hits is not a list"),
        ('{"score": 1, "misses": [1]}', "misses is not a list of texts"),
        ('{"score": 1, "checks": [1]}', "checks: 1 is not an object"),
        ('{"score": 1, "checks": [{}]}', "checks: {} is not an object"),
        ('{"score": 1, "checks": [{"text": "a"}]}', "is not an object with text and passed"),
        ('{"score": 1, "checks": [{"passed": true}]}', "is not an object with text and passed"),
    ],
)
def test_anything_else_is_no_score(stdout: str, reason: str) -> None:
    with pytest.raises(ScriptReplyError, match=reason):
        read_env_reply(stdout)
