"""What of a run's results a page asks for, as its address says it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from runs.reports.case_groups import STATES

LONGEST_QUERY = 200
LARGEST = 2**63
YES = "1"
SORTS = (
    *("attention", "verdict", "case", "score", "spread", "metrics", "outcomes"),
    *("latency", "cost"),
)


@dataclass(frozen=True, slots=True)
class ResultsQuery:
    """What of a run's results is asked for; it lives in the address of the page.

    With `flaky` only the cases whose repetitions differ in their verdicts are.
    """

    state: str = ""
    flaky: bool = False
    tag: str = ""
    text: str = ""
    sort: str = "attention"
    is_descending: bool = False
    after: tuple[float, int, int] | None = None

    @classmethod
    def read(cls, parameters: Mapping[str, str]) -> ResultsQuery:
        """Read the parameters of an address; what it does not know, it leaves at its default."""
        state, sort = parameters.get("verdict", ""), parameters.get("sort", "attention")
        name = sort.removeprefix("-")
        return cls(
            state=state if state in STATES else "",
            flaky=parameters.get("flaky", "") == YES,
            tag=parameters.get("tag", ""),
            text=parameters.get("q", "").strip()[:LONGEST_QUERY],
            sort=name if name in SORTS else "attention",
            is_descending=sort.startswith("-") and name in SORTS,
            after=_read_place(parameters.get("after", "")),
        )

    def as_parameters(self) -> dict[str, str]:
        """Return the parameters, without those at their default."""
        sort = f"-{self.sort}" if self.is_descending else self.sort
        after = "~".join(map(repr, self.after)) if self.after else ""
        named = {
            "verdict": self.state,
            "flaky": YES if self.flaky else "",
            "tag": self.tag,
            "q": self.text,
        }
        named |= {"sort": "" if sort == "attention" else sort, "after": after}
        return {name: value for name, value in named.items() if value}

    @property
    def is_narrowed(self) -> bool:
        """Tell whether anything is left out."""
        return bool(self.state or self.flaky or self.tag or self.text)

    def address(self, **changes: Any) -> str:
        """Return the query part of the address with some of it changed, from the first page on."""
        return "?" + urlencode(replace(self, **{"after": None} | changes).as_parameters())


def _read_place(text: str) -> tuple[float, int, int] | None:
    try:
        value, place, case = text.split("~")
        numbers = float(value), int(place), int(case)
    except ValueError:
        return None
    # Whatever no column could hold is no place that this site wrote.
    is_ours = math.isfinite(numbers[0]) and max(map(abs, numbers[1:])) < LARGEST
    return numbers if is_ours else None
