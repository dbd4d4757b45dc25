"""Match the actual tool calls with the expected ones, and describe the result row by row."""

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
    """One expected call of a tool."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    tool: str = Field(min_length=1, max_length=200, description="Name of the tool.")
    args: Mapping[str, Any] | None = Field(None, description="Its arguments. Empty: any.")
    args_match: ArgumentRule | None = Field(
        None, description="How the arguments are compared. Empty: as set for the evaluator."
    )
    max_duration_ms: int | None = Field(None, ge=0, description="The longest the call may take.")

    @field_validator("args")
    @classmethod
    def _can_be_compared(cls, args: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        if not is_json(args):
            raise ValueError("contains a value that is not JSON; put dates and the like in quotes")
        return args

    def rule(self, default: ArgumentRule) -> ArgumentRule:
        """Return how the arguments are compared; without arguments they are ignored."""
        return "ignored" if self.args is None else self.args_match or default

    def fits(self, step: Step, default: ArgumentRule) -> bool:
        """Tell whether a call is of this tool and has matching arguments."""
        if step.name != self.tool:
            return False
        rule, expected = self.rule(default), self.args or {}
        if rule == "ignored":
            return True
        arguments = {} if step.input is None else step.input
        if not isinstance(arguments, Mapping):
            return False
        if rule == "exact":
            return is_same(dict(arguments), dict(expected))
        inner, outer = (expected, arguments) if rule == "partial" else (arguments, expected)
        return all(key in outer and is_same(inner[key], outer[key]) for key in inner)

    def text(self, default: ArgumentRule) -> str:
        """Return the call as findings name it: `search {"query": "TW-1"}`."""
        return (
            self.tool
            if self.rule(default) == "ignored"
            else f"{self.tool} {format_value(self.args)}"
        )


Mode = Literal["any_order", "in_order", "exact", "subset", "superset"]
Fits = Sequence[Sequence[int]]


def assign_calls(mode: Mode, fits: Fits) -> list[int | None]:
    """Return the position of the call that meets each expectation, None for none.

    `fits` holds the ascending positions of the calls that match each expectation. Each call meets one
    expectation, and as many expectations as possible are met.
    """
    if mode == "exact":
        return [place if place in places else None for place, places in enumerate(fits)]
    return _in_order(fits) if mode == "in_order" else _any_order(fits)


def _in_order(fits: Fits) -> list[int | None]:
    """Return the longest sequence of calls that meets expectations in their order.

    Of several, it is the one that meets earlier expectations with earlier calls.
    """
    positions: list[int | None] = [None] * len(fits)
    position = -1
    for number in _longest_sequence(fits):
        position = fits[number][bisect_right(fits[number], position)]
        positions[number] = position
    return positions


def _longest_sequence(fits: Fits) -> list[int]:
    """Return the expectations that the longest sequence meets, searched from its end."""
    # The best sequence of each length so far: its first call, negative so that they ascend, and its link.
    starts: list[int] = []
    heads: list[int] = []
    links: list[tuple[int, int | None]] = []
    for number in reversed(range(len(fits))):
        # In ascending order, so that one expectation extends a sequence only once.
        for place in fits[number]:
            length = bisect_left(starts, -place)
            if length < len(starts) and starts[length] == -place:
                continue
            links.append((number, heads[length - 1] if length else None))
            starts[length : length + 1] = [-place]
            heads[length : length + 1] = [len(links) - 1]
    sequence: list[int] = []
    link = heads[-1] if heads else None
    while link is not None:
        number, link = links[link]
        sequence.append(number)
    return sequence


def _any_order(fits: Fits) -> list[int | None]:
    """Return the largest matching of expectations and calls."""
    # An expectation never needs more calls than there are expectations.
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
    """One expectation, or calls of one tool that no expectation is for.

    `passed` is None for rows that are neither good nor bad. The row `counts` as this many expectations;
    `place` is the position of the call, from 1.
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
        """Return the row as plain JSON values."""
        return asdict(self)


def expectation_rows(
    config: ToolTrajectoryConfig, calls: Sequence[Call], fits: Fits
) -> list[ToolRow]:
    """Return the rows of a trajectory; `fits` holds the positions of the calls that match each expectation."""
    if config.mode == "subset":
        allowed = {place for places in fits for place in places}
        return [
            *_together(calls, sorted(allowed), "expected", passed=True),
            *_extra(calls, allowed),
        ]
    answers = assign_calls(config.mode, fits)
    writer = _RowWriter(config, calls, fits, {place for place in answers if place is not None})
    rows = [
        row
        for number, (call, place) in enumerate(zip(config.expected, answers, strict=True))
        for row in writer.rows(number, call, place)
    ]
    rows += _minimums(config.minimums, calls)
    if config.mode == "exact":
        return [*rows, *_extra(calls, set(range(len(config.expected))))]
    left = [place for place in range(len(calls)) if place not in writer.shown]
    return [*rows, *_together(calls, left, "beyond these", passed=None)]


def tools_without_duration(
    config: ToolTrajectoryConfig, calls: Sequence[Call], fits: Fits
) -> list[str]:
    """Return the tools with a time limit whose call does not report its duration."""
    if config.mode == "subset" or all(call.max_duration_ms is None for call in config.expected):
        return []
    pairs = zip(config.expected, assign_calls(config.mode, fits), strict=True)
    return [
        call.tool
        for call, place in pairs
        if call.max_duration_ms is not None
        and place is not None
        and calls[place].get("duration_ms") is None
    ]


class _RowWriter:
    """Describes each expectation of one trajectory by the call that meets it or nearly does."""

    def __init__(
        self, config: ToolTrajectoryConfig, calls: Sequence[Call], fits: Fits, used: set[int]
    ) -> None:
        self.config = config
        self.calls = calls
        self.fits = fits
        self.used = used
        self.shown = set(used)

    def rows(self, number: int, call: ExpectedCall, place: int | None) -> Iterator[ToolRow]:
        """Yield the row of an expectation, and one for its time limit if it has one."""
        call_text = call.text(self.config.args_match)
        if place is None:
            yield self._missed(number, call, call_text)
        else:
            text = f"{call_text} was called ({_nth(place)})"
            yield ToolRow(text, "as expected", True, call_text, self._called(place), place + 1)
        if call.max_duration_ms is not None:
            yield self._timed(call.tool, call.max_duration_ms, place)

    def _missed(self, number: int, call: ExpectedCall, call_text: str) -> ToolRow:
        if self.config.mode == "exact" and number < len(self.calls):
            return self._elsewhere(number, call, call_text)
        near = [place for place in self.fits[number] if place not in self.shown]
        word, description = "out of order", "was called out of order"
        if not near:
            word, description = "other arguments", "was called with other arguments"
            near = self._unused_calls(call.tool)
        if not near:
            return ToolRow(f"{call_text} was not called", "missing", False, call_text)
        return self._near(call_text, near[0], word, f"{call_text} {description} ({_nth(near[0])})")

    def _elsewhere(self, place: int, call: ExpectedCall, call_text: str) -> ToolRow:
        """Return the row of a position in an exact trajectory that has another call."""
        tool = self.calls[place]["tool"]
        if tool == call.tool:
            message = f"{call_text} was called with other arguments ({_nth(place)})"
            return self._near(call_text, place, "other arguments", message)
        is_late = any(other not in self.used for other in self.fits[place])
        word = "out of order" if is_late else "other tool"
        return self._near(call_text, place, word, f"Call {place + 1} is {tool}, not {call_text}")

    def _near(self, call_text: str, place: int, word: str, text: str) -> ToolRow:
        self.shown.add(place)
        arguments = str(self.calls[place].get("arguments", ""))
        return ToolRow(
            text, word, False, call_text, self._called(place), place + 1, evidence=arguments
        )

    def _unused_calls(self, tool: str) -> list[int]:
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
    """Yield one row for the calls of each tool at these positions."""
    places_by_tool: dict[str, list[int]] = {}
    for place in places:
        places_by_tool.setdefault(calls[place]["tool"], []).append(place)
    for tool, tool_places in places_by_tool.items():
        called = tool if len(tool_places) == 1 else f"{tool}, {_times(len(tool_places))}"
        text = f"{tool} was called {_times(len(tool_places))}, {'expected' if passed else 'not expected'}"
        yield ToolRow(text, word, passed, "", called, tool_places[0] + 1, len(tool_places))


def _nth(place: int) -> str:
    return f"call {place + 1}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{format_figure(count, '')} times"
