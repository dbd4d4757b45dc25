"""Compare the figures of a JSON answer with the expected ones: the share that is right, to the cent."""

from __future__ import annotations

import json
import os
import re

CENT = 0.005


def figures(text: str) -> dict[str, float] | None:
    """Return the numbers by name of the JSON object in a text; None without one."""
    found = re.search(r"\{.*\}", text, re.DOTALL)
    try:
        read = json.loads(found[0]) if found else None
    except ValueError:
        return None
    if not isinstance(read, dict):
        return None
    return {name: float(value) for name, value in read.items() if isinstance(value, int | float)}


def main() -> None:
    """Print the score with which figure is wrong."""
    wanted = figures(os.environ["EVAL_EXPECTED_OUTPUT"]) or {}
    given = figures(os.environ["EVAL_OUTPUT"])
    if given is None:
        print(json.dumps({"score": 0, "reasoning": "The answer holds no JSON object of figures."}))
        return
    wrong = [
        f"{name} is {given.get(name, 'missing')}, not {value:g}"
        for name, value in wanted.items()
        if name not in given or abs(given[name] - value) > CENT
    ]
    right = len(wanted) - len(wrong)
    said = "; ".join([f"{right} of {len(wanted)} figures are right", *wrong])
    print(json.dumps({"score": round(100 * right / len(wanted)), "reasoning": said}))


if __name__ == "__main__":
    main()
