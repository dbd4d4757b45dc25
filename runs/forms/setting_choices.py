"""Offer what is set up where a setting of an evaluator names it: language models, targets, files of the suite."""

from __future__ import annotations

from collections.abc import Sequence

from django import forms

from evaluators.models import LanguageModel
from runs.models import Suite, Target
from runs.reports.tree_editor import files_of

ONE_MODEL, MODELS, AGENT = "model", "models", "agent"
# Settings of every kind that may name files of the suite.
OF_FILES = ("prompt", "criteria", "instructions", "command", "script")
MOST_FILES = 20


def offer_choices(form: forms.Form, suite: Suite) -> None:
    """Turn the names of models and agents into choices, and say which files there are."""
    fields = form.fields
    if ONE_MODEL in fields or MODELS in fields:
        slugs = list(LanguageModel.objects.order_by("slug").values_list("slug", flat=True))
        if ONE_MODEL in fields:
            judge = f", {suite.judge.slug}" if suite.judge else ", which is not set"
            _choose(form, ONE_MODEL, slugs, empty=f"The suite's judge{judge}")
        if MODELS in fields:
            _say(fields[MODELS], f"There are: {', '.join(slugs) or 'none yet'}.")
    if AGENT in fields:
        targets = Target.objects.filter(archived_at=None).order_by("name")
        _choose(form, AGENT, list(targets.values_list("name", flat=True)), empty="Choose one")
    named = [name for name in OF_FILES if name in fields]
    if named and (files := files_of(suite)):
        shown = ", ".join(files[:MOST_FILES]) + (" and more" if len(files) > MOST_FILES else "")
        for name in named:
            _say(fields[name], f"Files of the suite: {shown}.")


def _choose(form: forms.Form, name: str, offered: Sequence[str], *, empty: str) -> None:
    field = form.fields[name]
    now = str(form.get_initial_for_field(field, name) or "")
    missing = [(now, f"{now}, not set up")] if now and now not in offered else []
    choices = [("", empty), *((one, one) for one in offered), *missing]
    form.fields[name] = forms.ChoiceField(
        choices=choices,
        label=field.label,
        help_text=field.help_text,
        required=field.required,
        initial=field.initial,
    )


def _say(field: forms.Field, text: str) -> None:
    field.help_text = f"{field.help_text} {text}".strip()
