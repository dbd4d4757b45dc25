"""The template library that every page loads with `{% load ui %}`: figures, marks and components."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import groupby
from typing import Any, Protocol, TypeAlias

from django import template
from django.conf import settings
from django.contrib.staticfiles.storage import staticfiles_storage
from django.template.base import NodeList, Parser, TextNode, Token
from django.template.context import Context
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.html import conditional_escape, escape, format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import Truncator, slugify

from evaluators.templatetags import figures, marks
from evaluators.templatetags.figures import MISSING, AnyNumber
from evaluators.templatetags.markdown import PageMarkdown, markdown

# A letter with all its accents; no language needs more.
MAX_SIGNS = 8
MAX_GIST_LENGTH = 120
# About twenty lines of a phone.
MAX_OPEN_LENGTH, MAX_WHOLE_LENGTH = 1_000, 60_000

register = template.Library()

for figure in (
    *(figures.score, figures.strip, figures.pct, figures.interval, figures.threshold),
    *(figures.plain, figures.bound, figures.points, figures.tenth, figures.raw, figures.delta),
    *(figures.metric_label, figures.metric_tone, figures.money),
    *(figures.at_least, figures.duration, figures.rough, figures.thousands, figures.counted),
    *(figures.sentence, markdown),
):
    register.filter(figure.__name__, figure)

for mark in (
    *(marks.icon, marks.shape, marks.verdict, marks.status, marks.gate_verdict, marks.flip),
    *(
        marks.pips,
        marks.reps,
        marks.rep_links,
        marks.rep_bar,
        marks.flaky,
        marks.mosaic,
        marks.delta,
    ),
    *(marks.reviewed, marks.dist, marks.tally, marks.bar, marks.gate_row, marks.spark),
    *(marks.meter, marks.metric, marks.drawing, marks.rate_bar, marks.rate_link),
    *(marks.cause, marks.marked_score, marks.marked_text),
):
    register.simple_tag(mark, name=mark.__name__)

register.filter("node_id", marks.node_id)

register.simple_tag(figures.money_parts)


@register.filter
def as_text(value: Any) -> str:
    """Return a text as it is and everything else as indented JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


@register.filter
def one_line(value: Any) -> str:
    """Return a summary that fits on one line: the values of an object, or the start of a text."""
    if isinstance(value, Mapping):
        value = ", ".join(
            part if isinstance(part, str) else json.dumps(part, ensure_ascii=False, default=str)
            for part in value.values()
        )
    text = " ".join(as_text(value).split())
    return text if len(text) <= MAX_GIST_LENGTH else f"{text[: MAX_GIST_LENGTH - 1]}…"


@register.filter(is_safe=True)
def truncatechars(text: object, length: int) -> str:
    """Cut a text as Django's filter of this name does, but normalise no more of it than can be shown.

    The time of normalising grows with the square of the accents after a character.
    """
    whole = str(text)
    start = whole[: length * MAX_SIGNS]
    return Truncator(start if start == whole else f"{start}…").chars(length)


@register.filter
def breakable_path(path: str) -> SafeString:
    """Return the path of an evaluator, which breaks between its names and not within one where there is room."""
    return format_html_join(SafeString("/<wbr>"), "{}", ((name,) for name in path.split("/")))


@register.filter
def whole(text: object, name: str = "Whole text") -> SafeString:
    """Return the whole text; a long one goes into a region that scrolls, also by keyboard, and a very long one is cut.

    Screen readers announce the region by `name`.
    """
    shown = str(text)
    if (more := len(shown) - MAX_WHOLE_LENGTH) > 0:
        shown = f"{shown[:MAX_WHOLE_LENGTH]}\n… {figures.thousands(more)} characters more"
    if len(shown) <= MAX_OPEN_LENGTH:
        return escape(shown)
    return format_html(
        '<span class="long-text" tabindex="0" role="region" aria-label="{}">{}</span>', name, shown
    )


@register.filter
def age(then: datetime | None) -> str:
    """Show how long ago a time is; hovering shows the exact time."""
    if then is None:
        return MISSING
    local = timezone.localtime(then)
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        then.isoformat(timespec="seconds"),
        f"{local.day} {local:%b %Y, %H:%M:%S %Z}",
        figures.age(local, timezone.now()),
    )


# Marks the punctuation of a template while a `prose` block is rendered.
_JOIN = "\0"
_STARTS_WITH_PUNCTUATION = re.compile(r"\s*(?=[,;:.)])")
# Without the no-break space.
_WHITE_SPACE = re.compile(r"[ \t\r\n]+")
# Begun only where white space begins, so that a value of much of it costs no more than others.
_BEFORE_JOIN = re.compile(rf"(?<!\s)\s*+{_JOIN}")


class ProseNode(template.Node):
    """A sentence in pieces that stand on separate lines of the template."""

    def __init__(self, nodelist: NodeList) -> None:
        """Mark the places where a piece begins with punctuation."""
        self.nodelist = nodelist
        for node in nodelist.get_nodes_by_type(TextNode):
            if isinstance(node, TextNode) and node.s.strip():
                node.s = _STARTS_WITH_PUNCTUATION.sub(_JOIN, node.s, count=1)

    def render(self, context: Context) -> SafeString:
        """Join the pieces on one line, with no white space before punctuation of the template."""
        text = _BEFORE_JOIN.sub("", self.nodelist.render(context))
        return SafeString(_WHITE_SPACE.sub(" ", text).strip(" "))


@register.tag
def prose(parser: Parser, token: Token) -> ProseNode:
    """Write a sentence whose parts depend on conditions: `{% if a %}, with {{ a }}{% endif %}` joins what precedes it."""
    nodelist = parser.parse(("endprose",))
    parser.delete_first_token()
    return ProseNode(nodelist)


@register.simple_tag
def style_sheets() -> SafeString:
    """Link the site's style sheets: one file where they were collected, else each from its source.

    The font of the texts is fetched beside them, so that nothing is set in another first.
    """
    bundle = getattr(staticfiles_storage, "bundle", "")
    paths = [bundle] if bundle else [f"css/{name}.css" for name in settings.STYLE_SHEETS]
    links = ((staticfiles_storage.url(path),) for path in paths)
    font = format_html(
        '<link rel="preload" href="{}" as="font" type="font/woff2" crossorigin>\n',
        staticfiles_storage.url("fonts/inter-latin.woff2"),
    )
    return font + format_html_join("\n", '<link rel="stylesheet" href="{}">', links)


# The section of the sidebar a page belongs to, by the start of its view's name; the first match counts.
SECTIONS = (
    ("compare", ("runs:compare",)),
    ("runs", ("runs:run", "runs:result", "runs:campaign")),
    ("review", ("runs:review",)),
    ("targets", ("runs:target",)),
    ("workers", ("runs:workers",)),
    ("exports", ("runs:export",)),
    ("traces", ("runs:trace",)),
    ("retention", ("runs:retention", "runs:suite-retention")),
    ("search", ("runs:search",)),
    ("audit", ("runs:audit",)),
    ("mentions", ("runs:mentions",)),
    ("shares", ("runs:share",)),
    ("api", ("runs:api",)),
    ("tokens", ("access:token",)),
    ("suites", ("home", "runs:")),
    ("models", ("evaluators:language-model",)),
    ("evaluators", ("evaluators:",)),
    ("members", ("access:member",)),
    ("account", ("access:",)),
)


@register.simple_tag(takes_context=True)
def current(context: Context, *sections: str) -> SafeString:
    """Mark the section of the sidebar that this page belongs to; empty if it belongs to none of the sections."""
    request = context.get("request")
    match = getattr(request, "resolver_match", None)
    name = match.view_name if match else ""
    open_section = next((key for key, starts in SECTIONS if name.startswith(starts)), "")
    is_current = name and open_section in sections
    return format_html(' aria-current="{}"', "page") if is_current else SafeString()


@register.simple_tag(takes_context=True)
def modifier(context: Context, on_mac: str = "⌘", elsewhere: str = "Ctrl") -> str:
    """Return the name of the key that shortcuts are pressed with: `on_mac` for browsers on macOS."""
    request = context.get("request")
    agent = request.headers.get("User-Agent", "") if request else ""
    return on_mac if "Macintosh" in agent else elsewhere


@register.simple_tag(takes_context=True)
def cookie(context: Context, name: str, default: str) -> str:
    """Return a setting that the reader chose in this browser."""
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


@register.simple_block_tag
def banner(
    content: str, tone: str, icon: str, title: str, url: str = "", action: str = ""
) -> SafeString:
    """Show what happened and what it means; `tone` is good, warn, bad, error or live."""
    context = {"tone": tone, "icon": icon, "title": title, "url": url, "action": action}
    return _draw("banner", content, context)


@register.simple_block_tag
def empty_state(
    content: str,
    icon: str,
    title: str,
    url: str = "",
    action: str = "",
    second_url: str = "",
    second_action: str = "",
) -> SafeString:
    """Show why there is nothing here, with one or two next steps."""
    steps = [step for step in ((url, action), (second_url, second_action)) if step[0]]
    return _draw("empty_state", content, {"icon": icon, "title": title, "steps": steps})


@register.simple_block_tag(takes_context=True)
def confirm(
    context: Context,
    content: str,
    name: str,
    title: str,
    url: str,
    action: str,
    keep: str = "Cancel",
) -> SafeString:
    """Ask for confirmation in a dialog that a button with this name in `commandfor` opens.

    `keep` labels the button that changes nothing; "Cancel" would be ambiguous where the action cancels something.
    """
    own = {"name": name, "title": title, "url": url, "action": action, "keep": keep}
    return _draw("confirm", content, {**own, "csrf_token": context.get("csrf_token", "")})


def _draw(component: str, content: str, context: dict[str, Any]) -> SafeString:
    content = SafeString(content.strip())
    return render_to_string(f"components/{component}.html", {**context, "content": content})


@register.inclusion_tag("components/gate.html")
def gate(
    name: str, share: AnyNumber | None, limit: AnyNumber, state: str, note: str = "", url: str = ""
) -> dict[str, Any]:
    """Draw one gate in full: its share from 0 to 1, its threshold and what is still needed.

    The share leads to `url`, the cases behind it.
    """
    live = state in ("on_course", "at_risk", "out_of_reach", "early")
    return {
        "name": name,
        "share": share,
        "limit": limit,
        "state": state,
        "note": note,
        "url": url,
        "live": live,
        "tone": marks.GATES[state][0],
    }


@register.inclusion_tag("components/field.html", takes_context=True)
def field(context: Context, bound: Any, help_text: str = "") -> dict[str, Any]:
    """Draw a form's field with label, help and errors, and a button for members who may add a choice to it."""
    widget, adds = bound.field.widget, getattr(bound.field, "adds", None)
    user = getattr(context.get("request"), "user", None)
    return {
        "field": bound,
        "adds": adds if adds and user and user.has_perm(adds.permission) else None,
        "help": help_text or bound.help_text,
        "is_switch": getattr(widget, "input_type", "") == "checkbox" and not widget.use_fieldset,
    }


# Steps that are nested deeper are shown at this depth: their names need room.
MAX_DEPTH = 8
STEP_ICONS = {"tool": "e-tool", "agent": "e-panel", "retrieval": "i-search", "step": "e-composite"}


@register.filter
def step_icon(kind: object) -> str:
    """Return the icon of a step of this kind."""
    return STEP_ICONS.get(str(kind), "e-chat")


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step as a trace shows it; `left` and `width` are percent of the whole time, `depth` counts the steps above."""

    depth: int
    name: str
    icon: str
    gist: str
    tone: str
    left: str
    width: str
    duration_ms: float | None
    cost_usd: Decimal | None
    input: str
    output: str
    error: str


@register.inclusion_tag("components/trace.html")
def trace(steps: Sequence[Mapping[str, Any]], count: int = 0) -> dict[str, Any]:
    """Draw the steps a target took as a tree, on a time line; these may be the first of `count`."""
    rows = step_rows(steps)
    has_costs = any(row.cost_usd is not None for row in rows)
    return {"rows": rows, "count": count, "has_costs": has_costs}


def steps_with_depth(
    steps: Iterable[Mapping[str, Any]],
) -> list[tuple[int, Mapping[str, Any]]]:
    """Return steps with their depth, each after the step that it is part of.

    A step whose parent is unknown, or part of it in turn, is part of none.
    """
    listed = list(steps)
    ids = {step["id"] for step in listed if step.get("id")}
    below: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for step in listed:
        parent = str(step.get("parent_id") or "")
        below[parent if parent in ids and parent != step.get("id") else ""].append(step)
    ordered: list[tuple[int, Mapping[str, Any]]] = []
    seen: set[int] = set()
    # The first steps of circles follow those that are reached from the top.
    for first in (*below[""], *listed):
        waiting = [(0, first)]
        while waiting:
            depth, step = waiting.pop()
            if id(step) not in seen:
                seen.add(id(step))
                ordered.append((depth, step))
                parts = below.pop(step["id"], []) if step.get("id") else []
                waiting += ((depth + 1, part) for part in reversed(parts))
    return ordered


def step_rows(steps: Sequence[Mapping[str, Any]]) -> list[StepRow]:
    """Return the rows of a trace; a step without a start follows the one before it."""
    ordered = steps_with_depth(steps)
    spans: list[tuple[float, float | None]] = []
    clock = 0.0
    for _, step in ordered:
        start, length = step.get("started_ms"), step.get("duration_ms")
        begin = float(start) if start is not None else clock
        spans.append((begin, None if length is None else float(length)))
        clock = max(clock, begin + (length or 0))
    return [
        _row(step, min(depth, MAX_DEPTH), span, clock)
        for (depth, step), span in zip(ordered, spans, strict=True)
    ]


def _row(
    step: Mapping[str, Any], depth: int, span: tuple[float, float | None], total: float
) -> StepRow:
    begin, length = span
    is_tool = step.get("type") == "tool"
    error = str(step.get("error") or "")
    tokens = [
        f"{figures.thousands(step[key])} {word}"
        for key, word in (("input_tokens", "tokens in"), ("output_tokens", "tokens out"))
        if step.get(key) is not None
    ]
    is_timed = length is not None and total > 0
    return StepRow(
        depth=depth,
        name=str(step.get("name") or step.get("type") or "step"),
        icon=step_icon(step.get("type")),
        gist=one_line(step.get("input")) if is_tool else ", ".join(tokens),
        tone="bad"
        if error
        else "tool"
        if is_tool
        else ""
        if step.get("type") == "model"
        else "quiet",
        left=f"{begin * 100 / total:.2f}" if is_timed else "",
        width=f"{max((length or 0) * 100 / total, 0.4):.2f}" if is_timed else "",
        duration_ms=length,
        cost_usd=None if step.get("cost_usd") is None else Decimal(step["cost_usd"]),
        input=as_text(step.get("input")),
        output=as_text(step.get("output")),
        error=error,
    )


MAX_TURNS = 300


class Marker(Protocol):
    """What marks words in clean HTML."""

    def html(self, html: SafeString) -> SafeString:
        """Return the HTML with the words marked."""


@register.filter
def marked(text: str, marks: Marker | str | None) -> SafeString:
    """Return clean HTML, or a text, with the words marked that a page was opened for; as it is where there are none."""
    html = conditional_escape(text)
    return html if marks is None or isinstance(marks, str) else marks.html(html)


@register.inclusion_tag("components/turns.html")
def turns(
    messages: Sequence[Mapping[str, Any]],
    agent: str = "",
    marks: Marker | None = None,
    is_titled: bool = False,
) -> dict[str, Any]:
    """Draw the first turns of a conversation; the agent's are Markdown, with the raw text one click away.

    `marks` marks words in them. Where a heading says what they are, `is_titled`, a single turn needs no title, and
    each of several says who speaks.
    """
    page = PageMarkdown()
    rows = [
        {
            "role": "agent" if message["role"] == "assistant" else "customer",
            "speaker": _speaker(str(message["role"]), agent, is_titled=is_titled),
            "text": as_text(message["content"]),
            "is_text": isinstance(content := message["content"], str),
            "html": page.html(content)
            if message["role"] == "assistant" and isinstance(content, str)
            else "",
        }
        for message in messages[:MAX_TURNS]
    ]
    has_speakers = not is_titled or len(messages) > 1
    return {"rows": rows, "marks": marks, "total": len(messages), "has_speakers": has_speakers}


def _speaker(role: str, agent: str, *, is_titled: bool) -> str:
    if is_titled:
        return role.capitalize()
    names = {"user": "Input", "assistant": "Output", "system": "System prompt", "tool": "Tool"}
    name = names.get(role, role.capitalize())
    return f"{name}, {agent}" if role == "assistant" and agent else name


@dataclass(frozen=True, slots=True)
class TextPart:
    """A part of a text; it is changed if the other text lacks it."""

    text: str
    is_changed: bool


@register.simple_tag
def diff_line(tone: str, parts: Iterable[TextPart], label: str = "") -> SafeString:
    """Draw a line of a diff: "bad" was removed, "good" was added, "same" is in both.

    The style sheet preserves white space, so the markup adds none.
    """
    if tone == "same":
        return format_html("<p>{}</p>", "".join(part.text for part in parts))
    element, name = ("del", "before") if tone == "bad" else ("ins", "after")
    text = SafeString(
        "".join(
            format_html("<{0}>{1}</{0}>", SafeString(element), part.text)
            if part.is_changed
            else escape(part.text)
            for part in parts
        )
    )
    return format_html(
        '<p data-tone="{}"><span class="unseen">{}: </span>{}</p>', tone, label or name, text
    )


WORD = re.compile(r"\s+|\w+|[^\w\s]")
TextParts: TypeAlias = tuple[TextPart, ...]


@dataclass(frozen=True, slots=True)
class TextDifference:
    """Two texts, each split into shared and changed parts."""

    expected: TextParts
    output: TextParts


@register.simple_tag
def difference(details: Mapping[str, Any]) -> TextDifference:
    """Compare the expected text and the answer of a score word by word."""
    words = (WORD.findall(details[name]) for name in ("expected", "output"))
    expected, output = compare_words(*words)
    return TextDifference(_with_cuts(expected, details), _with_cuts(output, details))


def compare_words(old: Sequence[str], new: Sequence[str]) -> tuple[TextParts, TextParts]:
    """Return the parts of two texts, given by their words."""
    blocks = [*changed_blocks(old, new)]
    before = (TextPart("".join(words), is_changed) for is_changed, words, _ in blocks if words)
    after = (TextPart("".join(words), is_changed) for is_changed, _, words in blocks if words)
    return tuple(before), tuple(after)


def changed_blocks(
    old: Sequence[str], new: Sequence[str]
) -> Iterator[tuple[bool, Sequence[str], Sequence[str]]]:
    """Yield whether a block is changed, and its parts of both; the parts are the same where it is not."""
    # Its library takes 50 ms to load, which few pages need. difflib takes cubic time where a part repeats.
    from rapidfuzz.distance import Indel

    steps = Indel.opcodes(old, new)
    for is_changed, block in groupby(steps, lambda step: step.tag != "equal"):
        parts = [*block]
        first, last = parts[0], parts[-1]
        old_part = old[first.src_start : last.src_end]
        yield is_changed, old_part, new[first.dest_start : last.dest_end]


def _with_cuts(parts: TextParts, details: Mapping[str, Any]) -> TextParts:
    before = TextPart("…", is_changed=False) if details.get("starts_at") else None
    after = TextPart("…", is_changed=False) if details.get("is_cut") else None
    return tuple(part for part in (before, *parts, after) if part)
