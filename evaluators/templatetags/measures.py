"""Draw the measures of the visual standard: strips, bars, gates, trends and meters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from evaluators.templatetags import figures
from evaluators.templatetags.figures import Number
from evaluators.templatetags.marks import GATES, VERDICT_WORDS, gate_verdict, icon, known, toned

SPARK_WIDTH, SPARK_EDGE, SPARK_TOP, SPARK_BOTTOM = 120, 2, 5, 23
JUST_BELOW = 1e-9


def known_counts(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the counts above 0 by state, in the order they are always shown."""
    found = dict.fromkeys(VERDICT_WORDS, 0)
    for name, count in counts.items():
        found[known(name)] += count
    return [(state, count) for state, count in found.items() if count]


def dist(counts: Mapping[str, int]) -> SafeString:
    """Draw the shares of the states as one strip; a `tally` belongs under it."""
    parts = known_counts(counts)
    total = sum(count for _, count in parts)
    label = ", ".join(f"{count} {VERDICT_WORDS[state].lower()}" for state, count in parts)
    rects, before = [], 0
    for state, count in parts:
        rects.append((state, f"{before * 100 / total:.2f}", f"{count * 100 / total:.2f}"))
        before += count
    return format_html(
        '<svg class="dist" role="img" aria-label="{}">{}</svg>',
        label or "nothing yet",
        format_html_join("", '<rect data-verdict="{}" x="{}%" width="{}%" height="100%"/>', rects),
    )


def tally(counts: Mapping[str, int], short: bool = False) -> SafeString:
    """List the counts of the states with their shapes; `short` keeps the words for readers alone."""
    template = '<span class="unseen">{}</span>' if short else "{}"
    items = (
        (state, icon(f"v-{state}"), figures.thousands(count), format_html(template, word.lower()))
        for state, count in known_counts(counts)
        for word in (VERDICT_WORDS[state],)
    )
    return format_html(
        '<ul class="tally">{}</ul>',
        format_html_join("", '<li data-verdict="{}">{}<b>{}</b> {}</li>', items),
    )


def bar(share: Number | None, limit: Number | None = None, state: str = "") -> SafeString:
    """Draw a share of 0 to 1 with a tick at its limit, grey for a pass in a table of gates."""
    width = figures.down(min(max(float(share or 0), 0), 1) * 100, 2)
    tick = mark_safe("")
    if limit is not None:
        place = figures.threshold(limit)
        tick = format_html('<line x1="{0}" x2="{0}" y1="-3" y2="9"/>', place)
    return format_html(
        '<svg class="bar" aria-hidden="true"{}><rect width="100%" height="100%"/>'
        '<rect class="fill" width="{}%" height="100%"/>{}</svg>',
        toned(state),
        width,
        tick,
    )


def gate_row(name: str, share: Number | None, limit: Number, state: str) -> SafeString:
    """Draw one gate as a row of `dl.gates`."""
    return format_html(
        '<div><dt>{}</dt><dd>{}</dd><dd class="num">{}</dd><dd>{}</dd></div>',
        name,
        bar(share, limit, GATES[state][0]),
        figures.pct(share),
        gate_verdict(state),
    )


def spark(points: Sequence[float], limit: float | None = None, state: str = "") -> SafeString:
    """Draw the metrics score of a row of runs, oldest first, shares of 0 to 1, with its threshold."""
    if not points:
        return format_html('<span class="quiet">{}</span>', figures.MISSING)
    levels = [*points, limit] if limit is not None else list(points)
    low, high = min(levels), max(levels)
    span = (high - low) or 1.0

    def y(value: float) -> str:
        return f"{SPARK_BOTTOM - (value - low) / span * (SPARK_BOTTOM - SPARK_TOP):.1f}"

    step = (SPARK_WIDTH - 2 * SPARK_EDGE) / max(len(points) - 1, 1)
    first = SPARK_EDGE if len(points) > 1 else SPARK_WIDTH - SPARK_EDGE
    places = [(f"{first + step * index:.1f}", y(value)) for index, value in enumerate(points)]
    return format_html(
        '<svg class="spark" viewBox="0 0 120 28" role="img" aria-label="{}">{}'
        '<polyline points="{}"/><circle{} cx="{}" cy="{}" r="2.5"/></svg>',
        _spark_label(points, limit),
        _spark_limit(limit, y(limit)) if limit is not None else "",
        " ".join(f"{x},{height}" for x, height in places),
        toned(state),
        *places[-1],
    )


def _spark_limit(limit: float, y: str) -> SafeString:
    return format_html('<line class="limit" x1="0" x2="120" y1="{0}" y2="{0}"/>', y)


def _spark_label(points: Sequence[float], limit: float | None) -> str:
    needs = "" if limit is None else f", threshold {figures.threshold(limit)}"
    if len(points) == 1:
        return f"Metrics score of the only run, {figures.pct(points[0])}{needs}"
    ends = f"from {figures.pct(points[0])} to {figures.pct(points[-1])}"
    return f"Metrics score of the last {len(points)} runs, {ends}{needs}"


def meter(
    value: Number | None, label: str, low: Number = 0.6, high: Number = 0.8, top: Number = 1
) -> SafeString:
    """Draw a score against the bands of its policy; nothing when there is none."""
    if value is None:
        return mark_safe("<span></span>")
    # A meter whose best is its own upper bound would show everything above `low` as good.
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


def metric(name: str, value: Number, binary: bool = False, note: str = "") -> SafeString:
    """Draw one metric of 0 to 5 as a row of `dl.metrics`; one that is binary reads pass or fail."""
    return format_html(
        '<div class="metric"><dt>{}{}</dt><dd>{}<span class="num">{}</span>'
        '<small data-tone="{}">{}</small></dd></div>',
        name,
        format_html(' <small class="quiet">{}</small>', note) if note else "",
        meter(value, name, 2.5, 3.5, 5),
        figures.tenth(value),
        figures.metric_tone(value, binary),
        figures.metric_label(value, binary),
    )
