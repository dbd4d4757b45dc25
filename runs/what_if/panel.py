"""What-if in figures as a page lists them: each before and after with its difference, and the histogram of scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from django.contrib.auth.models import User

from evaluators.scoring.numbers import SCALE_DIGITS, rounded
from evaluators.templatetags import figures
from evaluators.templatetags.marks import VERDICT_WORDS
from runs import lists
from runs.formats.tables import csv_text
from runs.lists import Chip, ListQuery, NumberedPage, numbered_page
from runs.models.reviews import Review
from runs.models.runs import Run
from runs.models.suites import Case
from runs.summary.figures import GateResult
from runs.what_if.asking import Band, Bin, CaseFlip, Histogram, WhatIf, WhatIfSide
from runs.what_if.deciding import Stale

WIDE, NARROW = 760, 330
TOP, BASE = 26.0, 110.0
GAP = 0.08
TICK = 0.2
LABEL_ROOM = 104
# Where the words of a band stand, the lower band's under the upper one's, so that they never meet.
WORDS_AT = {"pass": 9, "borderline": 20, "fallback": 9}


@dataclass(frozen=True, slots=True)
class ScoreBar:
    """One upright rectangle in units of its drawing; `verdict` is the band it lies in, "" without bands."""

    verdict: str
    x: str
    y: str
    width: str
    height: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A place on the axis with its words; `anchor` is where the words begin: start, middle or end."""

    x: str
    words: str = ""
    words_x: str = ""
    y: int = 0
    anchor: str = "middle"


@dataclass(frozen=True, slots=True)
class Drawing:
    """One size of the drawing. `outlines` are the bars before, where they differ; `old` the bands before."""

    width: int
    bars: Sequence[ScoreBar]
    outlines: Sequence[ScoreBar]
    ticks: Sequence[Mark]
    bands: Sequence[Mark]
    old: Sequence[Mark]


@dataclass(frozen=True, slots=True)
class BinRow:
    """One line of the table under the drawing."""

    scores: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class ScoreHistogram:
    """Both sizes of the drawing, what it shows in words, and its table."""

    wide: Drawing
    narrow: Drawing
    label: str
    rows: Sequence[BinRow]

    @property
    def has_outlines(self) -> bool:
        """Tell whether any bar was higher or lower before."""
        return bool(self.wide.outlines)

    @property
    def has_old_bands(self) -> bool:
        """Tell whether a band was elsewhere before."""
        return bool(self.wide.old)


def score_histogram(found: Histogram, scale: int) -> ScoreHistogram:
    """Return the drawing of executions by score; bands and ticks are on the scale of the suite."""
    rows = [
        BinRow(
            f"{figures.score(one.low, scale)} to {figures.score(one.high, scale)}",
            one.before,
            one.after,
        )
        for one in found.bins
        if one.before or one.after
    ]
    bands = ", ".join(
        f"{one.name} from {figures.bound(one.limit, scale)}" for one in found.bands_after
    )
    count = sum(one.after for one in found.bins)
    return ScoreHistogram(
        wide=_drawn(found, WIDE, scale),
        narrow=_drawn(found, NARROW, scale),
        label=f"Histogram of the scores of {figures.counted(count, 'execution')}; {bands}",
        rows=rows,
    )


def _drawn(found: Histogram, width: int, scale: int) -> Drawing:
    low = _lowest(found)
    most = max((max(one.before, one.after) for one in found.bins), default=0) or 1

    def at(score: float) -> float:
        return (score - low) / (1 - low) * width

    def bar(verdict: str, left: float, right: float, count: int) -> ScoreBar:
        height = (BASE - TOP) * count / most
        texts = (at(left), BASE - height, at(right) - at(left), height)
        return ScoreBar(verdict, *(f"{one:.1f}" for one in texts))

    bars, outlines = [], []
    for one in found.bins:
        if one.after:
            parts = _parts(one, found.bands_after)
            bars += [bar(verdict, left, right, one.after) for verdict, left, right in parts]
        if one.before and one.before != one.after:
            left, right = _inside(one)
            outlines.append(bar("", left, right, one.before))
    after = {one.name: one.limit for one in found.bands_after}
    old = [one for one in found.bands_before if after.get(one.name) != one.limit]
    return Drawing(
        width=width,
        bars=bars,
        outlines=outlines,
        ticks=[_tick(score, at(score), width, scale) for score in _ticks(low)],
        bands=[_band(one, at(one.limit), scale) for one in found.bands_after],
        old=[Mark(f"{at(one.limit):.1f}") for one in old],
    )


def _lowest(found: Histogram) -> float:
    """Return where the axis begins: a tick at or below everything that is drawn."""
    drawn = [one.low for one in found.bins if one.before or one.after]
    drawn += [one.limit for one in (*found.bands_before, *found.bands_after)]
    ticks = int(rounded(min(drawn, default=0.0) / TICK))
    return rounded(min(ticks, 4) * TICK)


def _ticks(low: float) -> Iterator[float]:
    first = round(low / TICK)
    yield from (rounded(number * TICK) for number in range(first, round(1 / TICK) + 1))


def _inside(one: Bin) -> tuple[float, float]:
    gap = (one.high - one.low) * GAP / 2
    return one.low + gap, one.high - gap


def _parts(one: Bin, bands: Sequence[Band]) -> list[tuple[str, float, float]]:
    """Return a bar in parts, cut where a band begins inside it."""
    left, right = _inside(one)
    cuts = sorted({band.limit for band in bands if left < band.limit < right})
    ends = [left, *cuts, right]
    return [(_verdict((start + end) / 2, bands), start, end) for start, end in pairwise(ends)]


def _verdict(score: float, bands: Sequence[Band]) -> str:
    """Return the band a score lies in, "" where scores alone do not decide."""
    limits = {one.name: one.limit for one in bands}
    if "pass" not in limits:
        return ""
    if score >= limits["pass"]:
        return "pass"
    return "borderline" if score >= limits["borderline"] else "fail"


def _tick(score: float, x: float, width: int, scale: int) -> Mark:
    anchor = "start" if x <= 1 else "end" if x >= width - 1 else "middle"
    return Mark(f"{x:.1f}", figures.score(score, scale), anchor=anchor)


def _band(one: Band, x: float, scale: int) -> Mark:
    words, y = f"{one.name} {figures.bound(one.limit, scale)}", WORDS_AT[one.name]
    if x > LABEL_ROOM:
        return Mark(f"{x:.1f}", words, f"{x - 5:.1f}", y, "end")
    return Mark(f"{x:.1f}", words, f"{x + 5:.1f}", y, "start")


ALWAYS = ("pass", "fail")
STATES = ("pass", "borderline", "fail", "error", "waiting")
SHOWN_AS = {"not_run": "cancelled"}
ASKS = {"judge": "new model calls", "script": "its script to run again", "": "to be scored again"}


@dataclass(frozen=True, slots=True)
class FigureRow:
    """One figure on both sides. `state` is the verdict it counts, `note` what it was measured over."""

    name: str
    before: str
    after: str
    delta: str
    tone: str
    state: str = ""
    note: str = ""

    @property
    def is_changed(self) -> bool:
        """Tell whether the two sides differ at all."""
        return bool(self.delta)


@dataclass(frozen=True, slots=True)
class GateChange:
    """One gate on both sides: passed, failed or open, and its figure against its threshold in words."""

    name: str
    before: str
    after: str
    note: str

    @property
    def is_changed(self) -> bool:
        """Tell whether the gate is decided otherwise."""
        return self.before != self.after


@dataclass(frozen=True, slots=True)
class Unanswered:
    """An evaluator whose change the stored scores cannot follow, what it needs, and what stands in."""

    name: str
    why: str
    needs: str
    instead: str


def state_shown(state: str) -> str:
    """Return the mark a state of an execution or case is drawn with."""
    return SHOWN_AS.get(state, state)


def distribution(side: WhatIfSide) -> dict[str, int]:
    """Return the cases of one side by the mark they are drawn with."""
    found: dict[str, int] = {}
    for state, count in side.distribution.items():
        found[state_shown(state)] = found.get(state_shown(state), 0) + count
    return found


def figure_rows(found: WhatIf, scale: int) -> list[FigureRow]:
    """Return cases by verdict, the mean score, the executions that pass, and agreement with reviews."""
    return [*_verdicts(found), _mean(found, scale), _passed(found), *_agreement(found)]


def gate_changes(found: WhatIf) -> list[GateChange]:
    """Return both gates of the run before and after (SCORING §8)."""
    before, after = found.before, found.after
    return [
        _gate("Metrics gate", before.metrics_gate, after.metrics_gate),
        _gate("Cases gate", before.cases_gate, after.cases_gate),
    ]


def unanswered(stale: Sequence[Stale]) -> list[Unanswered]:
    """Return what the stored scores leave open, by evaluator."""
    return [
        Unanswered(one.path or one.name, one.why, ASKS[one.asks], _instead(one)) for one in stale
    ]


def _instead(one: Stale) -> str:
    count = f"{figures.thousands(one.results)} of {figures.counted(one.total, 'execution')}"
    if one.instead == "kept":
        return f"the score it had stands in for {count}"
    return f"{count} {'waits' if one.results == 1 else 'wait'} for it"


def _verdicts(found: WhatIf) -> Iterator[FigureRow]:
    before, after = distribution(found.before), distribution(found.after)
    for state in (*STATES, "cancelled"):
        old, new = before.get(state, 0), after.get(state, 0)
        if old or new or state in ALWAYS:
            is_good = (new > old) == (state == "pass")
            tone = "" if new == old or state == "waiting" else "good" if is_good else "bad"
            delta = "" if new == old else figures.delta(new - old, "count")
            texts = figures.thousands(old), figures.thousands(new)
            yield FigureRow(state, *texts, delta, tone, state=state)


def _mean(found: WhatIf, scale: int) -> FigureRow:
    old, new = found.before, found.after
    # One digit more than a score has, as the mean of many moves by less.
    digits = SCALE_DIGITS[scale] + 1
    texts = [_score(one.mean_score, scale, digits) for one in (old, new)]
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


def _passed(found: WhatIf) -> FigureRow:
    old, new = found.before, found.after
    moved = new.passed - old.passed
    return FigureRow(
        "Executions passed",
        figures.thousands(old.passed),
        figures.thousands(new.passed),
        figures.delta(moved, "count") if moved else "",
        ("good" if moved > 0 else "bad") if moved else "",
        note=f"of {figures.thousands(new.executions)}",
    )


def _agreement(found: WhatIf) -> Iterator[FigureRow]:
    old, new = found.before.agreement, found.after.agreement
    if not (old.reviewed or new.reviewed):
        return
    shares = [one.agreed / one.reviewed if one.reviewed else None for one in (old, new)]
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
    share, limit = (one if one == other else f"{one} → {other}" for one, other in (shares, limits))
    counts = f"{figures.thousands(after.counted)} of {figures.thousands(after.total)}"
    note = f"{share}, needs {limit}; {counts}"
    return GateChange(name, _gate_state(before), _gate_state(after), note)


def _gate_state(gate: GateResult) -> str:
    return "open" if gate.passed is None else "passed" if gate.passed else "failed"


SHOWN_ALONGSIDE = 20
ON_A_PAGE = 100
RANKS = {"pass": 3, "borderline": 2, "fail": 1, "error": 0}
CONTRADICTED = "contradicted"
COLUMNS = (
    *("case", "title", "repetition", "verdict_before", "verdict_after"),
    *("score_before", "score_after", "decided_before", "decided_after", "reviewed", "review"),
)


@dataclass(frozen=True, slots=True)
class FlipQuery(ListQuery):
    """Which flips are listed: a change as `pass-fail`, or only those that contradict a review."""

    run: str = lists.setting(max_length=9)
    change: str = lists.text(max_length=40)
    review: str = lists.choice((CONTRADICTED,))
    page: int = lists.page_number()


@dataclass(frozen=True, slots=True)
class FlipRow:
    """One case that flips. `count` says how many of its executions do, where it has several."""

    flip: CaseFlip
    title: str
    result: tuple[str, int]
    count: str
    review: str
    tone: str

    @property
    def states(self) -> tuple[str, str]:
        """Return the marks of both sides."""
        return state_shown(self.flip.before.state), state_shown(self.flip.after.state)


@dataclass(frozen=True, slots=True)
class FlipTable:
    """A page of flips, the filters, and how many there are with and without them."""

    query: FlipQuery
    rows: Sequence[FlipRow]
    chips: Sequence[Chip]
    pages: NumberedPage[CaseFlip]


def by_harm(flips: Sequence[CaseFlip]) -> list[CaseFlip]:
    """Return flips with the most harmful first: contradicted reviews, then the deepest falls, rises last.

    A case whose own verdict stays, only that of an execution moving, comes after those that flip.
    """

    def harm(flip: CaseFlip) -> tuple[bool, bool, int]:
        ranks = [RANKS.get(stand.state) for stand in (flip.before, flip.after)]
        moved = 0 if None in ranks else (ranks[1] or 0) - (ranks[0] or 0)
        return flip.review != CONTRADICTED, not flip.is_flip, moved

    return sorted(flips, key=harm)


def flip_rows(flips: Sequence[CaseFlip], run: Run, reader: User) -> list[FlipRow]:
    """Return rows with titles and whose review it is; two queries."""
    titles = dict(
        Case.objects.filter(pk__in=[flip.case for flip in flips]).values_list("pk", "title")
    )
    reviewed = [one.result for flip in flips for one in flip.executions if one.reviewed]
    own = set(
        Review.objects.filter(
            result_id__in=reviewed, reviewer=reader, withdrawn_at=None
        ).values_list("result_id", flat=True)
    )
    return [_row(flip, titles.get(flip.case, ""), run, own) for flip in flips]


def flip_table(found: WhatIf, run: Run, query: FlipQuery, reader: User, path: str) -> FlipTable:
    """Return the page of flips that an address asks for; `path` is the address without its query."""
    pages = numbered_page(filtered(found, query), query, ON_A_PAGE, path)
    return FlipTable(
        query=query,
        rows=flip_rows(pages.rows, run, reader),
        chips=_chips(found, query, path),
        pages=pages,
    )


def filtered(found: WhatIf, query: FlipQuery) -> list[CaseFlip]:
    """Return the flips a query leaves, the most harmful first."""
    return [
        flip
        for flip in by_harm(found.flips)
        if query.change in ("", _change(flip)) and query.review in ("", flip.review)
    ]


def flips_file(flips: Sequence[CaseFlip]) -> str:
    """Return flips as CSV, one line an execution that flips, exact scores."""
    titles = dict(
        Case.objects.filter(pk__in=[flip.case for flip in flips]).values_list("pk", "title")
    )
    return csv_text(
        COLUMNS,
        (
            (
                *(flip.key, titles.get(flip.case, ""), one.repetition),
                *(one.before.state, one.after.state, one.before.score, one.after.score),
                *(one.before.decided_by, one.after.decided_by, one.reviewed, one.review),
            )
            for flip in flips
            for one in flip.executions
        ),
    )


def _row(flip: CaseFlip, title: str, run: Run, own: set[int]) -> FlipRow:
    review = next((one for one in flip.executions if one.review == flip.review), None)
    words, tone = "", ""
    if review is not None and flip.review:
        whose = "your review" if review.result in own else "a review"
        if flip.review == CONTRADICTED:
            words, tone = f"contradicts {whose}: {review.reviewed}", "bad"
        else:
            words = f"{whose}: {review.reviewed}"
    repetition = flip.executions[0].repetition if flip.executions else 1
    several = run.repetitions > 1 and flip.executions
    count = f"{len(flip.executions)} of {run.repetitions} repetitions flip" if several else ""
    return FlipRow(flip, title, (flip.key, repetition), count, words, tone)


def _change(flip: CaseFlip) -> str:
    if not flip.is_flip:
        return "inside"
    return f"{flip.before.state}-{flip.after.state}"


def _chips(found: WhatIf, query: FlipQuery, path: str) -> list[Chip]:
    counts = Counter(_change(flip) for flip in by_harm(found.flips))
    contradicted = sum(flip.review == CONTRADICTED for flip in found.flips)
    labels = {change: _change_words(change) for change in counts}
    chips = [query.chip("All", len(found.flips), path=path, change="", review="")]
    chips += [
        query.chip(label, counts[change], path=path, change=change, review="")
        for change, label in labels.items()
    ]
    if contradicted:
        sets = {"change": "", "review": CONTRADICTED}
        chips.append(query.chip("Contradicts a review", contradicted, path=path, **sets))
    return chips


def _change_words(change: str) -> str:
    if change == "inside":
        return "A repetition alone"
    before, _, after = change.partition("-")
    return f"{_word(before)} → {_word(after).lower()}"


def _word(state: str) -> str:
    return VERDICT_WORDS[state_shown(state)]


def all_shown(count: int) -> str:
    """Say how many flips there are, for the button that leads to all of them."""
    return f"Show all {figures.thousands(count)}"
