"""The settings of one evaluator of a suite file, and what is said there that nothing uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from evaluators.kinds import InvalidConfigError, all_kinds, normal_spelling, read_config
from evaluators.kinds._base import Kind
from evaluators.kinds._files import is_reference
from runs.formats._fields import Fields
from runs.formats._meant import did_you_mean, near
from runs.formats._reading import Reading

COMMON = ("name", "type", "weight", "required", "min_score", "negate")
# What other readers of these files let evaluators say about themselves and how they are asked.
SPOKEN = frozenset(
    {"config", "cwd", "description", "id", "max_steps", "metadata", "note", "target", "temperature"}
)


def read_settings(
    fields: Fields, kind: Kind, preset: Mapping[str, Any], path: str
) -> dict[str, Any]:
    """Return the settings that are left in a mapping, for the evaluator at a path of the tree.

    What is wrong with them is noted, and what is unknown and harmless is kept.
    """
    left = {normal_spelling(key): (key, value) for key, value in fields.rest().items()}
    config = {**preset, **{name: value for name, (_, value) in left.items()}}
    name = path.rpartition("/")[2]
    try:
        config = kind.read(config) if kind.read else config
        known = (*kind.config.model_fields, *COMMON)
        kept = keep_unknown(fields, path, known=known, names=config.keys() - set(known))
        config = {key: value for key, value in config.items() if key not in kept}
        config |= _files_named(fields, kind, name, config)
        if kind.uses_sandbox:
            config = fields.reading.place_script(config)
        if isinstance(parts := config.get(kind.programs_in), list):
            config[kind.programs_in] = [_placed(fields.reading, part) for part in parts]
        settings = read_config(kind.name, config, evaluator=name, files=fields.reading.used_files)
    except InvalidConfigError as error:
        for refusal in error.refusals:
            said = f"{refusal.setting}: {refusal.reason}" if refusal.setting else refusal.reason
            said += _meant_instead(refusal.path, (*kind.config.model_fields, *COMMON))
            at = (*fields.path, *_as_spelt(refusal.path, left))
            fields.reading.refuse(at, f"evaluator {name}: {said}", case=fields.case)
        return {}
    except ValueError as error:
        fields.refuse("", f"evaluator {name}: {error}")
        return {}
    return settings.model_dump(mode="json")


def _files_named(
    fields: Fields, kind: Kind, name: str, config: Mapping[str, Any]
) -> dict[str, str]:
    """Return the settings that name a file of the suite, with its path there; "" for one not given."""
    found = {key: str(config[key]) for key in kind.config.prompt_fields if key in config}
    for key, reference in list(found.items()):
        if not is_reference(reference):
            del found[key]
            continue
        try:
            found[key] = f"./{fields.reading.use(reference)}"
        except ValueError as error:
            at = next((spelt for spelt, value in fields.rest().items() if value == reference), "")
            fields.refuse(at, f"evaluator {name}: {error}")
            found[key] = ""
    return found


def _placed(reading: Reading, part: Any) -> Any:
    """Return one part of an evaluator, a script with the files of the suite that it names."""
    is_script = isinstance(part, Mapping) and part.get("type") == "script"
    return reading.place_script(part) if is_script else part


def keep_unknown(
    fields: Fields, path: str, *, known: Iterable[str], names: Iterable[str]
) -> set[str]:
    """Return those of the names that are kept with the metadata, because they change no score.

    A name that nearly is a known one, or that is a setting of another kind, is a mistake and not kept.
    """
    spelt = {normal_spelling(key): key for key in fields.rest()}
    kept = {
        name: spelt[name]
        for name in sorted(names)
        if name in spelt and (name in SPOKEN or not _looks_meant(name, tuple(known)))
    }
    values = fields.rest()
    for key in kept.values():
        fields.warn(key, "is not used by Evalsite and is kept with the metadata")
        of_case = fields.reading.kept.setdefault(fields.case, {})
        of_case.setdefault(path, {})[key] = values[key]
    return set(kept)


def _meant_instead(path: tuple[str | int, ...], known: tuple[str, ...]) -> str:
    """Return which setting was meant by one that is not known, "" for one that is."""
    name = str(path[0]) if len(path) == 1 else ""
    return did_you_mean(name, known) if name and name not in known else ""


def _looks_meant(name: str, known: tuple[str, ...]) -> bool:
    return name in _settings_of_any_kind() or bool(near(name, known))


@cache
def _settings_of_any_kind() -> frozenset[str]:
    return frozenset(name for kind in all_kinds().values() for name in kind.config.model_fields)


def _as_spelt(
    path: tuple[str | int, ...], left: Mapping[str, tuple[str, Any]]
) -> tuple[str | int, ...]:
    """Return the path of a setting as the file spells its first key, so that its line is found."""
    first, rest = path[:1], path[1:]
    return (*(left[str(key)][0] if str(key) in left else key for key in first), *rest)
