"""Two runs compared, and the one document of it that the command line, the API, exports and links give."""

from __future__ import annotations

from typing import Any

from runs.reports.compared import Compared, compared
from runs.reports.comparison_conclusion import Conclusion, conclude
from runs.reports.comparison_sides import Side, side_of_case

__all__ = ("Compared", "Side", "compared", "comparison_document", "side_of_case")


def comparison_document(found: Compared, came_to: Conclusion | None = None) -> dict[str, Any]:
    """Return the comparison as plain JSON values; `came_to` is a conclusion drawn with other demands.

    Scores and rates are 0 to 1, metrics and dimensions on their own `scale`, latencies in
    milliseconds, costs US dollars spelt out; changes are candidate minus baseline. What a side has
    none of is None. `evidence` and `metrics` are of the shared cases without errors, with each p
    raised by Holm's rule; the rest are each run's own figures (SCORING §9).
    """
    return {
        "baseline": found.baseline.as_json(),
        "candidate": found.candidate.as_json(),
        "verdict": (came_to or conclude(found)).as_json(),
        "differences": [one.as_json() for one in found.differences],
        "is_comparable": found.is_comparable,
        "only_shared_cases": found.is_of_shared_cases,
        "tolerances": found.tolerances.as_json(),
        **found.runs.as_json(),
        "cases_in_both": found.in_both,
        "shared_cases": found.shared,
        "evidence": found.evidence.as_json(),
        "metrics": [one.as_json() for one in found.evidence.measured],
        "cases": [
            {**change.as_json(), "title": found.title(change.case)} for change in found.cases
        ],
    }
