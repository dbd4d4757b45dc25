"""The template library every page loads: figures, marks and components."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import SequenceMatcher
from typing import Any

from django import template
from django.template.context import Context
from django.utils import timezone
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString
from django.utils.text import slugify

from evaluators.templatetags import components, figures, marks
from evaluators.templatetags import marks as templatetags_marks
from evaluators.templatetags.figures import MISSING, AnyNumber
from evaluators.templatetags.markdown import markdown

MAX_GIST_LENGTH = 120


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step as a trace shows it; `left` and `width` are percent of the whole time."""

    name: str
    icon: str
    gist: str
    tone: str
    left: str
    width: str
    duration_ms: float | None
    input: str
    output: str
    error: str


def spelled(value: Any) -> str:
    """Return a text as it is and everything else as indented JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


def one_line(value: Any) -> str:
    """Return what fits beside a name: the values of an object, or the beginning of a text."""
    if isinstance(value, Mapping):
        value = ", ".join(
            part if isinstance(part, str) else json.dumps(part, ensure_ascii=False, default=str)
            for part in value.values()
        )
    text = " ".join(spelled(value).split())
    return text if len(text) <= MAX_GIST_LENGTH else f"{text[: MAX_GIST_LENGTH - 1]}…"


def lay_out(steps: Sequence[Mapping[str, Any]]) -> list[StepRow]:
    """Return the rows of a trace; a step without a start follows the one before it."""
    spans: list[tuple[float, float | None]] = []
    clock = 0.0
    for step in steps:
        start, length = step.get("started_ms"), step.get("duration_ms")
        begin = float(start) if start is not None else clock
        spans.append((begin, None if length is None else float(length)))
        clock = max(clock, begin + (length or 0))
    return [_row(step, span, clock) for step, span in zip(steps, spans, strict=True)]


def _row(step: Mapping[str, Any], span: tuple[float, float | None], total: float) -> StepRow:
    begin, length = span
    is_tool = step.get("type") == "tool"
    error = str(step.get("error") or "")
    tokens = [
        f"{figures.thousands(step[key])} {word}"
        for key, word in (("input_tokens", "in"), ("output_tokens", "out"))
        if step.get(key) is not None
    ]
    known = length is not None and total > 0
    return StepRow(
        name=str(step.get("name") or step.get("type") or "step"),
        icon="e-tool" if is_tool else "e-chat",
        gist=one_line(step.get("input")) if is_tool else ", ".join(tokens),
        tone="bad" if error else "tool" if is_tool else "",
        left=f"{begin * 100 / total:.2f}" if known else "",
        width=f"{max((length or 0) * 100 / total, 0.4):.2f}" if known else "",
        duration_ms=length,
        input=spelled(step.get("input")),
        output=spelled(step.get("output")),
        error=error,
    )


# About twenty lines of a phone.
MAX_OPEN_LENGTH = 1_000


def whole(text: object, name: str = "Whole text") -> SafeString:
    """Return a text; one of more than a thousand characters in a region that scrolls, by keyboard too.

    Nothing of it is left out. `name` is what the region is called when it is read aloud.
    """
    shown = str(text)
    if len(shown) <= MAX_OPEN_LENGTH:
        return escape(shown)
    return format_html(
        '<span class="long-text" tabindex="0" role="region" aria-label="{}">{}</span>', name, shown
    )


register = template.Library()
register.tags.update(components.register.tags)

for figure in (
    *(
        figures.score,
        figures.strip,
        figures.pct,
        figures.interval,
        figures.threshold,
        figures.plain,
        figures.bound,
        figures.points,
        figures.tenth,
    ),
    *(figures.metric_label, figures.metric_tone, figures.raw, figures.delta, figures.money),
    *(figures.execution_money, figures.at_least, figures.duration, figures.rough),
    *(figures.thousands, figures.counted, figures.sentence, markdown, one_line, spelled, whole),
):
    register.filter(figure.__name__, figure)

for tag in (
    *(marks.icon, marks.shape, marks.verdict, marks.status, marks.gate_verdict, marks.flip),
    *(marks.pips, marks.reps, marks.rep_links, marks.flaky, marks.mosaic, marks.delta),
    marks.reviewed,
    *(
        templatetags_marks.dist,
        templatetags_marks.tally,
        templatetags_marks.bar,
        templatetags_marks.gate_row,
        templatetags_marks.spark,
    ),
    *(templatetags_marks.meter, templatetags_marks.metric),
):
    register.simple_tag(tag, name=tag.__name__)

# Which entry of the rail a page belongs to, by the start of its view's name; the first that fits.
SECTIONS = (
    ("compare", ("runs:compare",)),
    ("runs", ("runs:run", "runs:result", "runs:campaign")),
    ("review", ("runs:review",)),
    ("targets", ("runs:target",)),
    ("workers", ("runs:workers",)),
    ("search", ("runs:search",)),
    ("audit", ("runs:audit",)),
    ("shares", ("runs:share",)),
    ("api", ("runs:api",)),
    ("tokens", ("access:token",)),
    ("suites", ("home", "runs:")),
    ("models", ("evaluators:language-model",)),
    ("evaluators", ("evaluators:",)),
    ("members", ("access:member",)),
    ("account", ("access:",)),
)


@register.filter
def age(then: datetime | None) -> str:
    """Say how long ago a time is, with the exact time one hover away."""
    if then is None:
        return MISSING
    local = timezone.localtime(then)
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        then.isoformat(timespec="seconds"),
        f"{local.day} {local:%b %Y, %H:%M:%S %Z}",
        figures.age(local, timezone.now()),
    )


@register.simple_tag(takes_context=True)
def current(context: Context, section: str) -> SafeString:
    """Mark the entry of the rail whose section this page is in."""
    request = context.get("request")
    match = getattr(request, "resolver_match", None)
    name = match.view_name if match else ""
    found = next((key for key, starts in SECTIONS if name.startswith(starts)), "")
    return format_html(' aria-current="{}"', "page") if name and found == section else SafeString()


@register.simple_tag(takes_context=True)
def cookie(context: Context, name: str, default: str) -> str:
    """Return a choice the reader made on this browser."""
    request = context.get("request")
    return str(request.COOKIES.get(name, default)) if request else default


@register.simple_block_tag
def panel(
    content: str, title: str, note: str = "", name: str = "", body: bool = False
) -> SafeString:
    """Draw a titled panel around its content; `body` pads it, `name` is its id."""
    name = name or slugify(title)
    return format_html(
        '<section class="panel" id="{0}" aria-labelledby="{0}-title"><header>'
        '<h2 id="{0}-title">{1}</h2>{2}</header>{3}</section>',
        name,
        title,
        format_html('<p class="push">{}</p>', note) if note else "",
        format_html('<div class="body">{}</div>', content) if body else content,
    )


@register.inclusion_tag("components/gate.html")
def gate(
    name: str, share: AnyNumber | None, limit: AnyNumber, state: str, note: str = ""
) -> dict[str, Any]:
    """Draw one gate in full: its share of 0 to 1, its threshold and what is left to do."""
    live = state in ("on_course", "at_risk", "out_of_reach")
    return {
        "name": name,
        "share": share,
        "limit": limit,
        "state": state,
        "note": note,
        "live": live,
        "tone": marks.GATES[state][0],
    }


@register.inclusion_tag("components/field.html")
def field(bound: Any, help_text: str = "") -> dict[str, Any]:
    """Draw a form's field with label, help and errors."""
    widget = bound.field.widget
    return {
        "field": bound,
        "help": help_text or bound.help_text,
        "is_switch": getattr(widget, "input_type", "") == "checkbox" and not widget.use_fieldset,
    }


@register.inclusion_tag("components/trace.html")
def trace(steps: Sequence[Mapping[str, Any]]) -> dict[str, list[StepRow]]:
    """Draw the steps a target took, each with its place in time."""
    return {"rows": lay_out(steps)}


@register.inclusion_tag("components/turns.html")
def turns(
    messages: Sequence[Mapping[str, Any]], agent: str = "", marker: str = ""
) -> dict[str, Any]:
    """Draw a conversation; what the agent wrote is read as Markdown, with its raw text one click away."""
    rows = [
        {
            "role": "agent" if message["role"] == "assistant" else "customer",
            "who": _who(str(message["role"]), agent),
            "text": spelled(message["content"]),
            "is_text": isinstance(message["content"], str),
        }
        for message in messages
    ]
    return {"rows": rows, "marker": marker}


def _who(role: str, agent: str) -> str:
    words = {"user": "Input", "assistant": "Output", "system": "System prompt", "tool": "Tool"}
    word = words.get(role, role.capitalize())
    return f"{word}, {agent}" if role == "assistant" and agent else word


WORD = re.compile(r"\s+|\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class TextPart:
    """A part of a text, and whether the other text lacks it."""

    text: str
    is_changed: bool


@dataclass(frozen=True, slots=True)
class TextDifference:
    """Two texts, each split into the parts it shares with the other and those it does not."""

    expected: tuple[TextPart, ...]
    output: tuple[TextPart, ...]


@register.simple_tag
def difference(details: Mapping[str, Any]) -> TextDifference:
    """Return where the expected text and the answer of a score differ, word by word."""
    expected, output = details["expected"], details["output"]
    first, second = WORD.findall(expected), WORD.findall(output)
    matcher = SequenceMatcher(None, first, second, autojunk=False)
    left: list[TextPart] = []
    right: list[TextPart] = []
    for operation, start, end, other_start, other_end in matcher.get_opcodes():
        is_changed = operation != "equal"
        left.append(TextPart("".join(first[start:end]), is_changed))
        right.append(TextPart("".join(second[other_start:other_end]), is_changed))
    return TextDifference(_with_cuts(left, details), _with_cuts(right, details))


def _with_cuts(parts: list[TextPart], details: Mapping[str, Any]) -> tuple[TextPart, ...]:
    before = TextPart("…" if details.get("starts_at") else "", is_changed=False)
    after = TextPart("…" if details.get("is_cut") else "", is_changed=False)
    return tuple(part for part in (before, *parts, after) if part.text)
