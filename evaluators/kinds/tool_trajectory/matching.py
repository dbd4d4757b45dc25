"""Which of the calls that were made answers which of the expected ones, told row by row."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from evaluators.kinds._base import Step
from evaluators.kinds._json import format_value, is_json, is_same
from evaluators.kinds.execution_metrics import format_figure
from evaluators.scoring.types import Finding

if TYPE_CHECKING:
    from evaluators.kinds.tool_trajectory import ToolTrajectoryConfig


ArgumentRule = Literal["exact", "partial", "subset", "ignored"]


class ExpectedCall(BaseModel):
    """One call of a tool that is expected."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    tool: str = Field(min_length=1, max_length=200, description="Name of the tool.")
    args: Mapping[str, Any] | None = Field(None, description="Its arguments; left out: any.")
    args_match: ArgumentRule | None = Field(
        None, description="How the arguments are compared; left out: as the evaluator says."
    )
    max_duration_ms: int | None = Field(None, ge=0, description="Longest the call may take.")

    @field_validator("args")
    @classmethod
    def _can_be_compared(cls, args: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        if not is_json(args):
            raise ValueError("holds what is no JSON value; put dates and the like in quotes")
        return args

    def rule(self, usual: ArgumentRule) -> ArgumentRule:
        """Return how the arguments are compared; those not given are not looked at."""
        return "ignored" if self.args is None else self.args_match or usual

    def fits(self, step: Step, usual: ArgumentRule) -> bool:
        """Tell whether a call is of this tool and has its arguments."""
        if step.name != self.tool:
            return False
        rule, wanted = self.rule(usual), self.args or {}
        if rule == "ignored":
            return True
        given = {} if step.input is None else step.input
        if not isinstance(given, Mapping):
            return False
        if rule == "exact":
            return is_same(dict(given), dict(wanted))
        inner, outer = (wanted, given) if rule == "partial" else (given, wanted)
        return all(key in outer and is_same(inner[key], outer[key]) for key in inner)

    def spelt(self, usual: ArgumentRule) -> str:
        """Return the call as findings name it: `search {"query": "TW-1"}`."""
        return (
            self.tool if self.rule(usual) == "ignored" else f"{self.tool} {format_value(self.args)}"
        )


Mode = Literal["any_order", "in_order", "exact", "subset", "superset"]
Fits = Sequence[Sequence[int]]


def assigned(mode: Mode, fits: Fits) -> list[int | None]:
    """Return for each expectation the place of the call that answers it, None for none.

    `fits` holds for each expectation the places, rising, of the calls that fit it. Each call answers
    one expectation, and as many expectations as can be are answered.
    """
    if mode == "exact":
        return [place if place in places else None for place, places in enumerate(fits)]
    return _in_order(fits) if mode == "in_order" else _any_order(fits)


def _in_order(fits: Fits) -> list[int | None]:
    """Return the longest row of calls that answers expectations in their order.

    Of rows as long the one that answers earlier expectations is taken, and the first calls that do.
    """
    found: list[int | None] = [None] * len(fits)
    at = -1
    for number in _longest_row(fits):
        at = fits[number][bisect_right(fits[number], at)]
        found[number] = at
    return found


def _longest_row(fits: Fits) -> list[int]:
    """Return the expectations that the longest row answers, found from its end."""
    # Of the best row of each length so far: its first call, negative so that they rise, and its link.
    starts: list[int] = []
    heads: list[int] = []
    links: list[tuple[int, int | None]] = []
    for number in reversed(range(len(fits))):
        # From the first call up, so that one expectation lengthens a row once.
        for place in fits[number]:
            length = bisect_left(starts, -place)
            if length < len(starts) and starts[length] == -place:
                continue
            links.append((number, heads[length - 1] if length else None))
            starts[length : length + 1] = [-place]
            heads[length : length + 1] = [len(links) - 1]
    row: list[int] = []
    link = heads[-1] if heads else None
    while link is not None:
        number, link = links[link]
        row.append(number)
    return row


def _any_order(fits: Fits) -> list[int | None]:
    """Return the largest matching of expectations and calls."""
    # Of more calls than there are expectations, an expectation never needs the rest.
    near = [places[: len(fits)] for places in fits]
    taken: dict[int, int] = {}

    def claim(number: int, tried: set[int]) -> bool:
        for place in near[number]:
            if place in tried:
                continue
            tried.add(place)
            if place not in taken or claim(taken[place], tried):
                taken[place] = number
                return True
        return False

    for number in range(len(fits)):
        claim(number, set())
    answers = {number: place for place, number in taken.items()}
    return [answers.get(number) for number in range(len(fits))]


Call = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolRow:
    """One expectation, or calls of one tool that none was for.

    `passed` is None for what is neither good nor bad. The row stands for so many expectations as it
    `counts`; `place` is the call's, from 1.
    """

    text: str
    word: str
    passed: bool | None
    expected: str = ""
    called: str = ""
    place: int | None = None
    counts: int = 1
    evidence: str = ""

    @property
    def finding(self) -> Finding:
        """Return the row as a hit or a miss."""
        return Finding(self.text, bool(self.passed), self.evidence)

    def as_json(self) -> dict[str, Any]:
        """Return what the page shows of it."""
        return asdict(self)


def expectation_rows(
    config: ToolTrajectoryConfig, calls: Sequence[Call], fits: Fits
) -> list[ToolRow]:
    """Return the rows of a trajectory; `fits` holds the places of the calls that fit each expectation."""
    if config.mode == "subset":
        allowed = {place for places in fits for place in places}
        return [
            *_together(calls, sorted(allowed), "expected", passed=True),
            *_extra(calls, allowed),
        ]
    answers = assigned(config.mode, fits)
    telling = _Telling(config, calls, fits, {place for place in answers if place is not None})
    rows = [
        row
        for number, (one, place) in enumerate(zip(config.expected, answers, strict=True))
        for row in telling.rows(number, one, place)
    ]
    rows += _minimums(config.minimums, calls)
    if config.mode == "exact":
        return [*rows, *_extra(calls, set(range(len(config.expected))))]
    left = [place for place in range(len(calls)) if place not in telling.shown]
    return [*rows, *_together(calls, left, "beyond these", passed=None)]


def untimed(config: ToolTrajectoryConfig, calls: Sequence[Call], fits: Fits) -> list[str]:
    """Return the tools with a limit on their time whose call does not tell how long it took."""
    if config.mode == "subset":
        return []
    pairs = zip(config.expected, assigned(config.mode, fits), strict=True)
    return [
        one.tool
        for one, place in pairs
        if one.max_duration_ms is not None
        and place is not None
        and calls[place].get("duration_ms") is None
    ]


class _Telling:
    """The expectations of one trajectory, each told by the call that answers it or nearly does."""

    def __init__(
        self, config: ToolTrajectoryConfig, calls: Sequence[Call], fits: Fits, answering: set[int]
    ) -> None:
        self.config = config
        self.calls = calls
        self.fits = fits
        self.answering = answering
        self.shown = set(answering)

    def rows(self, number: int, one: ExpectedCall, place: int | None) -> Iterator[ToolRow]:
        """Yield the row of an expectation, and one for its time where that is limited."""
        spelt = one.spelt(self.config.args_match)
        if place is None:
            yield self._missed(number, one, spelt)
        else:
            text = f"{spelt} was called ({_nth(place)})"
            yield ToolRow(text, "as expected", True, spelt, self._called(place), place + 1)
        if one.max_duration_ms is not None:
            yield self._timed(one.tool, one.max_duration_ms, place)

    def _missed(self, number: int, one: ExpectedCall, spelt: str) -> ToolRow:
        if self.config.mode == "exact" and number < len(self.calls):
            return self._elsewhere(number, one, spelt)
        near = [place for place in self.fits[number] if place not in self.shown]
        word, how = "out of order", "was called out of order"
        if not near:
            word, how = "other arguments", "was called with other arguments"
            near = self._unanswering(one.tool)
        if not near:
            return ToolRow(f"{spelt} was not called", "missing", False, spelt)
        return self._near(spelt, near[0], word, f"{spelt} {how} ({_nth(near[0])})")

    def _elsewhere(self, place: int, one: ExpectedCall, spelt: str) -> ToolRow:
        """Return the row of a place of an exact trajectory at which another call stands."""
        tool = self.calls[place]["tool"]
        if tool == one.tool:
            said = f"{spelt} was called with other arguments ({_nth(place)})"
            return self._near(spelt, place, "other arguments", said)
        is_late = any(other not in self.answering for other in self.fits[place])
        word = "out of order" if is_late else "other tool"
        return self._near(spelt, place, word, f"Call {place + 1} is {tool}, not {spelt}")

    def _near(self, spelt: str, place: int, word: str, text: str) -> ToolRow:
        self.shown.add(place)
        given = str(self.calls[place].get("arguments", ""))
        return ToolRow(text, word, False, spelt, self._called(place), place + 1, evidence=given)

    def _unanswering(self, tool: str) -> list[int]:
        return [
            place
            for place, call in enumerate(self.calls)
            if call["tool"] == tool and place not in self.shown
        ]

    def _called(self, place: int) -> str:
        call = self.calls[place]
        return " ".join(filter(None, (call["tool"], str(call.get("arguments", "")))))

    def _timed(self, tool: str, limit: int, place: int | None) -> ToolRow:
        expected = f"{tool} within {format_figure(limit, 'ms')}"
        if place is None:
            return ToolRow(f"{expected}: there is no call to time", "not timed", False, expected)
        took = self.calls[place]["duration_ms"]
        called, kept = format_figure(took, "ms"), took <= limit
        text = f"{tool} took {called}, {'at most' if kept else 'over the limit of'} "
        text += format_figure(limit, "ms")
        return ToolRow(text, "in time" if kept else "too slow", kept, expected, called, place + 1)


def _minimums(minimums: Mapping[str, int], calls: Sequence[Call]) -> Iterator[ToolRow]:
    counted = Counter(call["tool"] for call in calls)
    for tool, least in minimums.items():
        expected, called = f"{tool} at least {_times(least)}", _times(counted[tool])
        passed = counted[tool] >= least
        text = f"{tool} was called {called}, at least {least} expected"
        yield ToolRow(text, "often enough" if passed else "too seldom", passed, expected, called)


def _extra(calls: Sequence[Call], expected: set[int]) -> Iterator[ToolRow]:
    left = [place for place in range(len(calls)) if place not in expected]
    return _together(calls, left, "extra", passed=False)


def _together(
    calls: Sequence[Call], places: Sequence[int], word: str, *, passed: bool | None
) -> Iterator[ToolRow]:
    """Yield one row for the calls of each tool among the places, at its first."""
    found: dict[str, list[int]] = {}
    for place in places:
        found.setdefault(calls[place]["tool"], []).append(place)
    for tool, those in found.items():
        called = tool if len(those) == 1 else f"{tool}, {_times(len(those))}"
        text = f"{tool} was called {_times(len(those))}, {'expected' if passed else 'not expected'}"
        yield ToolRow(text, word, passed, "", called, those[0] + 1, len(those))


def _nth(place: int) -> str:
    return f"call {place + 1}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{format_figure(count, '')} times"
