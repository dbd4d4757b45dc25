"""The answer must be one JSON object with the three keys that were asked for."""

from __future__ import annotations

import json
import sys

KEYS = ("weather", "route", "back_at")


def main() -> None:
    """Print the share of what holds: an object, and each of its keys."""
    try:
        found = json.loads(json.load(sys.stdin)["output"])
    except ValueError:
        found = None
    is_object = isinstance(found, dict)
    checks = [{"text": "is one JSON object", "passed": is_object}]
    checks += [{"text": f"has the key {key}", "passed": is_object and key in found} for key in KEYS]
    passed = sum(check["passed"] for check in checks)
    print(json.dumps({"score": passed / len(checks), "assertions": checks}))


if __name__ == "__main__":
    main()
