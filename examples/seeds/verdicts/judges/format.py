"""Five things the answer has to be and to hold: one JSON object with four fields."""

from __future__ import annotations

import json
import sys

FIELDS = {
    "number": "the number",
    "item": "the item",
    "price": "the price",
    "gift": "whether it is a gift",
}


def main() -> None:
    """Print the share of what holds, and a sentence on each."""
    try:
        found = json.loads(json.load(sys.stdin)["output"])
    except ValueError:
        found = None
    is_object = isinstance(found, dict)
    said = {"is one JSON object": is_object}
    said |= {f"tells {words}": is_object and key in found for key, words in FIELDS.items()}
    hits = [text for text, holds in said.items() if holds]
    misses = [text for text, holds in said.items() if not holds]
    print(json.dumps({"score": len(hits) / len(said), "hits": hits, "misses": misses}))


if __name__ == "__main__":
    main()
