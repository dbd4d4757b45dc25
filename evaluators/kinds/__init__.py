"""The kinds of evaluator: one module each, found by scanning."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Collection, ItemsView, Iterable, Mapping, Sequence
from functools import cache
from types import MappingProxyType, ModuleType
from typing import Any

from pydantic import ValidationError

from evaluators.kinds._base import Kind, KindConfig
from evaluators.kinds._judging import named_models
from evaluators.kinds._prompts import is_reference, literal_variable, named_file, reference_text
from evaluators.kinds._refusals import (
    InvalidConfigError,
    Refusal,
    UnknownKindError,
    config_error,
    normal_spelling,
)

__all__ = [
    "InvalidConfigError",
    "UnknownKindError",
    "all_kinds",
    "file_references",
    "get_kind",
    "is_spelling",
    "kind_for_spelling",
    "literal_variable",
    "named_models",
    "normal_spelling",
    "prompt_versions",
    "read_config",
    "rules_versions",
    "shortest_spelling",
    "type_names",
]

PROMPT_VERSION, RULES_VERSION = "PROMPT_VERSION", "RULES_VERSION"
MAX_SHOWN_LENGTH = 60


@cache
def all_kinds() -> Mapping[str, Kind]:
    """Return every kind by name, sorted; underscore modules are not kinds.

    Raises TypeError for a module without a marked score function and for a type name that two kinds claim.
    """
    kinds = {name: _kind_in(name, module) for name, module in _modules().items()}
    _kinds_by_spelling(kinds.values())
    return MappingProxyType(kinds)


def get_kind(name: str) -> Kind:
    """Return the kind of this name; raises UnknownKindError listing the kinds."""
    kind = all_kinds().get(name)
    if kind is None:
        raise UnknownKindError(
            f"There is no evaluator kind {name!r}; there are {', '.join(all_kinds())}."
        )
    return kind


def kind_for_spelling(
    spelling: str, settings: Mapping[str, Any] | None = None
) -> tuple[Kind, Mapping[str, Any]]:
    """Return the kind of a type name in a suite file, and the settings that the name implies.

    `llm-judge`, `llm_judge` and `llmJudge` are the same name. The other settings may imply another
    kind. Raises UnknownKindError listing the type names.
    """
    known = _spellings()
    match = known.get(normal_spelling(spelling))
    if match is None:
        raise UnknownKindError(
            f"There is no evaluator type {spelling[:MAX_SHOWN_LENGTH]!r}; there are {', '.join(sorted(known))}."
        )
    name, preset = match
    kind = all_kinds()[name]
    settings_by_name = {normal_spelling(str(key)): value for key, value in (settings or {}).items()}
    other = kind.implied_kind(settings_by_name) if kind.implied_kind else ""
    return (all_kinds()[other], {}) if other else (kind, preset)


def type_names() -> Collection[str]:
    """Return the type names of suite files in snake_case."""
    return _spellings().keys()


def is_spelling(text: str) -> bool:
    """Tell whether a text is a type name in suite files."""
    return normal_spelling(text) in _spellings()


def shortest_spelling(name: str, config: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the type name that implies the most settings, and the settings left to write.

    A name that only says which setting `threshold` is, such as `latency`, implies none.
    """
    settings = config.items()
    # A loop over views that were made once, for files ask it of every result.
    for best, implied in _presets(name):
        if implied <= settings:
            implied_keys = {key for key, _ in implied}
            return best, {key: value for key, value in settings if key not in implied_keys}
    return name, dict(settings)


@cache
def _presets(name: str) -> Sequence[tuple[str, ItemsView[str, Any]]]:
    """Return the type names of a kind that imply settings, with these, the most first."""
    presets = {
        spelling: {key: value for key, value in preset.items() if value is not None}
        for spelling, preset in get_kind(name).spellings.items()
    }
    implying = [(spelling, preset.items()) for spelling, preset in presets.items() if preset]
    return sorted(implying, key=lambda each: -len(each[1]))


def read_config(
    name: str,
    config: Mapping[str, Any],
    *,
    evaluator: str = "",
    files: Mapping[str, bytes] | None = None,
) -> KindConfig:
    """Return the validated settings of an evaluator of that kind.

    With `files`, prompts in files are read and checked too, and every named file must be there. Raises
    UnknownKindError, or InvalidConfigError naming the evaluator, the setting and a valid value.
    """
    kind = get_kind(name)
    try:
        settings = kind.config.model_validate(dict(config))
        if files is not None and (texts := _file_texts(settings, files, evaluator or kind.label)):
            kind.config.model_validate({**config, **texts})
    except ValidationError as error:
        raise config_error(error, kind, evaluator) from error
    return settings


def file_references(config: KindConfig) -> dict[str, str]:
    """Return the files of the suite that the settings name, by setting."""
    fields = (*config.prompt_fields, *config.file_fields)
    values = {name: getattr(config, name) for name in fields}
    return {name: value for name, value in values.items() if is_reference(value)}


def prompt_versions() -> dict[str, str]:
    """Return the version of each kind's prompts, for the snapshot of a run."""
    return {
        name: str(getattr(module, PROMPT_VERSION))
        for name, module in _modules().items()
        if hasattr(module, PROMPT_VERSION)
    }


def rules_versions() -> dict[str, int]:
    """Return the version of the rules of each kind that has changed them, for the snapshot of a run.

    A kind raises its RULES_VERSION, 1 without one, when it scores the same answer otherwise than before, so that
    judging again does not take over its earlier scores.
    """
    versions = ((name, getattr(module, RULES_VERSION, 1)) for name, module in _modules().items())
    return {name: version for name, version in versions if version != 1}


def _file_texts(settings: KindConfig, files: Mapping[str, bytes], evaluator: str) -> dict[str, str]:
    texts: dict[str, str] = {}
    for key, reference in file_references(settings).items():
        try:
            if key in settings.file_fields:
                named_file(reference, files)
            else:
                texts[key] = reference_text(reference, files)
        except ValueError as error:
            raise InvalidConfigError(evaluator, (Refusal((key,), str(error)),)) from error
    return texts


@cache
def _modules() -> Mapping[str, ModuleType]:
    names = sorted(
        module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")
    )
    return {name: importlib.import_module(f"{__name__}.{name}") for name in names}


def _kind_in(name: str, module: ModuleType) -> Kind:
    facts = getattr(getattr(module, "score", None), "kind_facts", None)
    if facts is None:
        raise TypeError(f"{module.__name__}.score is not marked with @kind")
    manual = (module.__doc__ or "").strip()
    return Kind(name=name, score=module.score, manual=manual, **facts)


@cache
def _spellings() -> Mapping[str, tuple[str, Mapping[str, Any]]]:
    return _kinds_by_spelling(all_kinds().values())


def _kinds_by_spelling(kinds: Iterable[Kind]) -> dict[str, tuple[str, Mapping[str, Any]]]:
    owners: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for kind in (kind for kind in kinds if kind.in_gallery):
        for spelling, preset in {kind.name: {}, **kind.spellings}.items():
            if spelling in owners:
                raise TypeError(f"{kind.name} and {owners[spelling][0]} both claim {spelling!r}")
            owners[spelling] = (kind.name, preset)
    return owners
