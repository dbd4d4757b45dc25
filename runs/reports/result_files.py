"""The files that a target left in one result."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import F

from runs.models import Artifact, Result, Run


@dataclass(frozen=True, slots=True)
class LeftFile:
    """One file as the page lists it; its size is in bytes."""

    path: str
    size: int


def result_files(result: Result) -> tuple[LeftFile, ...]:
    """Return the files of a result by path, without their content."""
    rows = result.artifacts.annotate(size=F("content__size")).order_by("path")
    return tuple(LeftFile(path, size) for path, size in rows.values_list("path", "size"))


def one_file(run: Run, key: str, repetition: int, path: str) -> bytes:
    """Return what a file holds; raises Artifact.DoesNotExist."""
    left = Artifact.objects.filter(result__run=run, result__repetition=repetition)
    return bytes(
        left.select_related("content").get(result__case__key=key, path=path).content.content
    )
