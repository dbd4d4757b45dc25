"""The answer must say what the ticket does: a promise without a booking is the worst of both."""

from __future__ import annotations

import json
import sys

from left import ticket

# What an answer to this action has to mention, each in one of these forms.
WORDS = {
    "refund": (("refund", "paid back"),),
    "credit": (("credit",),),
    "replace": (("replace",),),
    "resend": (("send it again", "resend"),),
    "wait": (("on its way",),),
    "refuse": (("past the time", "cannot take"),),
    "ask": (("order number",),),
    "escalate": (("colleague",), ("today",)),
}


def main() -> None:
    """Print which of the words were found."""
    answer, left = json.load(sys.stdin)["output"].lower(), ticket()
    if left is None or left.get("action") not in WORDS:
        print(json.dumps({"score": 0, "misses": ["left no ticket to agree with"]}))
        return
    checks = [
        {"text": f"says {' or '.join(forms)}", "passed": any(form in answer for form in forms)}
        for forms in WORDS[left["action"]]
    ]
    if left["amount_eur"] != "0.00":
        checks.append(
            {"text": f"names {left['amount_eur']} EUR", "passed": left["amount_eur"] in answer}
        )
    passed = sum(bool(check["passed"]) for check in checks)
    print(json.dumps({"score": passed / len(checks), "assertions": checks}))


if __name__ == "__main__":
    main()
