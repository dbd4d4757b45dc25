"""Targets and language models as the API and the command line show them. Keys and secret headers never leave."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from evaluators.models import LanguageModel
from runs.documents import Document, Dollars
from runs.models.suites import Target


class TargetDoc(Document):
    """A target: the system under test."""

    id: int
    """Its id."""
    name: str
    """Its name, unique on the site."""
    kind: str
    """Its kind: chat, http, command, recorded or pushed."""
    description: str
    """What it is."""
    model: str | None
    """The short name of its language model; null without one."""
    config: dict[str, Any]
    """The settings of its kind; values of secret headers are never shown."""
    updated_at: datetime
    """When it was last changed."""


def target_document(target: Target) -> TargetDoc:
    """Describe a target that was read with its model."""
    return TargetDoc(
        id=target.pk,
        name=target.name,
        kind=target.kind,
        description=target.description,
        model=target.model.slug if target.model else None,
        config=target.config,
        updated_at=target.updated_at,
    )


class ModelSettings(Document):
    """What a model's calls need, and what they cost."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    """Its name."""
    base_url: str
    """The part of the address before /chat/completions."""
    model_id: Annotated[str, Field(min_length=1, max_length=200)]
    """The id that the server uses."""
    key_variable: str = ""
    """The variable of the server that holds the key; "" for none."""
    reply_mode: str = "json_schema"
    """The first way to ask for a structured reply: json_schema, json_object or text."""
    parameters: dict[str, Any] = {}
    """What is sent with every call, such as temperature and max_tokens."""
    concurrency: int = 8
    """The most calls in flight, over all workers: 1 to 500."""
    requests_per_minute: int | None = None
    """The most calls that start in a minute; null for no limit."""
    timeout_s: int = 60
    """The longest a call may take, seconds: 1 to 600."""
    input_price_usd_per_mtok: Dollars | None = None
    """The price of a million input tokens, US dollars; null for that of the price library."""
    output_price_usd_per_mtok: Dollars | None = None
    """The price of a million output tokens, US dollars; null for that of the price library."""
    cached_price_usd_per_mtok: Dollars | None = None
    """The price of a million cached input tokens, US dollars; null for that of the price library."""
    send_trace_headers: bool = False
    """Whether target, case and evaluator of each call are sent to the server."""


class ModelDoc(ModelSettings):
    """A language model behind an OpenAI-compatible endpoint."""

    slug: str
    """Its short name, by which suites and targets name it."""
    has_stored_key: bool
    """Whether a key is stored. It is never given."""
    last_tested_at: datetime | None
    """When it was tested last; null for never, or not since it was changed."""
    updated_at: datetime
    """When it was last changed."""


def model_document(model: LanguageModel) -> ModelDoc:
    """Describe a model without its key."""
    return ModelDoc(
        **model.facts(), last_tested_at=model.last_tested_at, updated_at=model.updated_at
    )
