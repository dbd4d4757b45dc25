"""The base of documents: pydantic models that page, API, file, command line and share link render.

A document is made once from a feature's queries. Its fields define the schema of the API, and the detail
level at which a share link shows each value.
"""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, WithJsonSchema


class DetailLevel(StrEnum):
    """How much an anonymous reader of a share link sees, from the least to the most.

    A field names the lowest level that shows its value: `Annotated[int, FIGURES]`. A value whose field
    names none never leaves the site.
    """

    FIGURES = "figures"
    CASE_NAMES = "case_names"
    OUTPUTS = "outputs"
    TRACES = "traces"

    def reaches(self, other: DetailLevel) -> bool:
        """Tell whether this level shows what the other level shows."""
        levels = list(DetailLevel)
        return levels.index(self) >= levels.index(other)


FIGURES, CASE_NAMES, OUTPUTS, TRACES = DetailLevel


class Document(BaseModel):
    """A description of a thing, read from the attributes of rows.

    The schema of the API takes the docstrings below the fields.
    """

    model_config = ConfigDict(
        frozen=True,
        from_attributes=True,
        use_attribute_docstrings=True,
        validate_by_name=True,
        serialize_by_alias=True,
    )

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return self.model_dump(mode="json")


# US dollars as text, to lose no digit.
Dollars = Annotated[
    Decimal,
    PlainSerializer(lambda usd: f"{usd:f}", return_type=str),
    WithJsonSchema({"type": "string", "format": "decimal", "examples": ["0.012400000"]}),
]
# Columns store "" for none; documents have null.
TextOrNone = Annotated[str | None, BeforeValidator(lambda text: text or None)]
VerdictOrNone = Annotated[
    Literal["pass", "borderline", "fail"] | None, BeforeValidator(lambda verdict: verdict or None)
]
