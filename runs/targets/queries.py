"""The list of targets and the page of one target: its settings and its runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count

from runs.models.suites import Target
from runs.results.runs import RunRow, run_row, with_list_columns
from runs.target_kinds import UnknownTargetKindError, get_target_kind, target_kinds

RUNS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as its page shows it; a long value stands below its name."""

    name: str
    value: str
    is_long: bool


@dataclass(frozen=True, slots=True)
class TargetRow:
    """One row of the list of targets."""

    pk: int
    name: str
    description: str
    kind_label: str
    model: str
    runs: int
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class TargetPage:
    """Everything a target's page shows."""

    kind_label: str
    manual: str
    settings: tuple[Setting, ...]
    recorded: int
    examples: tuple[str, ...]
    runs: tuple[RunRow, ...]
    total_runs: int


def target_list() -> tuple[TargetRow, ...]:
    """Return all targets by name with the number of their runs, in one query."""
    targets = Target.objects.filter(archived_at=None).select_related("model")
    return tuple(
        TargetRow(
            target.pk,
            target.name,
            target.description,
            _kind(target)[0],
            target.model.name if target.model else "",
            target.run_total,
            target.updated_at,
        )
        for target in targets.annotate(run_total=Count("runs")).order_by("name", "pk")
    )


def target_page(target: Target) -> TargetPage:
    """Return the page of one target."""
    label, manual = _kind(target)
    recorded = target.recorded_outputs.order_by("pk")
    runs = with_list_columns(target.runs.all())
    return TargetPage(
        kind_label=label,
        manual=manual,
        settings=tuple(_setting(target, name, target.config[name]) for name in _in_order(target)),
        recorded=recorded.count(),
        examples=tuple(recorded.values_list("case_key", flat=True)[:5]),
        runs=tuple(run_row(run) for run in runs[:RUNS_SHOWN]),
        total_runs=target.runs.count(),
    )


def _kind(target: Target) -> tuple[str, str]:
    try:
        kind = get_target_kind(target.kind)
    except UnknownTargetKindError:
        return target.kind, ""
    return kind.label, kind.manual


def _in_order(target: Target) -> list[str]:
    """Return the names of the settings in the order of the form: by section, then as the kind lists them."""
    kind = target_kinds().get(target.kind)
    if kind is None:
        return list(target.config)
    fields, sections = kind.config.model_fields, kind.config.sections
    extras = {name: fields[name].json_schema_extra for name in fields}

    def place(name: str) -> tuple[int, int]:
        extra = extras.get(name)
        section = extra.get("section") if isinstance(extra, dict) else None
        at = sections.index(str(section)) if section in sections else -1
        return at, list(fields).index(name) if name in fields else len(fields)

    return sorted(target.config, key=place)


def _setting(target: Target, name: str, value: Any) -> Setting:
    if name == "headers":
        text = "\n".join(_header(header) for header in value)
        return Setting(_label(target, name), text, is_long=bool(text))
    if isinstance(value, bool):
        return Setting(_label(target, name), "yes" if value else "no", is_long=False)
    if value is None or value == {} or value == []:
        return Setting(_label(target, name), "", is_long=False)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    return Setting(_label(target, name), text, len(text) > 60 or "\n" in text)


def _header(header: Mapping[str, Any]) -> str:
    value = "secret, stored encrypted" if header.get("secret") else header.get("value", "")
    return f"{header.get('name', '')}: {value}"


def _label(target: Target, name: str) -> str:
    """Return the label of a setting in the form of the target's kind."""
    kind = target_kinds().get(target.kind)
    setting = kind.config.model_fields.get(name) if kind else None
    return (setting.title if setting else None) or name.replace("_", " ").capitalize()
