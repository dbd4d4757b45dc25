"""Plain values as YAML that people like to read and that reads back the same."""

from __future__ import annotations

import io
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.representer import RoundTripRepresenter
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString

# Wide enough that no line is ever folded.
WIDTH = 1_000_000
FLOAT = "tag:yaml.org,2002:float"


class _Representer(RoundTripRepresenter):
    """Writes decimals in all their digits, which a float may not have."""


_Representer.add_representer(
    Decimal,
    lambda representer, value: representer.represent_scalar(FLOAT, f"{value:f}"),
)


def yaml_of(value: Any) -> str:
    """Return the values as YAML, texts of several lines as blocks, decimals in all their digits."""
    stream = io.StringIO()
    yaml = YAML(typ="rt", pure=True)
    yaml.width = WIDTH
    yaml.allow_unicode = True
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.Representer = _Representer
    yaml.dump(_readable(value), stream)
    return stream.getvalue()


def _readable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_text(str(key)): _readable(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_readable(part) for part in value]
    if not isinstance(value, str):
        return value
    return LiteralScalarString(value) if _fits_block(value) else _text(value)


def _text(value: str) -> str:
    """Return a text, in quotes with escapes where anything else might read back as another."""
    return value if value.isprintable() else DoubleQuotedScalarString(value)


def _fits_block(text: str) -> bool:
    """Tell whether a block reads back as this very text."""
    lines = text.split("\n")
    plain = all(line.isprintable() and line == line.rstrip() for line in lines)
    starts_plainly = bool(lines[0]) and not lines[0].startswith(" ")
    return plain and starts_plainly and len(lines) > 1 and not text.endswith("\n\n")
