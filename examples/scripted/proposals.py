"""Instructions for a judge, as a model would propose them; `scripted.metrics` follows two of them."""

from __future__ import annotations

from scripted.asking import Asked

LABEL, NONE = "instructions", "(none)"
MISSED = "If something that was expected of the answer is missing, or it claims what no tool did,"
CAPPED = f"{MISSED} no metric scores more than 2."
TAKES_OFF = "Take one point off every metric for each thing that was expected and is missing."
PROPOSALS = (
    (
        "People fail an answer that leaves out what was asked for, however well it reads; the judge passes it.",
        f"{CAPPED} Friendly words do not make up for it. An answer that does all of it may score 5, also if it is short.",
    ),
    (
        "The judge scores each metric by itself, so a miss costs one metric and is lost in the mean.",
        f"{TAKES_OFF} Detail beyond what was asked for earns nothing.",
    ),
    (
        "People seem to mind a cold tone.",
        "Give the highest score only to an answer that greets the person and says what it is sorry for.",
    ),
)


def proposals(asked: Asked) -> dict[str, list[dict[str, str]]]:
    """Return as many candidates as are asked for, each with its reason: today's instructions and an addition."""
    today = asked.quoted.get(LABEL, NONE)
    begin = "" if today == NONE else f"{today}\n\n"
    most = asked.schema["properties"]["candidates"]["maxItems"]
    return {
        "candidates": [
            {"reason": reason, "text": f"{begin}{addition}"}
            for reason, addition in PROPOSALS[:most]
        ]
    }
