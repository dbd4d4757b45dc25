"""Every block of Python in the answer must parse, and there must be one."""

from __future__ import annotations

import ast
import json
import re
import sys


def main() -> None:
    """Print the share of the blocks that parse."""
    blocks = re.findall(r"```python\n(.*?)```", json.load(sys.stdin)["output"], re.DOTALL)
    checks = [
        {"text": f"block {number} parses", "passed": parses(block)}
        for number, block in enumerate(blocks, 1)
    ] or [{"text": "holds a block of Python", "passed": False}]
    passed = sum(check["passed"] for check in checks)
    print(json.dumps({"score": passed / len(checks), "assertions": checks}))


def parses(block: str) -> bool:
    """Tell whether a text is Python."""
    try:
        ast.parse(block)
    except SyntaxError:
        return False
    return True


if __name__ == "__main__":
    main()
