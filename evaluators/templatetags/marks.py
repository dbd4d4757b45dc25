"""Draw the marks of the visual standard: icons, verdicts, outcomes, repetitions, bars, gates and trends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Protocol
from urllib.parse import quote

from django.template.loader import render_to_string
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from evaluators.scoring.decision import CausePart, VerdictCause
from evaluators.scoring.numbers import is_at_least
from evaluators.templatetags import figures
from evaluators.templatetags.figures import AnyNumber


class MarkedRepetition(Protocol):
    """One repetition of a case, as marks use it."""

    @property
    def number(self) -> int: ...
    @property
    def url(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def score(self) -> float | None: ...
    @property
    def people(self) -> str: ...


class MarkedOverride(Protocol):
    """The verdicts of people and of the machine on an execution or a case, as marks use it."""

    @property
    def machine(self) -> str: ...
    @property
    def people(self) -> str: ...
    @property
    def decided(self) -> str: ...
    @property
    def is_counted(self) -> bool: ...


VERDICT_WORDS = {
    "pass": "Pass",
    "borderline": "Borderline",
    "fail": "Fail",
    "error": "Errored",
    "running": "Running",
    "waiting": "Waiting",
    "cancelled": "Cancelled",
}
SYNONYMS = {"pending": "waiting", "queued": "waiting", "skipped": "cancelled", "": "waiting"}
STATUSES = {
    "queued": ("waiting", "v-waiting", "Waiting"),
    "running": ("running", "v-running", "Running"),
    "completed": ("", "i-check", "Completed"),
    "stopped": ("cancelled", "v-cancelled", "Cancelled"),
    "budget_reached": ("cancelled", "v-cancelled", "Budget reached"),
    "failed": ("error", "v-error", "Run failed"),
}
GATES = {
    "passed": ("pass", "Passed"),
    "failed": ("fail", "Failed"),
    "on_course": ("pass", "On course"),
    "at_risk": ("borderline", "At risk"),
    "out_of_reach": ("fail", "Can't pass"),
    "early": ("waiting", "Too early to say"),
    "open": ("waiting", "Not evaluated"),
}


@cache
def icon_names() -> frozenset[str]:
    """Return the ids in the sprite of every page."""
    return frozenset(
        re.findall(r'<symbol id="([^"]+)"', render_to_string("components/sprite.html"))
    )


@cache
def icon(name: str, extra: str = "", verdict: str = "") -> SafeString:
    """Draw an icon of the sprite; raise ValueError for an unknown name."""
    if name not in icon_names():
        raise ValueError(
            f"there is no icon {name!r}; the sprite has {', '.join(sorted(icon_names()))}"
        )
    return format_html(
        '<svg class="icon{}"{} aria-hidden="true"><use href="#{}"/></svg>',
        f" {extra}" if extra else "",
        tone_attribute(verdict),
        name,
    )


@cache
def mark_state(verdict: str) -> str:
    """Return the state of a mark; raise ValueError for a state without a mark."""
    state = SYNONYMS.get(verdict, verdict)
    if state not in VERDICT_WORDS:
        raise ValueError(f"{verdict!r} has no mark; use one of {', '.join(VERDICT_WORDS)}")
    return state


@cache
def tone_attribute(verdict: str) -> SafeString:
    """Return the attribute that gives an element the colour of a state."""
    return format_html(' data-verdict="{}"', verdict) if verdict else mark_safe("")


def shape(verdict: str) -> SafeString:
    """Draw the bare shape of a state in its colour."""
    state = mark_state(verdict)
    return icon(f"v-{state}", verdict=state)


def mark(name: str, word: str, state: str, size: str = "") -> SafeString:
    """Draw a shape and a word in the colour of a state."""
    return format_html(
        '<span class="verdict"{}{}>{}{}</span>',
        tone_attribute(state),
        format_html(' data-size="{}"', size) if size else "",
        icon(name),
        word,
    )


def verdict(value: str, text: str = "", size: str = "", word: str = "") -> SafeString:
    """Draw shape and word of a verdict; `text` follows the word, `word` replaces it."""
    state = mark_state(value)
    return mark(
        f"v-{state}", " ".join(filter(None, (word or VERDICT_WORDS[state], text))), state, size
    )


def status(value: str, size: str = "") -> SafeString:
    """Draw the status of a run, a `RunStatus`."""
    state, name, word = STATUSES[value]
    return mark(name, word, state, size)


def gate_verdict(state: str) -> SafeString:
    """Draw whether a gate passed: passed, failed, on_course, at_risk, out_of_reach, early or open."""
    tone, word = GATES[state]
    return verdict(tone, word=word)


def flip(before: str, after: str) -> SafeString:
    """Draw two verdicts with an arrow between them."""
    return format_html(
        '<span class="flip">{}{}{}</span>', verdict(before), icon("i-arrow"), verdict(after)
    )


def reviewed(override: MarkedOverride | None, state: str = "") -> SafeString:
    """Draw the verdicts of machine and people, with who decided and when; without an override only `state`."""
    if override is None:
        return verdict(state)
    is_confirmed = override.machine == override.people
    label = "confirmed by review" if is_confirmed else "reviewed as"
    counts = "counted" if override.is_counted else "not counted"
    word = VERDICT_WORDS[mark_state(override.people)].lower()
    title = f"Reviewed as {word}{f' ({override.decided})' if override.decided else ''}, {counts}"
    return format_html(
        '<span class="flip reviewed" title="{}">{}{}<span class="unseen">, {} </span>{}'
        '<span class="unseen">{}</span></span>',
        title,
        verdict(override.machine),
        icon("i-person"),
        label,
        "" if is_confirmed else verdict(override.people),
        f" ({override.decided})" if override.decided else "",
    )


def met(outcome: object) -> str:
    """Return all, some or no for an outcome: a boolean, 1 or 0, a share, or the word itself."""
    if outcome in ("all", "some", "no"):
        return str(outcome)
    share = float(outcome) if isinstance(outcome, bool | int | float | str) else 0.0
    return "all" if share >= 1 else "no" if share <= 0 else "some"


def pips(outcomes: Iterable[object], repetitions: int = 1) -> SafeString:
    """Draw one pip per expected outcome: `"1101"`, booleans, or shares of repetitions that met it."""
    states = [met(outcome) for outcome in outcomes]
    if not states:
        return format_html('<span class="quiet">{}</span>', figures.MISSING)
    count = states.count("all")
    some = states.count("some")
    every = " in every repetition" if repetitions > 1 else ""
    every += f", {some} in some" if repetitions > 1 and some else ""
    return format_html(
        '<span class="pips" role="img" aria-label="{} of {} outcomes met{}">{}</span> {}/{}',
        count,
        len(states),
        every,
        format_html_join("", "<i{}></i>", ((_unmet(state),) for state in states)),
        count,
        len(states),
    )


def _unmet(state: str) -> SafeString:
    return mark_safe("") if state == "all" else format_html(' data-met="{}"', state)


def reps(verdicts: Sequence[str]) -> SafeString:
    """Draw one shape per repetition."""
    words = ", ".join(VERDICT_WORDS[mark_state(value)].lower() for value in verdicts)
    shapes = format_html_join("", "{}", ((shape(value),) for value in verdicts))
    return format_html('<span class="reps" role="img" aria-label="{}">{}</span>', words, shapes)


def rep_links(repetitions: Sequence[MarkedRepetition], scale: int = 1) -> SafeString:
    """Draw one shape per repetition, linked to its result."""
    words = ", ".join(
        VERDICT_WORDS[mark_state(repetition.state)].lower() for repetition in repetitions
    )
    links = format_html_join(
        "",
        '<a href="{0}" title="{1}" aria-label="{1}"{3}>{2}</a>',
        (
            (
                repetition.url,
                _repetition_title(repetition, scale),
                shape(repetition.state),
                _review_mark(repetition.people),
            )
            for repetition in repetitions
        ),
    )
    return format_html('<span class="reps" role="group" aria-label="{}">{}</span>', words, links)


def rep_bar(counts: Mapping[str, int], url: str) -> SafeString:
    """Draw more repetitions than have a shape each: a strip of their states and how many passed."""
    label = ", ".join(
        f"{count} {VERDICT_WORDS[state].lower()}" for state, count in known_counts(counts)
    )
    return format_html(
        '<a class="rep-bar" href="{}" title="{}">{}<span class="num">{}/{}</span></a>',
        url,
        label,
        _strip(counts, mark_safe(' aria-hidden="true"')),
        counts.get("pass", 0),
        sum(counts.values()),
    )


def flaky() -> SafeString:
    """Draw the mark of a case whose repetitions differ in their verdicts."""
    return format_html(
        '<span class="tag" data-tone="warn" title="Verdicts of its repetitions differ">{}Flaky</span>',
        icon("i-flaky"),
    )


def _repetition_title(repetition: MarkedRepetition, scale: int) -> str:
    title = f"Repetition {repetition.number}: {VERDICT_WORDS[mark_state(repetition.state)].lower()}"
    title = (
        title if repetition.score is None else f"{title}, {figures.score(repetition.score, scale)}"
    )
    return (
        f"{title}, reviewed as {VERDICT_WORDS[repetition.people].lower()}"
        if repetition.people
        else title
    )


def _review_mark(people: str) -> SafeString:
    return mark_safe(" data-reviewed") if people else mark_safe("")


def mosaic(items: Iterable[tuple[str, str, str]]) -> SafeString:
    """Draw one mark per case from (verdict, address, title); the page also has a table with these facts."""
    rows = ((url, mark_state(value), title) for value, url, title in items)
    template = '<a href="{}" tabindex="-1" data-verdict="{}" title="{}"></a>'
    return format_html(
        '<div class="mosaic" aria-hidden="true">{}</div>', format_html_join("", template, rows)
    )


def delta(value: AnyNumber | None, unit: str, tone: str = "") -> SafeString:
    """Draw a change; set a tone (good, bad) only if its interval excludes 0."""
    toned_by = format_html(' data-tone="{}"', tone) if tone else ""
    return format_html('<span class="delta"{}>{}</span>', toned_by, figures.delta(value, unit))


SPARK_WIDTH, SPARK_EDGE, SPARK_TOP, SPARK_BOTTOM = 120, 2, 5, 23
JUST_BELOW = 1e-9


def known_counts(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the counts above 0 by state, in their fixed order."""
    totals = dict.fromkeys(VERDICT_WORDS, 0)
    for name, count in counts.items():
        totals[mark_state(name)] += count
    return [(state, count) for state, count in totals.items() if count]


RECT = '<rect data-verdict="{0}" x="{1}%" width="{2}%" height="100%"/>'


def dist(counts: Mapping[str, int], url: str = "") -> SafeString:
    """Draw the shares of the states as one strip; a `tally` belongs under it.

    With the `url` of a run each part leads to its cases, for the mouse: keys and screen readers use the tally.
    """
    if url:
        return _strip(counts, mark_safe(' aria-hidden="true"'), url)
    words = (f"{count} {VERDICT_WORDS[state].lower()}" for state, count in known_counts(counts))
    label = ", ".join(words) or "nothing yet"
    return _strip(counts, format_html(' role="img" aria-label="{}"', label))


def _strip(counts: Mapping[str, int], attributes: SafeString, url: str = "") -> SafeString:
    parts = known_counts(counts)
    total = sum(count for _, count in parts)
    rects, before = [], 0
    for state, count in parts:
        start, width = f"{before * 100 / total:.2f}", f"{count * 100 / total:.2f}"
        rects.append((state, start, width, cases_address(url, state) if url else ""))
        before += count
    template = f'<a href="{{3}}" tabindex="-1">{RECT}</a>' if url else RECT
    return format_html(
        '<svg class="dist"{}>{}</svg>', attributes, format_html_join("", template, rects)
    )


def cases_address(url: str, state: str, *, opens: bool = False) -> str:
    """Return the address of the cases of a run in a state, below the `url` of the run."""
    return f"{url}?verdict={state}{'&open=1' if opens else ''}#results-title"


def tally(
    counts: Mapping[str, int], short: bool = False, url: str = "", opens: bool = False
) -> SafeString:
    """List the counts of the states with their shapes; `short` hides the words, except from screen readers.

    With the `url` of a run each count leads to its cases; with `opens` those that did not pass open
    the first of them too.
    """
    word = '<span class="unseen">{3}</span>' if short else "{3}"
    item = f"{{1}}<b>{{2}}</b> {word}"
    linked = f'<a href="{{4}}">{item}</a>' if url else item
    items = (
        (
            state,
            icon(f"v-{state}"),
            figures.thousands(count),
            VERDICT_WORDS[state].lower(),
            cases_address(url, state, opens=opens and state != "pass") if url else "",
        )
        for state, count in known_counts(counts)
    )
    return format_html(
        '<ul class="tally">{}</ul>',
        format_html_join("", f'<li data-verdict="{{0}}">{linked}</li>', items),
    )


def bar(share: AnyNumber | None, limit: AnyNumber | None = None, state: str = "") -> SafeString:
    """Draw a share of 0 to 1 with a tick at its limit, in the colour of its state."""
    width = figures.down(min(max(float(share or 0), 0), 1) * 100, 2)
    tick = mark_safe("")
    if limit is not None:
        place = figures.threshold(limit)
        tick = format_html('<line x1="{0}" x2="{0}" y1="-3" y2="9"/>', place)
    return format_html(
        '<svg class="bar" aria-hidden="true"{}><rect width="100%" height="100%"/>'
        '<rect class="fill" width="{}%" height="100%"/>{}</svg>',
        tone_attribute(state),
        width,
        tick,
    )


def rate_bar(share: AnyNumber | None, low: AnyNumber | None, high: AnyNumber | None) -> SafeString:
    """Draw a share of 0 to 1 with its interval; "" without a share. The figures stand beside it."""
    if share is None:
        return mark_safe("")
    whisker = mark_safe("")
    if low is not None and high is not None:
        ends = [f"{figures.down(end * 100, 2)}%" for end in (low, high)]
        whisker = format_html(
            '<line x1="{0}" x2="{1}" y1="3" y2="3"/><line x1="{0}" x2="{0}" y1="-1" y2="7"/>'
            '<line x1="{1}" x2="{1}" y1="-1" y2="7"/>',
            *ends,
        )
    return format_html(
        '<svg class="bar rate" aria-hidden="true"><rect width="100%" height="100%"/>'
        '<rect class="fill" width="{}%" height="100%"/>{}</svg>',
        figures.down(share * 100, 2),
        whisker,
    )


def gate_row(
    name: str, share: AnyNumber | None, limit: AnyNumber, state: str, url: str = ""
) -> SafeString:
    """Draw one gate as a row of `dl.gates`; its figure leads to `url`."""
    return format_html(
        '<div><dt>{}</dt><dd>{}</dd><dd class="num">{}</dd><dd>{}</dd></div>',
        name,
        bar(share, limit, GATES[state][0]),
        rate_link(share, url),
        gate_verdict(state),
    )


def rate_link(share: AnyNumber | None, url: str) -> str:
    """Write a share as a rate that leads to `url`, without a link where there is none or no figure."""
    figure = figures.pct(share)
    return format_html('<a href="{}">{}</a>', url, figure) if url and share is not None else figure


class MarkedTrend(Protocol):
    """The metrics scores of several runs against one target, oldest first, from 0 to 1, as marks use them."""

    @property
    def target(self) -> str: ...
    @property
    def scores(self) -> Sequence[float]: ...


def spark(trend: MarkedTrend, limit: float | None = None, state: str = "") -> SafeString:
    """Draw the metrics scores of several runs against one target with their threshold."""
    points = trend.scores
    levels = [*points, limit] if limit is not None else list(points)
    low, high = min(levels), max(levels)
    span = (high - low) or 1.0

    def y(value: float) -> str:
        return f"{SPARK_BOTTOM - (value - low) / span * (SPARK_BOTTOM - SPARK_TOP):.1f}"

    step = (SPARK_WIDTH - 2 * SPARK_EDGE) / (len(points) - 1)
    places = [(f"{SPARK_EDGE + step * index:.1f}", y(value)) for index, value in enumerate(points)]
    return format_html(
        '<svg class="spark" viewBox="0 0 120 28" role="img" aria-label="{}">{}'
        '<polyline points="{}"/><circle{} cx="{}" cy="{}" r="2.5"/></svg>',
        _spark_label(trend, limit),
        _spark_limit(limit, y(limit)) if limit is not None else "",
        " ".join(f"{x},{height}" for x, height in places),
        tone_attribute(state),
        *places[-1],
    )


def _spark_limit(limit: float, y: str) -> SafeString:
    return format_html('<line class="limit" x1="0" x2="120" y1="{0}" y2="{0}"/>', y)


def _spark_label(trend: MarkedTrend, limit: float | None) -> str:
    needs = "" if limit is None else f", threshold {figures.threshold(limit)}"
    first, *_, last = trend.scores
    ends = f"from {figures.pct(first)} to {figures.pct(last)}"
    return f"Mean score of {trend.target} in its last {len(trend.scores)} runs, {ends}{needs}"


def meter(
    value: AnyNumber | None,
    label: str,
    low: AnyNumber = 0.6,
    high: AnyNumber = 0.8,
    top: AnyNumber = 1,
) -> SafeString:
    """Draw a score with the bands of its policy; nothing without a score."""
    if value is None:
        return mark_safe("<span></span>")
    # If the optimum equals `high`, browsers show everything above `low` as good.
    high = min(float(high), float(top) - JUST_BELOW)
    return format_html(
        '<meter min="0" max="{}" low="{}" high="{}" optimum="{}" aria-label="{}" value="{}">{}</meter>',
        figures.plain(top),
        figures.plain(min(float(low), high)),
        figures.plain(high),
        figures.plain(top),
        label,
        f"{figures.exact(value):f}",
        figures.score(value) if top == 1 else figures.tenth(value),
    )


def marked_score(value: AnyNumber | None, mark: AnyNumber | None, scale: int) -> SafeString:
    """Write an evaluator's score, coloured and labelled by its pass mark where it has one."""
    text = figures.score(value, scale)
    if value is None or mark is None:
        return format_html("{}", text)
    is_reached = is_at_least(float(value), float(mark))
    return marked_text(text, figures.bound(mark, scale), is_reached=is_reached)


def marked_text(text: str, limit: str, *, is_reached: bool) -> SafeString:
    """Write the text of a score, coloured and labelled by whether it reaches its pass mark."""
    label = f"at or above the pass mark {limit}" if is_reached else f"below the pass mark {limit}"
    return format_html(
        '<span class="tag" data-tone="{}" title="{}">{}<span class="unseen">, {}</span></span>',
        "good" if is_reached else "warn",
        label.capitalize(),
        text,
        label,
    )


def metric(
    name: str, value: AnyNumber, binary: bool = False, note: str = "", url: str = ""
) -> SafeString:
    """Draw one metric of 0 to 5 as a row of `dl.metrics` that leads to `url`; one that is binary reads pass or fail."""
    return format_html(
        '<div class="metric"><dt>{}{}</dt><dd>{}<span class="num">{}</span>'
        '<small data-tone="{}">{}</small></dd></div>',
        format_html('<a class="stretched" href="{}">{}</a>', url, name) if url else name,
        format_html(' <small class="quiet">{}</small>', note) if note else "",
        meter(value, name, 2.5, 3.5, 5),
        figures.tenth(value),
        figures.metric_tone(value, binary),
        figures.metric_label(value, binary),
    )


class DrawnMark(Protocol):
    """A shape or a text of a picture."""

    @property
    def shape(self) -> str: ...
    @property
    def at(self) -> Sequence[tuple[str, str]]: ...
    @property
    def kind(self) -> str: ...
    @property
    def verdict(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def symbol(self) -> str: ...


class DrawnSpot(Protocol):
    """A part of a picture that can be clicked."""

    @property
    def label(self) -> str: ...
    @property
    def url(self) -> str: ...
    @property
    def marks(self) -> Sequence[DrawnMark]: ...


class Drawn(Protocol):
    """A picture: across in percent of its width, down in pixels."""

    @property
    def height(self) -> int: ...
    @property
    def below(self) -> Sequence[DrawnMark]: ...
    @property
    def spots(self) -> Sequence[DrawnSpot]: ...
    @property
    def above(self) -> Sequence[DrawnMark]: ...


def drawing(drawn: Drawn, label: str) -> SafeString:
    """Draw a picture. Of its links one is reached by Tab, the others from there by arrow keys."""
    first = next((place for place, spot in enumerate(drawn.spots) if spot.url), None)
    return format_html(
        '<svg height="{}" role="group" aria-label="{}">{}{}{}</svg>',
        drawn.height,
        label,
        _draw_marks(drawn.below),
        format_html_join(
            "",
            "{}",
            (
                (_draw_spot(spot, is_first=place == first),)
                for place, spot in enumerate(drawn.spots)
            ),
        ),
        _draw_marks(drawn.above),
    )


def _draw_spot(spot: DrawnSpot, *, is_first: bool) -> SafeString:
    if not spot.url:
        return format_html(
            '<g data-tip role="img" aria-label="{}">{}</g>',
            spot.label,
            _draw_marks(spot.marks),
        )
    return format_html(
        '<a href="{}" data-tip aria-label="{}" tabindex="{}">{}</a>',
        spot.url,
        spot.label,
        "0" if is_first else "-1",
        _draw_marks(spot.marks),
    )


def _draw_marks(drawn: Iterable[DrawnMark]) -> SafeString:
    return format_html_join("", "{}", ((_draw_mark(one),) for one in drawn))


def _draw_mark(drawn: DrawnMark) -> SafeString:
    look = format_html(' class="{}"', drawn.kind) if drawn.kind else mark_safe("")
    look = format_html("{}{}", look, tone_attribute(drawn.verdict))
    at = format_html_join("", ' {}="{}"', drawn.at)
    if drawn.shape == "point":
        # A drawing inside the drawing stands at a place in percent, which a path cannot.
        return format_html('<svg{}><path{} d="{}"/></svg>', at, look, drawn.symbol)
    if drawn.shape == "text":
        # Only to look at: the label of the picture and its table say the same.
        return format_html('<text aria-hidden="true"{}{}>{}</text>', look, at, drawn.text)
    return format_html("<line{}{}/>" if drawn.shape == "line" else "<rect{}{}/>", look, at)


def cause(found: VerdictCause, *, links: bool = False) -> SafeString:
    """Draw why a result has its verdict; with `links`, each name leads to its evaluator on the page."""
    parts = (*found.parts, CausePart(" "), *found.to_change)
    return format_html(
        '<p class="cause"><strong>{}:</strong> {}</p>',
        found.word,
        format_html_join("", "{}", ((_cause_part(part, links=links),) for part in parts)),
    )


def _cause_part(part: CausePart, *, links: bool) -> SafeString | str:
    if part.path is None:
        return part.text
    name = format_html("<code>{}</code>", part.text)
    return format_html('<a href="#{}">{}</a>', node_id(part.path), name) if links else name


def node_id(path: str) -> str:
    """Return the id of an evaluator on the page of a result."""
    return f"at-{quote(path, safe='')}"
