"""The reply of a metrics judge: every metric with its justification, every outcome met or missed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scripted.asking import Asked
from scripted.marking import Marked, draw, sentence_with
from scripted.proposals import CAPPED, TAKES_OFF

HIGHEST = 5
ONE_SLIP_IN = 6
# What the instructions allow where something is missing.
CAP = 2
OF_TOOLS = ("tool_routing", "parameter_extraction", "result_interpretation")
# For each metric what is said when all is well and when there is a small slip; {called}, {first} and {last}
# are the calls made, and the first and last sentence of the answer.
SAYINGS: Mapping[str, tuple[str, str]] = {
    "tool_routing": ("{called}", "{called} One look-up could have been spared."),
    "parameter_extraction": (
        "Names, dates and numbers reached the tools as the traveller gave them.",
        "All of it right, though one date was passed on as text where the tool takes a day.",
    ),
    "result_interpretation": (
        "What the tools returned is what the answer says: “{first}”.",
        "Read correctly; the second result of the list goes unmentioned.",
    ),
    "grounding_fidelity": (
        "Nothing is stated that no tool and no rule says.",
        "“{last}” is common sense and in no source; it does no harm here.",
    ),
    "instruction_compliance": (
        "Keeps to the rules of the desk: price with currency, no promise for others.",
        "Keeps to the rules of the desk but for the order number, which comes last instead of first.",
    ),
    "information_gathering": (
        "Knew or asked for all it needed before it acted.",
        "One question more would have made the choice certain.",
    ),
    "conversation_management": (
        "Picks up what was asked and ends where the traveller can go on.",
        "Answers everything, in another order than it was asked.",
    ),
    "response_delivery": (
        "Short, in order and in plain words: “{first}”.",
        "Clear, with a sentence more than a message needs.",
    ),
    "task_completion": ("What was asked for is done.", "What was asked for is done."),
}  # fmt: skip


def metrics(asked: Asked, marked: Marked) -> dict[str, Any]:
    """Return reasoning, metrics and, where they are asked for, outcomes."""
    shapes = asked.schema["properties"]["metrics"]["properties"]
    said: dict[str, Any] = {
        "reasoning": _reasoning(marked),
        "metrics": {key: _metric(key, shape, asked, marked) for key, shape in shapes.items()},
    }
    if "outcomes" in asked.parts():
        said["outcomes"] = [
            {
                "number": number,
                "justification": f"{point.said}: “{quote}”." if quote else point.missed,
                "passed": bool(quote),
            }
            for number, (point, quote) in enumerate(marked.points, 1)
        ]
    return said


def _metric(
    key: str, shape: Mapping[str, Any], asked: Asked, marked: Marked
) -> Mapping[str, object]:
    cost, why = marked.against(key)
    is_tested = bool(asked.tools) or key not in OF_TOOLS
    slips = not why and is_tested and draw(asked.target, asked.case, key, among=ONE_SLIP_IN) == 0
    if "passed" in shape["properties"]:
        passed = marked.quality >= 1
        text = SAYINGS["task_completion"][0] if passed else marked.misses()[0]
        return {"justification": text, "passed": passed}
    score = max(0, HIGHEST - round(cost) - slips)
    if TAKES_OFF in asked.text:
        score = max(0, score - len(marked.misses()))
    if CAPPED in asked.text and marked.quality < 1:
        score = min(score, CAP)
    return {"justification": " ".join(why) or _well(key, asked, slips=slips), "score": score}


def _well(key: str, asked: Asked, *, slips: bool) -> str:
    if key in OF_TOOLS and not asked.tools:
        return "No tool was called, and nothing of this kind could go wrong."
    sentences = [
        sentence.strip()
        for sentence in asked.answer.replace("\n", " ").split(". ")
        if sentence.strip()
    ]
    first, last = (
        sentence_with(asked.answer, sentence) for sentence in (sentences[0], sentences[-1])
    )
    saying = SAYINGS.get(key, SAYINGS["response_delivery"])[slips]
    return saying.format(called=_called(asked.tools), first=first, last=last)


def _called(tools: Sequence[str]) -> str:
    return f"Called {', then '.join(tools)}, which is to the point."


def _reasoning(marked: Marked) -> str:
    misses = marked.misses()
    if not misses:
        return "The agent looked up what it needed, did what was asked and said so plainly."
    return f"The agent got part of the way. {' '.join(misses[:2])}"
