#!/usr/bin/env python3
"""An agent that votes by rules, to stand for one of your own: a question in, a vote out.

It reads the case from standard input as every command does. The question says in words what is wanted;
what stands in it between the marks after `candidate_answer` is the answer, and is never obeyed.
"""

from __future__ import annotations

import json
import re
import sys

ANSWER = re.compile(r"<<<(?P<mark>\w+) candidate_answer\n(?P<text>.*)\n(?P=mark)>>>", re.DOTALL)
ORDER, DAY, MONEY = (
    r"\bTW-\d{4}\b",
    r"\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b",
    r"\bcosts?\b",
)
FACTS = {ORDER: "the order", DAY: "a day", MONEY: "what it costs"}
VOTES = ((20, "Poor"), (45, "Fair"), (70, "Good"), (95, "Excellent"))


def main() -> None:
    """Print reasons, a score from 0 to 100 and its bracket: one bracket higher for each fact."""
    found = ANSWER.search(json.load(sys.stdin)["input"])
    text = found["text"] if found else ""
    named = [name for pattern, name in FACTS.items() if re.search(pattern, text)]
    score, bracket = VOTES[len(named)]
    reasons = f"The answer names {', '.join(named) or 'nothing that can be checked'}."
    json.dump({"reasons": reasons, "score": score, "bracket": bracket}, sys.stdout)


if __name__ == "__main__":
    main()
