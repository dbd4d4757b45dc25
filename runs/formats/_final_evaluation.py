"""The final evaluation of a hybrid judge as seed 003 publishes it: one document a case, with what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

# A document names its case and its run before what was found.
FIRST = ("schema_version",)


def published(
    found: Mapping[str, Any], *, case: str, run: str, costs: tuple[Decimal | None, Decimal | None]
) -> dict[str, Any]:
    """Return the document of a case; scores are 0 to 10, costs dollars of the target and of the judges.

    `found` is what the hybrid judge keeps. A cost is None where no price is known; the total is what
    is known of both.
    """
    head = {name: found[name] for name in FIRST if name in found}
    return {
        **head,
        "case_id": case,
        "run_id": run,
        **{name: value for name, value in found.items() if name not in head},
        "usage_summary": usage_summary(*costs),
    }


def usage_summary(run: Decimal | None, evaluation: Decimal | None) -> dict[str, float | None]:
    """Return both purses and their sum in dollars, each None where nothing is known of it."""
    known = [usd for usd in (run, evaluation) if usd is not None]
    return {
        "run_cost_usd": None if run is None else float(run),
        "evaluation_cost_usd": None if evaluation is None else float(evaluation),
        "total_cost_usd": float(sum(known, Decimal(0))) if known else None,
    }
