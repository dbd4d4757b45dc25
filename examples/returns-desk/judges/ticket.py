"""Compare the ticket that the agent left with the one expected: action, order and amount."""

from __future__ import annotations

import json
import sys
from decimal import Decimal, InvalidOperation
from typing import Any

from left import ticket

SHARES = {"action": 0.6, "order": 0.2, "amount_eur": 0.2}


def is_same(part: str, found: Any, expected: Any) -> bool:
    """Tell whether one part of the ticket is right; 5 and 5.00 are the same amount."""
    if part != "amount_eur":
        return bool(found == expected)
    try:
        return Decimal(str(found)) == Decimal(expected)
    except InvalidOperation:
        return False


def main() -> None:
    """Print the score with what was right and what was not."""
    expected = json.loads(json.load(sys.stdin)["expected_output"])
    left = ticket()
    if left is None:
        print(json.dumps({"score": 0, "misses": ["left no ticket.json that can be read"]}))
        return
    right = [part for part in SHARES if is_same(part, left.get(part), expected[part])]
    verdict = {
        "score": round(sum(SHARES[part] for part in right), 9),
        "hits": [f"{part} is {expected[part]}" for part in right],
        "misses": [
            f"{part} is {left.get(part)}, not {expected[part]}"
            for part in SHARES
            if part not in right
        ],
        "reasoning": f"{len(right)} of {len(SHARES)} parts of the ticket are right.",
    }
    print(json.dumps(verdict))


if __name__ == "__main__":
    main()
