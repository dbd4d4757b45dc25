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
VERDICT_LIKE = re.compile(
    "|".join(f"(?:{one})" for one in (VERDICT, SCORE, JSON_KEY, ORDER, ADDRESS, PLEA, CLAIM)),
    re.IGNORECASE,
)


def verdict_like(text: str) -> str:
    """Return the first words of an output that read like a verdict or speak to its judge, "" for none.

    It is a hint for a person, never a score: what judges are asked is quoted to them as data anyway.
    """
    found = VERDICT_LIKE.search(text)
    return " ".join(found.group().split()) if found else ""
