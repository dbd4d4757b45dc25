"""The draft of a suite as values: what is edited, how it is changed, and what differs between two."""

from __future__ import annotations

from runs.drafting.content import Content, content_of, edited_parts, origins, path_of, tree_of
from runs.drafting.describing import Describe, SetJudge, SetPolicy
from runs.drafting.editing import (
    ChangeRefusedError,
    Operation,
    UnknownEvaluatorError,
    change,
    check,
)
from runs.drafting.placing import Add, Duplicate, Group, Move, Remove, Shift
from runs.drafting.settings import (
    Combine,
    Configure,
    Guard,
    Negate,
    Rename,
    Require,
    SetWeight,
)

__all__ = [
    "Add",
    "ChangeRefusedError",
    "Combine",
    "Configure",
    "Content",
    "Describe",
    "Duplicate",
    "Group",
    "Guard",
    "Move",
    "Negate",
    "Operation",
    "Remove",
    "Rename",
    "Require",
    "SetJudge",
    "SetPolicy",
    "SetWeight",
    "Shift",
    "UnknownEvaluatorError",
    "change",
    "check",
    "content_of",
    "edited_parts",
    "origins",
    "path_of",
    "tree_of",
]
