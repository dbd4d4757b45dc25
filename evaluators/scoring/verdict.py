"""Turn what the evaluators of one result say into one score and one verdict (SCORING §4).

The same outcomes give the same verdict in any order, on any machine.
"""

from __future__ import annotations

from evaluators.scoring.decision import Decision, Flip, NodeResult, TraceStep

__all__ = ["Decision", "Flip", "NodeResult", "TraceStep"]
