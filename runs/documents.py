"""What documents are made of: pydantic models that page, API, file, command line and share link render alike.

A document is made once from a feature's queries. The API takes its schema from the fields, and a share link
takes from them how far each value may go.
"""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, WithJsonSchema


class DetailLevel(StrEnum):
    """How much an anonymous reader of a share link sees, from the least to the most.

    A field names the least level at which its value leaves the site: `Annotated[int, FIGURES]`. A
    value whose field names none never leaves.
    """

    FIGURES = "figures"
    CASE_NAMES = "case_names"
    OUTPUTS = "outputs"
    TRACES = "traces"

    def reaches(self, other: DetailLevel) -> bool:
        """Tell whether what leaves at another level leaves at this one too."""
        levels = list(DetailLevel)
        return levels.index(self) >= levels.index(other)


FIGURES, CASE_NAMES, OUTPUTS, TRACES = DetailLevel


class Document(BaseModel):
    """A description of something, read from rows by the names of their attributes.

    The docstrings below its fields are what the schema of the API says.
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


# US dollars as text, so that no digit is lost.
Dollars = Annotated[
    Decimal,
    PlainSerializer(lambda usd: f"{usd:f}", return_type=str),
    WithJsonSchema({"type": "string", "format": "decimal", "examples": ["0.012400000"]}),
]
# Columns hold "" for none; documents say null.
TextOrNone = Annotated[str | None, BeforeValidator(lambda text: text or None)]
VerdictOrNone = Annotated[
    Literal["pass", "borderline", "fail"] | None, BeforeValidator(lambda verdict: verdict or None)
]
