"""Outputs that are read in parts, so that few large ones are in memory at once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from runs.models import results
from runs.models.results import ResultOutput
from tests.support.factories import make_scored_run

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("lengths", "parts"),
    [
        ([1, 1, 1, 1], [2, 2]),
        ([9, 1, 1], [1, 1, 1]),
        ([1, 9, 9], [2, 1]),
        ([None, None, None], [2, 1]),
        ([None, 9, 1], [2, 1]),
        ([], []),
    ],
)
def test_a_part_has_so_many_outputs_and_bytes(
    lengths: Sequence[int | None], parts: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "CHUNK", 2)
    monkeypatch.setattr(results, "OUTPUT_BYTES_AT_ONCE", 9)
    run = make_scored_run(verdicts=["pass"] * len(lengths))
    ids = list(run.results.order_by("pk").values_list("pk", flat=True))
    ResultOutput.objects.bulk_create(
        ResultOutput(result_id=pk, text="x" * (length - 1), trace=[])
        for pk, length in zip(ids, lengths, strict=True)
        if length
    )
    found = list(ResultOutput.objects.batches(ids, "text", "trace"))
    assert [len(part) for part in found] == parts
    assert [pk for part in found for pk in part] == ids
