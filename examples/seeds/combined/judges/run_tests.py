"""Run four tests against the function the agent wrote. It is foreign code: the sandbox holds it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

TESTS = {(1, 4): 25, (3, 3): 100, (0, 7): 0, (0, 0): 0}


def main() -> None:
    """Print 0 to 100, the share of the tests that pass."""
    made: dict[str, Any] = {}
    try:
        exec(Path(os.environ["EVAL_OUTPUT_FILE"]).read_text("utf-8"), made)  # noqa: S102
    except Exception as error:  # noqa: BLE001 - foreign code raises what it likes
        print(json.dumps({"score": 0, "reasoning": f"The answer is no code: {error!r}"}))
        return
    passed = sum(passes(made, given, expected) for given, expected in TESTS.items())
    score = int(passed / len(TESTS) * 100)
    print(json.dumps({"score": score, "reasoning": f"{passed} of {len(TESTS)} tests passed"}))


def passes(made: dict[str, Any], given: tuple[int, int], expected: int) -> bool:
    """Tell whether the function gives what is expected; an exception is a failure."""
    try:
        return bool(made["share"](*given) == expected)
    except Exception:  # noqa: BLE001 - foreign code raises what it likes
        return False


if __name__ == "__main__":
    main()
