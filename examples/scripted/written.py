"""Replies that were written word by word, and small ones for questions that are about no case."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PLACES = ("target", "case", "evaluator")
SHOWN_OBJECT = re.compile(r'\{"[^{}]*\}')

Key = tuple[str, ...]


def read_replies(path: Path) -> dict[Key, str]:
    """Return the reply text of every key; raise ValueError naming the line that is wrong."""
    replies: dict[Key, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            entry = json.loads(line)
            key = tuple(str(entry[place]) for place in PLACES)
            text = (
                entry["text"] if "text" in entry else json.dumps(entry["reply"], ensure_ascii=False)
            )
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path.name} line {number}: no readable reply ({error!r})") from error
        if key in replies:
            raise ValueError(f"{path.name} line {number}: a second reply for {' / '.join(key)}")
        replies[key] = text
    return replies


def smallest(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    """Return a small value that satisfies the schema, as far as judges' schemas go."""
    if "$ref" in schema:
        return smallest(root["$defs"][schema["$ref"].rsplit("/", 1)[-1]], root)
    if "anyOf" in schema:
        return smallest(schema["anyOf"][0], root)
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type", "object"):
        case "string":
            return "ok".ljust(schema.get("minLength", 0), ".")
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return True
        case "array":
            return [smallest(schema.get("items", {}), root)] * schema.get("minItems", 0)
        case _:
            names = schema.get("required", ())
            return {name: smallest(schema["properties"][name], root) for name in names}


def answer_without_case(body: Mapping[str, Any]) -> str:
    """Answer a test question by its schema, else by the object it shows, else with {"ok": true}."""
    form = body.get("response_format") or {}
    schema = (form.get("json_schema") or {}).get("schema")
    if schema:
        return json.dumps(smallest(schema, schema))
    contents = [str(message.get("content")) for message in body["messages"]]
    shown = SHOWN_OBJECT.findall("\n".join(contents))
    return shown[-1] if shown else '{"ok": true}'
