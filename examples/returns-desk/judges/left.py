"""The ticket that the agent left behind, for the judges beside this file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def ticket() -> dict[str, Any] | None:
    """Return the ticket; None when there is none that can be read."""
    try:
        left = json.loads((Path(os.environ["EVAL_WORKSPACE"]) / "ticket.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return left if isinstance(left, dict) else None
