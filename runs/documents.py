"""The base of documents: pydantic models that page, API, file, command line and share link render.

A document is made once from a feature's queries. Its fields define the schema of the API, and the detail
level at which a share link shows each value.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from decimal import Decimal
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetJsonSchemaHandler,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


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
        validate_by_name=True,
        serialize_by_alias=True,
    )

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return self.model_dump(mode="json")

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Describe the fields by the docstrings below them.

        `use_attribute_docstrings` reads the source of every document when it is imported, which is a
        fifth of the time that the site takes to start.
        """
        described = handler(schema)
        properties = handler.resolve_ref_schema(described).get("properties", {})
        for name, text in _docstrings(cls).items():
            key = cls.model_fields[name].serialization_alias or name
            properties[key].setdefault("description", text)
        return described


def _docstrings(document: type[Document]) -> dict[str, str]:
    """Return the docstrings below the fields of a document, and of what it extends, by name."""
    found: dict[str, str] = {}
    for part in reversed(document.__mro__[: document.__mro__.index(BaseModel)]):
        try:
            module = ast.parse(textwrap.dedent(inspect.getsource(part)))
        except OSError:  # A page of rows is made at run time, and has no source.
            continue
        statements = (
            statement for child in module.body for statement in ast.iter_child_nodes(child)
        )
        for field, text in pairwise(statements):
            match field, text:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(docstring))):
                    found[name] = inspect.cleandoc(docstring)
                case _:
                    pass
    return found


MAX_DOLLAR_PLACES = 30


def _dollars(usd: Decimal) -> str:
    # An amount that somebody sends may have any exponent, and written out as many zeros.
    return f"{usd:f}" if abs(usd.adjusted()) <= MAX_DOLLAR_PLACES else str(usd)


# US dollars as text, to lose no digit.
Dollars = Annotated[
    Decimal,
    PlainSerializer(_dollars, return_type=str),
    WithJsonSchema({"type": "string", "format": "decimal", "examples": ["0.012400000"]}),
]
# Columns store "" for none; documents have null.
TextOrNone = Annotated[str | None, BeforeValidator(lambda text: text or None)]
VerdictOrNone = Annotated[
    Literal["pass", "borderline", "fail"] | None, BeforeValidator(lambda verdict: verdict or None)
]
