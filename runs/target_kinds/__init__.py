"""The kinds of target: one module each, found by scanning this folder."""

from __future__ import annotations

import importlib
import pkgutil
from functools import lru_cache

from evaluators.scoring.types import DomainError
from runs.target_kinds._base import TargetKind


class UnknownTargetKindError(DomainError):
    """A target names a kind that no module provides."""

    code = "unknown_target_kind"


@lru_cache(maxsize=1)
def target_kinds() -> dict[str, TargetKind]:
    """Return every kind of target by name; modules that begin with an underscore are not kinds."""
    names = sorted(
        module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")
    )
    return {name: _read_kind(name) for name in names}


def get_target_kind(name: str) -> TargetKind:
    """Return the kind with this name; raises UnknownTargetKindError listing the kinds."""
    kinds = target_kinds()
    if name not in kinds:
        known = ", ".join(sorted(kinds))
        raise UnknownTargetKindError(f"There is no target kind {name!r}; there are {known}.")
    return kinds[name]


def _read_kind(name: str) -> TargetKind:
    module = importlib.import_module(f"{__name__}.{name}")
    facts = getattr(module.answer, "target_facts", None)
    if facts is None:
        raise TypeError(f"{module.__name__}.answer is not marked with @target_kind")
    manual = (module.__doc__ or "").strip()
    return TargetKind(name=name, answer=module.answer, manual=manual, **facts)
