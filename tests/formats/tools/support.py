"""Files of other tools, given as an upload of a folder."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO

from evaluators.scoring.tree import EvaluatorSpec, walk
from runs.formats.bundles import Bundle, read_uploads
from runs.formats.finding import read_suites
from runs.specs.suites import SuiteWithCases


def given(files: Mapping[str, str | bytes]) -> Bundle:
    parts = [(p, BytesIO(t if isinstance(t, bytes) else t.encode())) for p, t in files.items()]
    [bundle] = read_uploads(parts)
    return bundle


def found(files: Mapping[str, str | bytes]) -> tuple[list[SuiteWithCases], list[str]]:
    reading = read_suites([given(files)])
    return [suite.content for suite in reading.suites], list(map(str, reading.warnings))


def tree_lines(root: EvaluatorSpec) -> list[str]:
    """Return a line for each evaluator: path, kind, weight, negation and what it must reach."""
    return [
        " ".join(
            filter(
                None,
                (
                    path,
                    node.kind,
                    f"×{node.weight:g}" if node.weight != 1 else "",
                    "not" if node.negate else "",
                    "required" if node.required else "",
                    f"≥{node.required_below:g}" if node.required_below is not None else "",
                ),
            )
        )
        for path, node in walk(root)
        if path
    ]
