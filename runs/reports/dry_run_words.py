"""What is said before the requests and programs of a dry run: how far they are those of a try and of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evaluators.kinds import all_kinds
from evaluators.scoring.tree import Node, below, walk
from runs.models import ScoreState
from runs.plan import OUTCOMES_PATH

NEW_MARKS = "Only the random marks around quoted texts are new each time."
NOBODY = "A try would ask nobody about this output."
BESIDE = "Runs ask for the expected outcomes besides; a try leaves that out."
OVER_OTHERS = "Who judges over other evaluators is given their scores; those that are not asked yet have none here."
OVER_PROGRAMS = (
    "A judge is shown what its checks found; scripts that are not started found nothing yet."
)


def dry_run_words(found: Mapping[str, Any], root: Node) -> str:
    """Return in sentences what a dry run of a tree shows and what of it a try would not give so, "" for nothing shown."""
    paths = {request["path"] for request in found.get("requests") or ()}
    scripts = bool(found.get("scripts"))
    if not paths and not scripts:
        return ""
    return " ".join(_sentences(found, root, paths, has_scripts=scripts))


def _sentences(
    found: Mapping[str, Any], root: Node, paths: set[str], *, has_scripts: bool
) -> Iterator[str]:
    sends = bool(paths - {OUTCOMES_PATH})
    deeds = [word for word, is_done in (("send", sends), ("start", has_scripts)) if is_done]
    yield f"This is what a try would {' and '.join(deeds)}, exactly." if deeds else NOBODY
    if paths:
        yield NEW_MARKS
    if OUTCOMES_PATH in paths:
        yield BESIDE
    if _judges_over_unasked(found, root):
        yield OVER_OTHERS
    if any(path in paths and _runs_programs(node) for path, node in walk(root)):
        yield OVER_PROGRAMS


def _judges_over_unasked(found: Mapping[str, Any], root: Node) -> bool:
    """Tell whether a judge or a script makes a score of others, some of which a dry run leaves open."""
    scores = found.get("scores") or ()
    unasked = {row["path"] for row in scores if row["state"] == ScoreState.SKIPPED}
    return any(
        inner in unasked
        for path, node in walk(root)
        if node.aggregator is not None and node.aggregator.is_judging
        for child in node.children
        for inner, _ in walk(child, below(path, child.name))
    )


def _runs_programs(node: Node) -> bool:
    kind = all_kinds().get(node.kind)
    return kind is not None and kind.runs_programs is not None and kind.runs_programs(node.config)
