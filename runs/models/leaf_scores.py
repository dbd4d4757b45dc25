"""What every evaluator of a run said, in one piece small enough to be read at once."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runs.models.results import Result, Score

VERSION = 1
SCORES = 6


@dataclass(frozen=True, slots=True)
class LeafScores:
    """Scores by result, one for each of the `columns`, which are found by path.

    A score is None where the evaluator was not run, False where it could not score, and
    [score, required parts missed] where it missed some.
    """

    columns: Mapping[str, int]
    scores: Mapping[int, Sequence[Any]]


def unpack_leaf_scores(packed: bytes) -> LeafScores | None:
    """Return what was packed, None where another version wrote it."""
    content = json.loads(zlib.decompress(packed))
    if content.get("version") != VERSION:
        return None
    return LeafScores(
        columns={path: place for place, path in enumerate(content["paths"])},
        scores={row[0]: row[SCORES] for row in content["results"]},
    )


def pack_leaf_scores(run_id: int) -> bytes:
    """Return what every evaluator of a run said, small enough to be read at once for what-if.

    Compressed JSON: {"version", "paths", "results": [[result, case, repetition, status, outcome
    marks, error stage, [score of each path]]]}. A score is null where the evaluator was not run,
    false where it could not score, and [score, required parts missed] where it missed some.
    """
    places: dict[str, int] = {}
    scores: dict[int, dict[int, Any]] = {}
    rows = Score.objects.filter(result__run_id=run_id).order_by()
    for result_id, path, state, score, missed in rows.values_list(
        "result_id", "path", "state", "score", "failed_required"
    ).iterator(chunk_size=5000):
        place = places.setdefault(path, len(places))
        said = score if state == "scored" else False if state == "unscored" else None
        scores.setdefault(result_id, {})[place] = [said, missed] if missed else said
    results = Result.objects.filter(run_id=run_id).order_by("position", "repetition", "id")
    packed = [
        [*row, [scores.get(row[0], {}).get(place) for place in range(len(places))]]
        for row in results.values_list(
            "id", "case_id", "repetition", "status", "outcome_marks", "error_stage"
        ).iterator(chunk_size=5000)
    ]
    content = {"version": VERSION, "paths": list(places), "results": packed}
    return zlib.compress(json.dumps(content, separators=(",", ":")).encode(), level=6)
