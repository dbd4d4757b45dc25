"""The whole outcome of an attempt, packed while a newer one is the result's, and unpacked when it counts again."""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models

from runs.models.database import among, insert_rows
from runs.models.results import (
    Artifact,
    EvaluatorScore,
    ExternalScore,
    Result,
    ResultOutput,
    ResultStatus,
)
from runs.models.search import ResultText
from runs.models.stored import SCORE_COLUMNS
from runs.models.suites import FileContent
from runs.specs.external_scores import COLUMNS as EXTERNAL_COLUMNS

VERSION = 1
RESULT_COLUMNS = (
    *("status", "verdict", "score", "metrics_score", "decided_by", "is_forced", "error"),
    *("error_stage", "outcome_marks", "warnings", "latency_ms", "input_tokens", "output_tokens"),
    "finished_at",
)
# What belongs to a result, by the key that names it.
PARTS: Mapping[type[models.Model], Sequence[str]] = {
    ResultOutput: ("result_id", "text", "messages", "trace", "usage", "outcomes", "decision"),
    EvaluatorScore: SCORE_COLUMNS,
    Artifact: ("result_id", "path", "content_id"),
    ExternalScore: ("result_id", "source", "name", *EXTERNAL_COLUMNS, "pushed_at"),
}


def pack_contents(result_ids: Sequence[int]) -> dict[int, bytes]:
    """Return the outcomes of scored results with their outputs, each packed; five queries."""
    with_output = Result.objects.filter(
        pk__in=among(result_ids),
        status=ResultStatus.SCORED,
        output__isnull=False,
        output__removed_at=None,
    ).order_by()
    contents: dict[int, dict[str, Any]] = {
        pk: {"version": VERSION, "result": values, "parts": defaultdict(list)}
        for pk, *values in with_output.values_list("pk", *RESULT_COLUMNS)
    }
    for model, columns in PARTS.items():
        rows: Any = model._default_manager.filter(result__in=among(contents)).order_by()
        for pk, *values in rows.values_list(*columns):
            contents[pk]["parts"][model.__name__].append(values)
    return {
        pk: zlib.compress(json.dumps(content, cls=DjangoJSONEncoder).encode())
        for pk, content in contents.items()
    }


def unpack_content(result: Result, packed: bytes) -> None:
    """Replace the outcome of a result by a packed one; the caller holds the run.

    Files that nobody has any more are left out.
    """
    content = json.loads(zlib.decompress(packed))
    values = dict(zip(RESULT_COLUMNS, content["result"], strict=True))
    Result.objects.filter(pk=result.pk).update(**values)
    for model, columns in PARTS.items():
        model._default_manager.filter(result=result.pk).delete()
        rows = content["parts"].get(model.__name__, ())
        if model is Artifact:
            known = set(
                FileContent.objects.filter(pk__in=[row[1] for row in rows]).values_list(
                    "pk", flat=True
                )
            )
            rows = [row for row in rows if row[1] in known]
        fields = [field for field in model._meta.concrete_fields if field.attname in columns[1:]]
        by_name = {field.attname: field for field in fields}
        insert_rows(
            model,
            columns,
            (
                (
                    result.pk,
                    *(
                        value if value is None else by_name[name].to_python(value)
                        for name, value in zip(columns[1:], row, strict=True)
                    ),
                )
                for row in rows
            ),
        )
    ResultText.objects.refresh(result.run_id, [result.pk])
