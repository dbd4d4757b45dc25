"""The returns desk of Tarnwick, an invented shop: reads a customer's message, decides, answers.

No model is behind it, only rules: the case comes as JSON on standard input, the answer goes to
standard output, and the decision is left as `ticket.json` in the workspace. It knows its orders and
the shop's terms, and it misunderstands what its rules did not foresee, as real agents do.
"""

from __future__ import annotations

import json
import os
import re
import sys
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

ORDERS = Path(__file__).with_name("orders.json")
ORDER_NUMBER = re.compile(r"\bTW-?\s?(\d{4})\b", re.IGNORECASE)
RETURN_DAYS, WARRANTY_DAYS, LATE_AFTER_DAYS = 30, 730, 10
HUMAN = ("lawyer", "injured", "burn", "hospital", "police")
BROKEN = (
    "broken",
    "broke",
    "torn",
    "tore",
    "leaks",
    "leaking",
    "does not work",
    "doesn't work",
    "defect",
)
LOST = ("not arrived", "never arrived", "hasn't arrived", "still waiting", "where is")
BACK = (
    "return",
    "send back",
    "send it back",
    "refund",
    "money back",
    "too small",
    "too big",
    "wrong size",
)


def decide(message: str, today: date) -> dict[str, Any]:
    """Return the ticket for a message: action, order and the amount in euros, as text."""
    said = message.lower()
    if any(word in said for word in HUMAN):
        return ticket("escalate", number_in(message))
    number = number_in(message)
    orders = json.loads(ORDERS.read_text(encoding="utf-8"))
    order = orders.get(number)
    if order is None:
        return ticket("ask", number)
    if any(word in said for word in LOST):
        return missing(number, order, today)
    if any(word in said for word in BROKEN):
        return broken(number, order, today)
    if any(word in said for word in BACK):
        return returned(number, order, today)
    return ticket("ask", number)


def number_in(message: str) -> str:
    """Return the first order number of a message, "" without one."""
    found = ORDER_NUMBER.search(message)
    return f"TW-{found.group(1)}" if found else ""


def missing(number: str, order: dict[str, str], today: date) -> dict[str, Any]:
    """Send a parcel again that is late, and ask for patience with one that is not."""
    if "shipped_on" not in order:
        return ticket("escalate", number)
    is_late = (today - date.fromisoformat(order["shipped_on"])).days > LATE_AFTER_DAYS
    return ticket("resend" if is_late else "wait", number)


def broken(number: str, order: dict[str, str], today: date) -> dict[str, Any]:
    """Pay back what breaks early, replace what breaks under warranty, refuse the rest."""
    age = (today - date.fromisoformat(order.get("delivered_on", today.isoformat()))).days
    if age <= RETURN_DAYS:
        return ticket("refund", number, order["price_eur"])
    return ticket("replace" if age <= WARRANTY_DAYS else "refuse", number)


def returned(number: str, order: dict[str, str], today: date) -> dict[str, Any]:
    """Take back within thirty days; a final sale earns credit, dangerous goods need a person."""
    if order["terms"] == "dangerous goods":
        return ticket("escalate", number)
    age = (today - date.fromisoformat(order.get("delivered_on", today.isoformat()))).days
    if age > RETURN_DAYS:
        return ticket("refuse", number)
    return ticket(
        "credit" if order["terms"] == "final sale" else "refund", number, order["price_eur"]
    )


def ticket(action: str, number: str, amount: str = "0") -> dict[str, Any]:
    """Return a ticket."""
    return {"action": action, "order": number or None, "amount_eur": f"{Decimal(amount):.2f}"}


ANSWERS = {
    "refund": "We have refunded {amount_eur} EUR for order {order}. You will see it within five days.",
    "credit": "Order {order} was a final sale, so we have added {amount_eur} EUR as store credit.",
    "replace": "Order {order} is under warranty: a replacement leaves our store tomorrow.",
    "resend": "Your parcel {order} is overdue, so we send it again today at our expense.",
    "wait": "Your parcel {order} is on its way. Please give it ten days from its dispatch.",
    "refuse": "Order {order} is past the time in which we can take it back. We are sorry.",
    "ask": "Please tell us the order number, which looks like TW-1234, and what is wrong.",
    "escalate": "A colleague will call you today about this. Please do not use the product until then.",
}


def main() -> None:
    """Answer the case on standard input."""
    case = json.load(sys.stdin)
    today = date.fromisoformat(case.get("metadata", {}).get("received_on", "2026-05-11"))
    decided = decide(case["input"], today)
    workspace = Path(os.environ.get("EVAL_WORKSPACE", "."))
    (workspace / "ticket.json").write_text(json.dumps(decided, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(
        f"Hello,\n\n{ANSWERS[decided['action']].format(**decided)}\n\nTarnwick returns desk\n"
    )


if __name__ == "__main__":
    main()
