"""Format figures for pages: one format for each scale and unit.

Scores and rates are rounded to nine decimals and then down, so that no figure shows a threshold that its
value missed (SCORING §1).
"""

from __future__ import annotations

from datetime import datetime
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal

from evaluators.scoring.numbers import SCALE_DIGITS

MISSING = "–"
MINUS = "\u2212"
NARROW = "\u202f"
NO_BREAK = "\u00a0"
# Pages use these to keep figure and unit together; a terminal may not support them.
GAPS = str.maketrans({NO_BREAK: " ", NARROW: " ", MINUS: "-"})
SCORE_DIGITS = 9
METRIC_LABELS = ("critical fail", "fail", "poor", "acceptable", "good", "excellent")
BINARY_LABELS, BINARY_TONES, METRIC_TOP = ("fail", "pass"), ("bad", "good"), 5
METRIC_TONES = ("bad", "bad", "bad", "warn", "good", "good")
MINUTE, HOUR, DAY = 60, 3600, 86_400
DAYS_COUNTED = 30
SECOND_FROM_MS = 999.5
# Decimals of money below a dollar, where parts in whole cents would not add up to their sum.
SMALL_DIGITS = 3
CENT = Decimal("0.01")
# More digits than any float has; settings can have as many.
WIDE = Context(prec=400)
# From here on, settings are shown with an exponent.
HUGE = Decimal(10) ** 15

# Means of the same numbers may differ by rounding errors.
NO_WIDTH = 1e-9
# A smaller p has no figure; from the second on it has a decimal less.
MIN_P, COARSE_P = 0.001, 0.1

AnyNumber = float | int | Decimal


def exact(value: AnyNumber) -> Decimal:
    """Return the value rounded to nine decimals, as in every comparison."""
    number = value if isinstance(value, Decimal) else Decimal(repr(value))
    return number.quantize(Decimal(1).scaleb(-SCORE_DIGITS), context=WIDE)


def down(value: AnyNumber, digits: int) -> str:
    """Return the value with `digits` decimals, rounded towards zero."""
    return f"{exact(value).quantize(Decimal(1).scaleb(-digits), ROUND_DOWN, context=WIDE):f}"


def nearest(value: AnyNumber, digits: int) -> Decimal:
    """Return the value rounded to `digits` decimals, halves away from zero."""
    return exact(value).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, context=WIDE)


def score(value: AnyNumber | None, scale: int = 1) -> str:
    """Format a score of 0 to 1 on the scale of its suite: `0.74`, of 10 `7.4`, of 100 `74`."""
    return MISSING if value is None else down(exact(value) * scale, SCALE_DIGITS[scale])


def strip(value: AnyNumber | None, scale: int = 1) -> str:
    """Format a score for a narrow table: `.77`, `1.0`; of 100 `77`."""
    if value is None or scale != 1:
        return score(value, scale)
    text = down(value, 2)
    return text[1:] if text.startswith("0") else down(value, 1)


def pct(share: AnyNumber | None) -> str:
    """Format a share of 0 to 1 as a rate: `82.5%`."""
    return MISSING if share is None else f"{down(exact(share) * 100, 1)}%"


def interval(ends: tuple[float, float] | None) -> str:
    """Format an interval of shares: `71.2% to 88.9%`.

    If all cases are alike, the bootstrap (SCORING §8) has no width, but that does not mean certainty.
    """
    if ends is None:
        return MISSING
    low, high = ends
    if high - low < NO_WIDTH:
        return "every case alike: no interval"
    return f"{pct(low)} to {pct(high)}"


def p_value(p: float | None) -> str:
    """Format a p: `p = 0.39`, `p = 0.034`, `p < 0.001`; "" for None."""
    if p is None:
        return ""
    if p < MIN_P:
        return f"p < {MIN_P}"
    return f"p = {p:.3f}" if p < COARSE_P else f"p = {p:.2f}"


def chance_words(p: float | None, *, is_clear: bool) -> str:
    """Say what a p means: `unlikely to be chance (p = 0.034)`."""
    if p is None:
        return "too few cases"
    return f"{'unlikely to be' if is_clear else 'could be'} chance ({p_value(p)})"


def threshold(share: AnyNumber | None) -> str:
    """Format a threshold of 0 to 1 exactly, without needless digits: `80%`."""
    if share is None:
        return MISSING
    text = f"{exact(share) * 100:f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}%"


def plain(value: AnyNumber | None) -> str:
    """Format a setting exactly, without needless digits: `2`, `0.65`, `−1`."""
    if value is None:
        return MISSING
    number = exact(value)
    if abs(number) >= HUGE:
        return f"{float(number):g}".replace("-", MINUS)
    text = f"{number:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return text.replace("-", MINUS)


def bound(value: AnyNumber | None, scale: int = 1) -> str:
    """Format a band of scores exactly, with the digits of its scale or more: `0.80`, `0.855`; of 100 `80`."""
    if value is None:
        return MISSING
    whole, _, digits = plain(exact(value) * scale).partition(".")
    digits = digits.ljust(SCALE_DIGITS[scale], "0")
    return f"{whole}.{digits}" if digits else whole


def points(share: AnyNumber | None) -> str:
    """Format a setting that is a difference of shares, exactly: `5 pts`."""
    return MISSING if share is None else f"{plain(exact(share) * 100)}{NO_BREAK}pts"


def tenth(value: AnyNumber | None) -> str:
    """Format a metric of 0 to 5 or a dimension of 0 to 10: `3.7`."""
    return MISSING if value is None else down(value, 1)


def metric_label(value: AnyNumber | None, binary: bool = False) -> str:
    """Name a metric of 0 to 5 by its nearest whole number, halves up, a binary one pass or fail (SCORING §5)."""
    if value is None:
        return ""
    return BINARY_LABELS[is_passed(value)] if binary else METRIC_LABELS[int(nearest(value, 0))]


def metric_tone(value: AnyNumber | None, binary: bool = False) -> str:
    """Return the tone a metric of 0 to 5 is shown in: good, warn or bad."""
    if value is None:
        return ""
    return BINARY_TONES[is_passed(value)] if binary else METRIC_TONES[int(nearest(value, 0))]


def is_passed(value: AnyNumber) -> bool:
    """Tell whether a binary metric, or a mean of several, lies nearer to passed than to failed, halves up."""
    return exact(value) * 2 >= METRIC_TOP


def raw(value: AnyNumber | None, scale: AnyNumber) -> str:
    """Format a score on its evaluator's own scale: `raw 7.0 of 10`, `raw 0.74 of 1`."""
    digits = 1 if exact(scale) > 1 else 2
    return "" if value is None else f"raw {down(value, digits)} of {plain(scale)}"


def delta(value: AnyNumber | None, unit: str) -> str:
    """Format a change with its sign.

    `pts` takes a difference of shares (−0.039 reads `−3.9 pts`), `pct` a relative change
    (−0.242 reads `−24.2%`), `score` a difference of scores, `ms` one of milliseconds and
    `count` one of whole numbers. Raises ValueError for another unit.
    """
    if value is None:
        return MISSING
    if unit == "ms":
        return sign(value, duration(exact(value).copy_abs()))
    scales = {
        "pts": (100, 1, " pts"),
        "pct": (100, 1, "%"),
        "score": (1, 2, ""),
        "count": (1, 0, ""),
    }
    if unit not in scales:
        raise ValueError(f"{unit!r} is not a unit of changes; use one of {[*scales, 'ms']}")
    factor, digits, suffix = scales[unit]
    rounded = nearest(exact(value) * factor, digits)
    return sign(rounded, f"{abs(rounded):f}{suffix.replace(' ', NO_BREAK)}")


def sign(value: AnyNumber, text: str) -> str:
    """Put +, − or ± before a text with the size of `value`."""
    return f"{'±' if value == 0 else '+' if value > 0 else MINUS}{text}"


def money(value: Decimal | None, digits: int = SMALL_DIGITS) -> str:
    """Format US dollars: `$8.63`, below a dollar `$0.024`, nothing spent `$0`, almost nothing `<$0.001`.

    `digits` are the decimals below a dollar.
    """
    if value is None:
        return MISSING
    if value == 0:
        return "$0"
    least = Decimal(1).scaleb(-digits)
    minus = MINUS if value < 0 else ""
    if (size := abs(value)) < least / 2:
        return f"{minus}<${least}"
    return f"{minus}{_dollars(size.quantize(_money_step(size, least), ROUND_HALF_UP))}"


def money_parts(*values: Decimal | None, is_partial: bool = False) -> tuple[str, ...]:
    """Format the parts of a sum, none negative, so that they add up to `money` of it: `$0.043`, `$0.060`.

    Those of a sum that is only partly known add up to `at_least` of it. Parts are rounded down to the step of the sum;
    the steps that are left go to the largest remainders.
    """
    known = [value for value in values if value is not None]
    total = sum(known, Decimal(0))
    digits = _digits_shown(total) if is_partial else SMALL_DIGITS
    step = _money_step(total, Decimal(1).scaleb(-digits))
    floors = [value.quantize(step, ROUND_DOWN) for value in known]
    left = int((total.quantize(step, ROUND_HALF_UP) - sum(floors, Decimal(0))) / step)
    remainders = sorted(range(len(known)), key=lambda place: floors[place] - known[place])
    for place in remainders[:left]:
        floors[place] += step
    shown = (
        _dollars(rounded) if rounded else f"<${step}" if value else "$0"
        for value, rounded in zip(known, floors, strict=True)
    )
    return tuple(MISSING if value is None else next(shown) for value in values)


def _money_step(size: Decimal, least: Decimal) -> Decimal:
    """Return the smallest amount that is shown of money: a cent from a dollar on, `least` below."""
    return least if size.quantize(least, ROUND_HALF_UP) < 1 else CENT


def _dollars(rounded: Decimal) -> str:
    whole, _, cents = f"{rounded:f}".partition(".")
    return f"${thousands(int(whole))}.{cents}"


def at_least(value: Decimal | None) -> str:
    """Format a sum that is only partly known: `≥ $8.63`, almost nothing `≥ $0.00002`."""
    if value is None:
        return MISSING
    return f"≥ {money(value, _digits_shown(value))}"


def _digits_shown(value: Decimal) -> int:
    """Return how many decimals below a dollar show something of an amount, however small."""
    digits = SMALL_DIGITS
    while value and value < Decimal(1).scaleb(-digits) and digits < SCORE_DIGITS:
        digits += 1
    return digits


def duration(ms: AnyNumber | None) -> str:
    """Format milliseconds: `600 ms`, `14.2 s`, `8 min 47 s`, `2 h 05 min`."""
    if ms is None:
        return MISSING
    if ms < SECOND_FROM_MS:
        return f"{nearest(ms, 0)}{NO_BREAK}ms"
    tenths = nearest(Decimal(repr(ms)) / 1000 if not isinstance(ms, Decimal) else ms / 1000, 1)
    if tenths < MINUTE:
        return f"{tenths}{NO_BREAK}s"
    seconds = int(nearest(tenths, 0))
    if seconds < HOUR:
        return f"{seconds // MINUTE}{NO_BREAK}min{NO_BREAK}{seconds % MINUTE:02d}{NO_BREAK}s"
    minutes = int(nearest(Decimal(seconds) / MINUTE, 0))
    return f"{thousands(minutes // 60)}{NO_BREAK}h{NO_BREAK}{minutes % 60:02d}{NO_BREAK}min"


def rough(ms: AnyNumber | None) -> str:
    """Format an estimated duration coarsely: `40 s`, `4 min`, `2 h 05 min`."""
    if ms is None:
        return MISSING
    seconds = int(nearest(Decimal(repr(float(ms))) / 1000, 0))
    if seconds < MINUTE:
        return f"{max(seconds, 1)}{NO_BREAK}s"
    minutes = int(nearest(Decimal(seconds) / MINUTE, 0))
    return f"{minutes}{NO_BREAK}min" if minutes < MINUTE else duration(minutes * MINUTE * 1000)


def age(then: datetime, now: datetime) -> str:
    """Format how long ago something was: `40 s ago`, `5 h ago`, `2 days ago`; after a month the date."""
    seconds = int((now - then).total_seconds())
    if seconds < 1:
        return "just now"
    sizes = ((DAY, "day"), (HOUR, "h"), (MINUTE, "min"), (1, "s"))
    size, unit = next(pair for pair in sizes if seconds >= pair[0])
    count = seconds // size
    if unit == "day":
        return (
            f"{counted(count, 'day')} ago" if count <= DAYS_COUNTED else f"{then.day} {then:%b %Y}"
        )
    return f"{count}{NO_BREAK}{unit} ago"


def sentence(text: str) -> str:
    """End a text with a full stop, unless it has a mark at the end."""
    return text if not text or text.endswith((".", "!", "?", "…")) else f"{text}."


def thousands(value: int | None) -> str:
    """Format a whole number with narrow gaps: `1 080`."""
    return MISSING if value is None else f"{value:,}".replace(",", NARROW).replace("-", MINUS)


def counted(value: int | None, noun: str) -> str:
    """Put a count before its noun: `1 case`, `23 results`; `noun` may be both forms, `child,children`."""
    if value is None:
        return MISSING
    singular, _, plural = noun.partition(",")
    return f"{thousands(value)} {singular if value == 1 else plural or singular + 's'}"
