"""The panel of a what-if: figures before and after with their differences, the histogram of scores, and flips."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from django.contrib.auth.models import User

from evaluators.scoring.numbers import SCALE_DIGITS, rounded
from evaluators.templatetags import figures
from evaluators.templatetags.marks import VERDICT_WORDS
from runs import lists
from runs.filters.language import MAX_LENGTH, FieldComparison, Operator, QuotedValue
from runs.filters.queries import ResultsQuery
from runs.formats.tables import csv_text
from runs.lists import Chip, ListQuery, NumberedPage, numbered_page
from runs.models.reviews import Review
from runs.models.runs import Run
from runs.models.suites import Case
from runs.summary.run import GateResult
from runs.what_if.asking import Band, CaseFlip, Histogram, ScoreBin, WhatIf, WhatIfSide
from runs.what_if.deciding import Stale

WIDE, NARROW = 760, 330
TOP, BASE = 26.0, 110.0
GAP = 0.08
TICK = 0.2
LABEL_ROOM = 104
# Heights of the band labels: the borderline label is below the pass label, so that they never overlap.
BAND_LABEL_Y = {"pass": 9, "borderline": 20, "fallback": 9}


@dataclass(frozen=True, slots=True)
class ScoreBar:
    """An upright rectangle in units of its drawing. `verdict` is that of its band, "" without bands."""

    verdict: str
    x: str
    y: str
    width: str
    height: str


@dataclass(frozen=True, slots=True)
class AxisMark:
    """A position on the axis with a text; `anchor` is the part of the text at `text_x`: start, middle or end.

    A threshold that can be dragged has the `field` it sets, that field's `label` and `value`, and the value as `shown`.
    """

    x: str
    text: str = ""
    text_x: str = ""
    y: int = 0
    anchor: str = "middle"
    field: str = ""
    label: str = ""
    value: str = ""
    shown: str = ""


@dataclass(frozen=True, slots=True)
class HistogramDrawing:
    """The histogram in one width. `outlines` are the bars before that differ, `old_bands` the bands before that differ.

    `low` is the score, of `scale`, at the left end of the axis.
    """

    width: int
    low: str
    scale: int
    bars: Sequence[ScoreBar]
    outlines: Sequence[ScoreBar]
    ticks: Sequence[AxisMark]
    bands: Sequence[AxisMark]
    old_bands: Sequence[AxisMark]


@dataclass(frozen=True, slots=True)
class BinRow:
    """A row of the table under the histogram."""

    scores: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class ScoreHistogram:
    """The histogram in both widths, a text that describes it, and its table."""

    wide: HistogramDrawing
    narrow: HistogramDrawing
    label: str
    rows: Sequence[BinRow]

    @property
    def has_outlines(self) -> bool:
        """Tell whether any bar was higher or lower before."""
        return bool(self.wide.outlines)

    @property
    def has_old_bands(self) -> bool:
        """Tell whether a band had another limit before."""
        return bool(self.wide.old_bands)


def score_histogram(histogram: Histogram, scale: int) -> ScoreHistogram:
    """Return the histogram of executions by score; bands and ticks are on the scale of the suite."""
    rows = [
        BinRow(
            f"{figures.score(bin_.low, scale)} to {figures.score(bin_.high, scale)}",
            bin_.before,
            bin_.after,
        )
        for bin_ in histogram.bins
        if bin_.before or bin_.after
    ]
    bands = ", ".join(
        f"{band.name} from {figures.bound(band.limit, scale)}" for band in histogram.bands_after
    )
    count = sum(bin_.after for bin_ in histogram.bins)
    return ScoreHistogram(
        wide=_draw(histogram, WIDE, scale),
        narrow=_draw(histogram, NARROW, scale),
        label=f"Histogram of the scores of {figures.counted(count, 'result')}; {bands}",
        rows=rows,
    )


def _draw(histogram: Histogram, width: int, scale: int) -> HistogramDrawing:
    low = _axis_start(histogram)
    highest = max((max(bin_.before, bin_.after) for bin_ in histogram.bins), default=0) or 1

    def at(score: float) -> float:
        return (score - low) / (1 - low) * width

    def bar(verdict: str, left: float, right: float, count: int) -> ScoreBar:
        height = (BASE - TOP) * count / highest
        lengths = (at(left), BASE - height, at(right) - at(left), height)
        return ScoreBar(verdict, *(f"{length:.1f}" for length in lengths))

    bars, outlines = [], []
    for bin_ in histogram.bins:
        if bin_.after:
            parts = _bar_parts(bin_, histogram.bands_after)
            bars += [bar(verdict, left, right, bin_.after) for verdict, left, right in parts]
        if bin_.before and bin_.before != bin_.after:
            left, right = _bar_ends(bin_)
            outlines.append(bar("", left, right, bin_.before))
    limits = {band.name: band.limit for band in histogram.bands_after}
    old_bands = [band for band in histogram.bands_before if limits.get(band.name) != band.limit]
    return HistogramDrawing(
        width=width,
        low=figures.plain(rounded(low * scale)),
        scale=scale,
        bars=bars,
        outlines=outlines,
        ticks=[_tick(score, at(score), width, scale) for score in _ticks(low)],
        bands=[_band(band, at(band.limit), scale) for band in histogram.bands_after],
        old_bands=[AxisMark(f"{at(band.limit):.1f}") for band in old_bands],
    )


def _axis_start(histogram: Histogram) -> float:
    """Return where the axis begins: at a tick at or below every bar and band."""
    drawn = [bin_.low for bin_ in histogram.bins if bin_.before or bin_.after]
    drawn += [band.limit for band in (*histogram.bands_before, *histogram.bands_after)]
    ticks = int(rounded(min(drawn, default=0.0) / TICK))
    return rounded(min(ticks, 4) * TICK)


def _ticks(low: float) -> Iterator[float]:
    first = round(low / TICK)
    yield from (rounded(number * TICK) for number in range(first, round(1 / TICK) + 1))


def _bar_ends(bin_: ScoreBin) -> tuple[float, float]:
    gap = (bin_.high - bin_.low) * GAP / 2
    return bin_.low + gap, bin_.high - gap


def _bar_parts(bin_: ScoreBin, bands: Sequence[Band]) -> list[tuple[str, float, float]]:
    """Return the parts of a bar; it is cut where a band begins inside it."""
    left, right = _bar_ends(bin_)
    cuts = sorted({band.limit for band in bands if left < band.limit < right})
    ends = [left, *cuts, right]
    return [(_verdict((start + end) / 2, bands), start, end) for start, end in pairwise(ends)]


def _verdict(score: float, bands: Sequence[Band]) -> str:
    """Return the verdict of a score by its band, "" if scores alone do not decide."""
    limits = {band.name: band.limit for band in bands}
    if "pass" not in limits:
        return ""
    if score >= limits["pass"]:
        return "pass"
    return "borderline" if score >= limits["borderline"] else "fail"


def _tick(score: float, x: float, width: int, scale: int) -> AxisMark:
    anchor = "start" if x <= 1 else "end" if x >= width - 1 else "middle"
    return AxisMark(f"{x:.1f}", figures.score(score, scale), anchor=anchor)


# The fields of the editor that a threshold's line sets.
BAND_FIELDS = {
    "borderline": ("borderline_threshold", "Borderline threshold"),
    "pass": ("pass_threshold", "Pass threshold"),
}


def _band(band: Band, x: float, scale: int) -> AxisMark:
    shown = figures.bound(band.limit, scale)
    field, label = BAND_FIELDS.get(band.name, ("", ""))
    has_room = x > LABEL_ROOM
    return AxisMark(
        f"{x:.1f}",
        f"{band.name} {shown}",
        f"{x - 5:.1f}" if has_room else f"{x + 5:.1f}",
        BAND_LABEL_Y[band.name],
        "end" if has_room else "start",
        field=field,
        label=label,
        value=figures.plain(rounded(band.limit * scale)),
        shown=shown,
    )


MATRIX_STATES = ("pass", "borderline", "fail", "error", "waiting", "not_run")
SHOWN_AS = {"not_run": "cancelled"}
ASKS = {"judge": "new model calls", "script": "its script to run again", "": "to be rescored"}


@dataclass(frozen=True, slots=True)
class FigureRow:
    """A figure before and after; `note` says what it was measured over."""

    name: str
    before: str
    after: str
    delta: str
    tone: str
    note: str = ""

    @property
    def is_changed(self) -> bool:
        """Tell whether the figure changes."""
        return bool(self.delta)


@dataclass(frozen=True, slots=True)
class GateChange:
    """A gate before and after: passed, failed or open. `note` is a text of its figure and threshold."""

    name: str
    before: str
    after: str
    note: str

    @property
    def is_changed(self) -> bool:
        """Tell whether the state of the gate changes."""
        return self.before != self.after


@dataclass(frozen=True, slots=True)
class Unanswered:
    """An evaluator that stored scores cannot answer for: why, what it needs, and what is used instead."""

    name: str
    why: str
    needs: str
    instead: str


def state_mark(state: str) -> str:
    """Return the state whose mark an execution or case shows."""
    return SHOWN_AS.get(state, state)


def distribution(side: WhatIfSide) -> dict[str, int]:
    """Return the number of cases of one side by the state that is shown."""
    counts: dict[str, int] = {}
    for state, count in side.distribution.items():
        counts[state_mark(state)] = counts.get(state_mark(state), 0) + count
    return counts


def figure_rows(what_if: WhatIf, scale: int) -> list[FigureRow]:
    """Return the mean score, the results that pass, and the agreement with reviews."""
    return [_mean(what_if, scale), _passed(what_if), *_agreement(what_if)]


def gate_changes(what_if: WhatIf) -> list[GateChange]:
    """Return both gates of the run before and after (SCORING §8)."""
    before, after = what_if.before, what_if.after
    return [
        _gate("Score gate", before.metrics_gate, after.metrics_gate),
        _gate("Pass-rate gate", before.cases_gate, after.cases_gate),
    ]


def unanswered_evaluators(stale: Sequence[Stale]) -> list[Unanswered]:
    """Return the evaluators that stored scores cannot answer for."""
    return [
        Unanswered(entry.path or entry.name, entry.why, ASKS[entry.asks], _instead(entry))
        for entry in stale
    ]


def _instead(stale: Stale) -> str:
    count = f"{figures.thousands(stale.results)} of {figures.counted(stale.total, 'result')}"
    if stale.instead == "kept":
        return f"its stored score is used for {count}"
    return f"{count} {'waits' if stale.results == 1 else 'wait'} for it"


def _mean(what_if: WhatIf, scale: int) -> FigureRow:
    old, new = what_if.before, what_if.after
    # One digit more than a score has, because the mean of many scores changes by less.
    digits = SCALE_DIGITS[scale] + 1
    texts = [_score(side.mean_score, scale, digits) for side in (old, new)]
    note = _over(old.with_score, new.with_score, old.executions)
    if old.mean_score is None or new.mean_score is None:
        delta, tone = ("", "") if texts[0] == texts[1] else (figures.MISSING, "")
    else:
        moved = rounded(new.mean_score - old.mean_score)
        size = figures.nearest(abs(moved) * scale, digits)
        delta = "" if moved == 0 else figures.sign(moved, f"{size:f}")
        tone = "" if moved == 0 else "good" if moved > 0 else "bad"
    return FigureRow("Mean score", texts[0], texts[1], delta, tone, note=note)


def _score(value: float | None, scale: int, digits: int) -> str:
    return figures.MISSING if value is None else figures.down(value * scale, digits)


def _over(before: int, after: int, total: int) -> str:
    counts = figures.thousands(after)
    if before != after:
        counts = f"{figures.thousands(before)} → {counts}"
    return f"{counts} of {figures.thousands(total)}"


def _passed(what_if: WhatIf) -> FigureRow:
    old, new = what_if.before, what_if.after
    moved = new.passed - old.passed
    return FigureRow(
        "Passed",
        figures.thousands(old.passed),
        figures.thousands(new.passed),
        figures.delta(moved, "count") if moved else "",
        ("good" if moved > 0 else "bad") if moved else "",
        note=f"of {figures.thousands(new.executions)}",
    )


def _agreement(what_if: WhatIf) -> Iterator[FigureRow]:
    old, new = what_if.before.agreement, what_if.after.agreement
    if not (old.reviewed or new.reviewed):
        return
    shares = [side.agreed / side.reviewed if side.reviewed else None for side in (old, new)]
    before, after = shares
    moved = rounded(after - before) if before is not None and after is not None else 0
    yield FigureRow(
        "Agrees with reviews",
        figures.pct(before),
        figures.pct(after),
        figures.delta(moved, "pts") if moved else "",
        ("good" if moved > 0 else "bad") if moved else "",
        note=f"{old.agreed} of {old.reviewed} → {new.agreed} of {new.reviewed}"
        if old != new
        else f"{new.agreed} of {new.reviewed}",
    )


def _gate(name: str, before: GateResult, after: GateResult) -> GateChange:
    shares = figures.pct(before.so_far), figures.pct(after.so_far)
    limits = figures.threshold(before.threshold), figures.threshold(after.threshold)
    share, limit = (old if old == new else f"{old} → {new}" for old, new in (shares, limits))
    note = f"{share}, needs {limit}"
    if after.counted < after.total:
        note += f"; {figures.thousands(after.counted)} of {figures.thousands(after.total)}"
    return GateChange(name, _gate_state(before), _gate_state(after), note)


def _gate_state(gate: GateResult) -> str:
    return "open" if gate.passed is None else "passed" if gate.passed else "failed"


MATRIX_ALWAYS = ("pass", "borderline", "fail")


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """The cases that go from one verdict to another; `change` filters the list by them, "" for cases that stay.

    `query` lists the cases that stay on the page of the run, "" for others and where no filter can be so long.
    """

    change: str
    label: str
    count: int
    is_chosen: bool
    query: str


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """The cases that had one verdict, by the verdict they would have, and their total."""

    state: str
    cells: Sequence[MatrixCell]
    total: int


@dataclass(frozen=True, slots=True)
class FlipMatrix:
    """The cases of a run by their verdict before (rows) and after (columns); `totals` are those after.

    States without a verdict, such as errors, are in it only if a case flips to or from them.
    """

    states: Sequence[str]
    rows: Sequence[MatrixRow]
    totals: Sequence[int]


def flip_matrix(what_if: WhatIf, chosen: str = "") -> FlipMatrix:
    """Return the matrix of verdicts; `chosen` is the change that filters the list."""
    before, after = (dict(side.distribution) for side in (what_if.before, what_if.after))
    flips = [flip for flip in what_if.flips if flip.is_flip]
    changes = Counter((flip.before.state, flip.after.state) for flip in flips)
    flipping = {*MATRIX_ALWAYS, *(state for change in changes for state in change)}
    states = [state for state in MATRIX_STATES if state in flipping]
    rows = []
    for old in states:
        left = [flip.key for flip in flips if flip.before.state == old]
        cells = [
            MatrixCell(
                change="" if old == new else f"{old}-{new}",
                label=change_words(f"{old}-{new}"),
                count=before.get(old, 0) - len(left) if old == new else changes[old, new],
                is_chosen=old != new and chosen == f"{old}-{new}",
                query=_stay_query(old, left) if old == new else "",
            )
            for new in states
        ]
        rows.append(MatrixRow(state_mark(old), cells, before.get(old, 0)))
    return FlipMatrix(
        [state_mark(state) for state in states], rows, [after.get(state, 0) for state in states]
    )


def _stay_query(state: str, flipped: Sequence[str]) -> str:
    if not flipped:
        return ResultsQuery(state=state_mark(state)).address()
    text = str(FieldComparison("case", Operator.UNEQUAL, tuple(map(QuotedValue, flipped))))
    fits = len(text) <= MAX_LENGTH
    return ResultsQuery(state=state_mark(state), text=text).address() if fits else ""


def matrix_file(matrix: FlipMatrix) -> str:
    """Return the matrix as CSV, a line for each cell."""
    return csv_text(
        ("verdict_before", "verdict_after", "cases"),
        (
            (row.state, state, cell.count)
            for row in matrix.rows
            for state, cell in zip(matrix.states, row.cells, strict=True)
        ),
    )


def histogram_file(histogram: ScoreHistogram) -> str:
    """Return the histogram as CSV, a line for each of its columns."""
    rows = ((row.scores, row.before, row.after) for row in histogram.rows)
    return csv_text(("scores", "results_before", "results_after"), rows)


SHOWN_ALONGSIDE = 20
ON_A_PAGE = 100
RANKS = {"pass": 3, "borderline": 2, "fail": 1, "error": 0}
MOST_DIGITS = 9
# The rule of a verdict that the score alone decides, such as "0.75 < 0.80".
SCORE_RULE = re.compile(r"[\d.]+ (<|≥) [\d.]+$")
CONTRADICTED = "contradicted"
COLUMNS = (
    *("case", "title", "repetition", "verdict_before", "verdict_after"),
    *("score_before", "score_after", "decided_before", "decided_after", "reviewed", "review"),
)


@dataclass(frozen=True, slots=True)
class FlipQuery(ListQuery):
    """Which flips are listed: those of a change such as `pass-fail`, or those that contradict a review."""

    run: str = lists.setting(max_length=9)
    change: str = lists.text(max_length=40)
    review: str = lists.choice((CONTRADICTED,))
    page: int = lists.page_number()


@dataclass(frozen=True, slots=True)
class FlipRow:
    """A case that flips. `count` tells how many of its repetitions flip if not all do.

    `scores` are its scores before and after, or the one score of a case whose score stays. `rule` is what would
    decide the verdict unless the score alone does.
    """

    flip: CaseFlip
    title: str
    result: tuple[str, int]
    scores: str
    rule: str
    count: str
    review: str
    tone: str

    @property
    def states(self) -> tuple[str, str]:
        """Return the marks of both sides."""
        return state_mark(self.flip.before.state), state_mark(self.flip.after.state)


@dataclass(frozen=True, slots=True)
class FlipTable:
    """A page of flips with its filters and their counts."""

    query: FlipQuery
    rows: Sequence[FlipRow]
    chips: Sequence[Chip]
    pages: NumberedPage[CaseFlip]


def by_harm(flips: Sequence[CaseFlip]) -> list[CaseFlip]:
    """Sort flips, the most harmful first: contradicted reviews, then the deepest falls; rises come last.

    Cases that keep their verdict while an execution flips come after cases that flip.
    """

    def harm(flip: CaseFlip) -> tuple[bool, bool, int]:
        ranks = [RANKS.get(side.state) for side in (flip.before, flip.after)]
        moved = 0 if None in ranks else (ranks[1] or 0) - (ranks[0] or 0)
        return flip.review != CONTRADICTED, not flip.is_flip, moved

    return sorted(flips, key=harm)


def score_change(before: float | None, after: float | None, scale: int) -> str:
    """Return two scores as "0.71 → 0.88", with as many digits as tell them apart; equal ones once."""
    if before == after:
        return figures.score(after, scale)
    if before is None or after is None:
        return f"{figures.score(before, scale)} → {figures.score(after, scale)}"
    digits = SCALE_DIGITS[scale]
    texts = [figures.down(figures.exact(value) * scale, digits) for value in (before, after)]
    while texts[0] == texts[1] and digits < MOST_DIGITS:
        digits += 1
        texts = [figures.down(figures.exact(value) * scale, digits) for value in (before, after)]
    return " → ".join(dict.fromkeys(texts))


def flip_rows(flips: Sequence[CaseFlip], run: Run, reader: User, scale: int) -> list[FlipRow]:
    """Return the rows of flips, with titles and the reader's own reviews. Two queries."""
    titles = dict(
        Case.objects.filter(pk__in=[flip.case for flip in flips]).values_list("pk", "title")
    )
    reviewed = [row.result for flip in flips for row in flip.executions if row.reviewed]
    own = set(
        Review.objects.filter(
            result_id__in=reviewed, reviewer=reader, withdrawn_at=None
        ).values_list("result_id", flat=True)
    )
    return [_row(flip, titles.get(flip.case, ""), run, own, scale) for flip in flips]


def flip_table(
    what_if: WhatIf, run: Run, query: FlipQuery, reader: User, *, path: str, scale: int
) -> FlipTable:
    """Return the page of flips of a query; `path` is the address without its query."""
    pages = numbered_page(filter_flips(what_if, query), query, ON_A_PAGE, path)
    return FlipTable(
        query=query,
        rows=flip_rows(pages.rows, run, reader, scale),
        chips=_chips(what_if, query, path),
        pages=pages,
    )


def filter_flips(what_if: WhatIf, query: FlipQuery) -> list[CaseFlip]:
    """Return the flips that match a query, the most harmful first."""
    return [
        flip
        for flip in by_harm(what_if.flips)
        if query.change in ("", _change(flip)) and query.review in ("", flip.review)
    ]


def flips_file(flips: Sequence[CaseFlip]) -> str:
    """Return flips as CSV with exact scores, a line for each execution that flips."""
    titles = dict(
        Case.objects.filter(pk__in=[flip.case for flip in flips]).values_list("pk", "title")
    )
    return csv_text(
        COLUMNS,
        (
            (
                *(flip.key, titles.get(flip.case, ""), row.repetition),
                *(row.before.state, row.after.state, row.before.score, row.after.score),
                *(row.before.decided_by, row.after.decided_by, row.reviewed, row.review),
            )
            for flip in flips
            for row in flip.executions
        ),
    )


def _row(flip: CaseFlip, title: str, run: Run, own: set[int], scale: int) -> FlipRow:
    review = next((row for row in flip.executions if row.review == flip.review), None)
    text, tone = "", ""
    if review is not None and flip.review:
        whose = "your review" if review.result in own else "a review"
        if flip.review == CONTRADICTED:
            text, tone = f"contradicts {whose}: {review.reviewed}", "bad"
        else:
            text = f"{whose}: {review.reviewed}"
    repetition = flip.executions[0].repetition if flip.executions else 1
    some = 0 < len(flip.executions) < run.repetitions
    rule = flip.after.decided_by
    return FlipRow(
        flip=flip,
        title=title,
        result=(flip.key, repetition),
        scores=score_change(flip.before.score, flip.after.score, scale),
        rule="" if SCORE_RULE.match(rule) else rule,
        count=f"{len(flip.executions)} of {run.repetitions} repetitions flip" if some else "",
        review=text,
        tone=tone,
    )


def _change(flip: CaseFlip) -> str:
    if not flip.is_flip:
        return "inside"
    return f"{flip.before.state}-{flip.after.state}"


def _chips(what_if: WhatIf, query: FlipQuery, path: str) -> list[Chip]:
    counts = Counter(_change(flip) for flip in by_harm(what_if.flips))
    contradicted = sum(flip.review == CONTRADICTED for flip in what_if.flips)
    labels = {change: change_words(change) for change in counts}
    chips = [query.chip("All", len(what_if.flips), path=path, change="", review="")]
    chips += [
        query.chip(label, counts[change], path=path, change=change, review="")
        for change, label in labels.items()
    ]
    if contradicted:
        sets = {"change": "", "review": CONTRADICTED}
        chips.append(query.chip("Contradicts a review", contradicted, path=path, **sets))
    return chips


def change_words(change: str) -> str:
    """Return a change such as `pass-fail` as text."""
    if change == "inside":
        return "Only a repetition"
    before, _, after = change.partition("-")
    return f"{_word(before)} → {_word(after).lower()}"


def _word(state: str) -> str:
    return VERDICT_WORDS[state_mark(state)]
