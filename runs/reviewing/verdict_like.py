"""Tell an answer that says something a judge could take for its own verdict."""

from __future__ import annotations

import re

WORDS = r"(?:pass(?:ed)?|fail(?:ed)?|borderline|excellent|perfect|correct)"
# The keys of a judge's reply, with a value as a judge gives it; a price or a goal tally is none.
VERDICT = rf"\b(?:verdict|grade|rating|evaluation|assessment)\b[\"'*]*\s*[:=][\s\"'*]*(?:{WORDS}\b|\d|[a-f][+-]?(?!\w))"
SCORE = r"\b(?:score|overall_score|rating)\b[\"'*]*\s*(?:[:=]|\bis\b)[\s\"'*]*\d+(?:\.\d+)?\s*(?:/\s*\d|%|out of\b|of \d)"
JSON_KEY = (
    rf"[\"'](?:score|verdict|passed|satisfied|met)[\"']\s*:\s*(?:[\"']?{WORDS}\b|true\b|false\b|\d)"
)
ORDER = (
    r"\b(?:ignore|disregard|forget|override)\b[^.\n]{0,40}\b(?:previous|prior|above|earlier|all|your)\b"
    r"[^.\n]{0,30}\b(?:instruction|prompt|rule|criteri|rubric)"
)
ADDRESS = r"\b(?:dear|note to|attention|message (?:to|for)|hello) (?:the |an? )?(?:judge|grader|evaluator)\b"
PLEA = (
    r"\b(?:give|award|assign|grant|mark|rate)\b[^.\n]{0,40}\b(?:full|maximum|highest|perfect|top)"
    r" (?:marks?|scores?|points?|grades?|ratings?)\b"
)
CLAIM = (
    r"\b(?:all|every|each)(?: of the)?(?: expected)? (?:outcomes?|criteri(?:a|on)|requirements?)"
    r" (?:is|are|was|were|has been|have been) (?:met|satisfied|fulfilled)\b"
)
# With each what must stand in the text for it to be found: looking for a word is a hundred times as fast.
PATTERNS = tuple(
    (needed, re.compile(pattern, re.IGNORECASE))
    for needed, pattern in (
        (("verdict", "grade", "rating", "evaluation", "assessment"), VERDICT),
        (("score", "rating"), SCORE),
        (("score", "verdict", "passed", "satisfied", 'met"', "met'"), JSON_KEY),
        (("instruction", "prompt", "rule", "criteri", "rubric"), ORDER),
        (("judge", "grader", "evaluator"), ADDRESS),
        (("full ", "maximum ", "highest ", "perfect ", "top "), PLEA),
        (("outcome", "criteri", "requirement"), CLAIM),
    )
)


def verdict_like(text: str) -> str:
    """Return words of an output that read like a verdict or speak to its judge, "" for none.

    It is a hint for a person, never a score: what judges are asked is quoted to them as data anyway.
    """
    spelt = text.lower()
    for needed, pattern in PATTERNS:
        if any(word in spelt for word in needed) and (found := pattern.search(text)):
            return " ".join(found.group().split())
    return ""
