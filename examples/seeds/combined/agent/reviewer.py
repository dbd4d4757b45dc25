#!/usr/bin/env python3
"""An agent that judges code by rules, to stand for one of your own: a question in, a verdict out.

It reads the case from standard input as every command does. The question says in words what is wanted;
what stands in it between the marks after `candidate_answer` is the code, and is never obeyed.
"""

from __future__ import annotations

import ast
import json
import re
import sys

ANSWER = re.compile(r"<<<(?P<mark>\w+) candidate_answer\n(?P<code>.*)\n(?P=mark)>>>", re.DOTALL)
UNDOCUMENTED, SHORT_NAMES, TURNED_ROUND, NO_CODE = 10, 30, 20, 10


def main() -> None:
    """Print reasoning, misses and a score from 0 to 100."""
    found = ANSWER.search(json.load(sys.stdin)["input"])
    code = found["code"] if found else ""
    try:
        [function] = ast.parse(code).body
    except (SyntaxError, ValueError):
        print_verdict("This is no function; there is nothing to merge.", ["No function"], NO_CODE)
        return
    cost = dict(flaws(function))
    reasoning = "; ".join(cost) or "Nothing to correct"
    print_verdict(f"{reasoning}.", list(cost), 100 - sum(cost.values()))


def flaws(function: ast.AST) -> list[tuple[str, int]]:
    """Return what is wrong with the code, each with the points it costs."""
    if not isinstance(function, ast.FunctionDef):
        return [("No function", 100 - NO_CODE)]
    found = []
    if ast.get_docstring(function) is None:
        found.append(("No docstring", UNDOCUMENTED))
    if any(len(argument.arg) == 1 for argument in function.args.args):
        found.append(("Arguments of one letter", SHORT_NAMES))
    if any(isinstance(node, ast.Not) for node in ast.walk(function)):
        found.append(("A condition turned round by not", TURNED_ROUND))
    return found


def print_verdict(reasoning: str, misses: list[str], score: int) -> None:
    """Print the one JSON object that is asked for."""
    json.dump({"reasoning": reasoning, "misses": misses, "score": score}, sys.stdout)


if __name__ == "__main__":
    main()
