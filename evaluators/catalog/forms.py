"""The form of a language model. Keys are write-only."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.utils.text import slugify

from evaluators.catalog.kind_forms import JsonField
from evaluators.model_calls.addresses import address_problem
from evaluators.model_calls.calls import RESERVED_PARAMETERS
from evaluators.model_calls.models import (
    Prices,
    encrypt,
    is_allowed_variable,
    is_sendable,
    library_prices,
    look_up_prices,
)
from evaluators.models import AuditEntry, LanguageModel
from evaluators.scoring.types import DomainError

TEMPERATURE = "temperature"
CONNECTION = ("base_url", "model_id", "key_variable", "encrypted_key", "parameters", "timeout_s")
PRICE_LABELS = {
    "input_price_usd_per_mtok": "Input",
    "output_price_usd_per_mtok": "Output",
    "cached_price_usd_per_mtok": "Cached input",
}


class ModelSlugTakenError(DomainError):
    """Another language model already has this short name."""

    code = "slug_taken"


class ModelChangedError(DomainError):
    """Somebody else changed or deleted the language model since the form was opened."""

    code = "model_changed"


class LanguageModelForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic at run time
    """A model behind an OpenAI-compatible endpoint: address, key, parameters, limits and prices."""

    api_key = forms.CharField(
        label="API key",
        required=False,
        max_length=500,
        widget=forms.PasswordInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    remove_key = forms.BooleanField(label="Remove the stored key", required=False)
    key_variable = forms.ChoiceField(
        label="Key from a variable",
        required=False,
        help_text="Variables of the server named EVALSITE_MODEL_KEY_… and OPENAI_API_KEY, if set.",
    )
    temperature = forms.FloatField(
        required=False,
        min_value=0,
        max_value=2,
        help_text="0 to 2. Empty: the server's own default.",
        widget=forms.NumberInput(attrs={"step": "0.1"}),
    )
    parameters = JsonField(
        rows=3,
        label="Other parameters",
        required=False,
        help_text='A JSON object sent with every call, such as {"max_tokens": 800, "seed": 7}.',
    )

    seen = forms.CharField(required=False, widget=forms.HiddenInput)

    class Meta:
        """Use the columns of the model."""

        model = LanguageModel
        fields = (
            "name", "slug", "base_url", "model_id", "key_variable", "reply_mode", "parameters",
            "concurrency", "requests_per_minute", "timeout_s", *PRICE_LABELS, "send_trace_headers",
        )  # fmt: skip
        labels = {
            "base_url": "Base URL",
            "model_id": "Model id",
            "slug": "Short name",
            "reply_mode": "Reply mode",
            "concurrency": "Calls in flight",
            "requests_per_minute": "Requests per minute",
            "timeout_s": "Timeout, seconds",
            "send_trace_headers": "Send trace headers",
            **PRICE_LABELS,
        }
        help_texts = {
            "slug": "Suite files name the model by it; made from the name if left empty. It cannot be changed later.",
            "base_url": "The part before /chat/completions.",
            "model_id": "The id that the server uses.",
            "reply_mode": "The first mode to try. If the server refuses it, the next weaker one is used.",
            "concurrency": "The most calls at the same time, over all workers.",
            "requests_per_minute": "Spread over the minute. Empty: no limit.",
            "timeout_s": "The longest a call may take, 1 to 600.",
            "send_trace_headers": "Send target, case and evaluator of each call to the server. Only for "
            "your own servers.",
        }

    field_order = (
        "name", "slug", "base_url", "model_id", "api_key", "remove_key", "key_variable", "reply_mode",
        "temperature", "parameters",
    )  # fmt: skip

    def __init__(self, *args: Any, **options: Any) -> None:
        """Fill the form from the model, without its key."""
        super().__init__(*args, **options)
        self.before = self.instance.facts() if self.instance.pk else None
        self.has_stored_key = bool(self.instance.encrypted_key)
        self.dropped_key = False
        self._old = {name: getattr(self.instance, name) for name in CONNECTION}
        if self.instance.pk:
            self.initial["seen"] = self.instance.updated_at.isoformat()
        own = dict(self.instance.parameters or {})
        self.initial["temperature"] = own.pop(TEMPERATURE, None)
        self.initial["parameters"] = json.dumps(own, ensure_ascii=False) if own else ""
        self.fields["key_variable"].choices = self._variables()  # type: ignore[attr-defined]  # it is a ChoiceField
        self.fields["slug"].disabled = self.instance.pk is not None
        self.fields["slug"].required = False
        if not self.has_stored_key:
            del self.fields["remove_key"]
        self._explain_key()
        self._explain_prices()
        for name, least, most in (("concurrency", 1, 500), ("timeout_s", 1, 600)):
            self.fields[name].min_value, self.fields[name].max_value = least, most  # type: ignore[attr-defined]  # both hold whole numbers
            self.fields[name].widget.attrs.update(min=least, max=most)

    def clean_slug(self) -> str:
        """Make the short name from the name if it is empty; refuse one that is already an address of the site."""
        slug = str(self.cleaned_data["slug"] or slugify(self.cleaned_data.get("name", "")))
        if not slug and "name" in self.cleaned_data:
            raise forms.ValidationError(
                "Enter one: the name has no letters that an address can contain."
            )
        if slug == "new":
            raise forms.ValidationError(
                "“new” is the address of this page. Choose another short name."
            )
        return slug

    def clean_base_url(self) -> str:
        """Return the address without a trailing slash, if it may be called."""
        url = str(self.cleaned_data["base_url"]).strip().rstrip("/")
        problem = address_problem(url)
        if problem:
            raise forms.ValidationError(problem)
        return url.removesuffix("/chat/completions")

    def clean_api_key(self) -> str:
        """Return the key if it can be sent in a header."""
        key = str(self.cleaned_data["api_key"]).strip()
        if key and not is_sendable(key):
            raise forms.ValidationError("A key has only visible ASCII characters, without spaces.")
        return key

    def clean_key_variable(self) -> str:
        """Return the variable if keys may come from it."""
        name = str(self.cleaned_data["key_variable"])
        if name and not is_allowed_variable(name):
            raise forms.ValidationError(f"{name} may not be used as a model's key.")
        return name

    def clean_parameters(self) -> dict[str, Any]:
        """Return the object; refuse other values and parameters that Evalsite sets itself."""
        parameters = self.cleaned_data["parameters"] or {}
        if not isinstance(parameters, dict):
            raise forms.ValidationError('Write one JSON object, such as {"max_tokens": 800}.')
        taken = [name for name in parameters if name in (*RESERVED_PARAMETERS, TEMPERATURE)]
        if TEMPERATURE in taken:
            raise forms.ValidationError("temperature has its own field.")
        if taken:
            raise forms.ValidationError(f"{taken[0]} is set by Evalsite; leave it out.")
        return parameters

    def clean(self) -> dict[str, Any]:
        """Add the temperature to the parameters and check fields that depend on each other."""
        data: dict[str, Any] = super().clean() or {}
        if data.get("temperature") is not None and "parameters" in data:
            data["parameters"] = {**data["parameters"], TEMPERATURE: data["temperature"]}
        if data.get("api_key") and data.get("key_variable"):
            self.add_error("key_variable", "Enter a key or choose a variable, not both.")
        for name, least, most in (("concurrency", 1, 500), ("timeout_s", 1, 600)):
            if name in data and not least <= data[name] <= most:
                self.add_error(name, f"Write a number from {least} to {most}.")
        if data.get("requests_per_minute") == 0:
            self.add_error("requests_per_minute", "Write at least 1, or leave it empty.")
        self._check_prices(data)
        return data

    @transaction.atomic
    def save_as(self, actor: User | None) -> LanguageModel:
        """Save the model and record the change; a new base URL removes the stored key.

        Without an actor the command line made the change. Raises ModelSlugTakenError if another model has
        taken the short name since the form was checked, and ModelChangedError.
        """
        if self.before is not None:
            self._refuse_if_changed()
        model: LanguageModel = self.save(commit=False)
        self._set_key(model)
        if self.before is None:
            self._add(model)
            model.record("create", actor=actor, after=model.facts())
            return model
        if any(getattr(model, name) != old for name, old in self._old.items()):
            model.last_test, model.last_tested_at = None, None
        columns = (field.name for field in model._meta.concrete_fields if not field.primary_key)
        model.save(update_fields=[name for name in columns if name not in model.WRITTEN_BY_WORKERS])
        has_new_key = bool(self.cleaned_data["api_key"])
        after = {**model.facts(), "key_changed": has_new_key or self.dropped_key}
        model.record("change", actor=actor, before=self.before, after=after)
        return model

    def _refuse_if_changed(self) -> None:
        """Raise ModelChangedError once: the form that is then shown again may be saved."""
        rows = LanguageModel.objects.select_for_update(no_key=True).filter(pk=self.instance.pk)
        stored = rows.values_list("updated_at", flat=True).first()
        who = AuditEntry.objects.last_changer("language_model", self.instance.pk)
        if stored is None:
            raise ModelChangedError(f"This model was deleted by {who} after you opened the form.")
        now = stored.isoformat()
        if now == (self.cleaned_data["seen"] or self.instance.updated_at.isoformat()):
            return
        data = self.data.copy()  # type: ignore[attr-defined]  # what was sent
        data["seen"] = now
        self.data = data
        raise ModelChangedError(
            f"This model was changed by {who} after you opened the form, and your entries would replace that "
            "change. Look at the model in another window, or save again to replace it."
        )

    def _add(self, model: LanguageModel) -> None:
        try:
            with transaction.atomic():
                model.save()
        except IntegrityError as error:
            raise ModelSlugTakenError(
                f"There is already a language model “{model.slug}”. Choose another short name."
            ) from error

    def _set_key(self, model: LanguageModel) -> None:
        if self.cleaned_data["api_key"]:
            model.encrypted_key = encrypt(self.cleaned_data["api_key"])
            return
        is_unwanted = bool(self.cleaned_data.get("remove_key") or self.cleaned_data["key_variable"])
        self.dropped_key = self.has_stored_key and model.base_url != self._old["base_url"]
        if is_unwanted or self.dropped_key:
            model.encrypted_key = ""

    def _check_prices(self, data: dict[str, Any]) -> None:
        own: dict[str, Decimal | None] = {name: data.get(name) for name in PRICE_LABELS}
        for name, usd in own.items():
            if usd is not None and usd < 0:
                self.add_error(name, "A price is 0 or more.")
        is_complete = "base_url" in data and "model_id" in data
        if is_complete and any(usd is not None for usd in own.values()):
            prices = look_up_prices(data["base_url"], data["model_id"], **_as_own(own))
            missing = "output" if own["input_price_usd_per_mtok"] is not None else "input"
            if prices is None:
                reason = f"The price library does not know this model: set the {missing} price too."
                self.add_error(f"{missing}_price_usd_per_mtok", reason)

    def _variables(self) -> list[tuple[str, str]]:
        names = set(settings.MODEL_KEYS)
        missing = {self.instance.key_variable} - names - {""}
        return [
            ("", "None"),
            *((name, name) for name in sorted(names)),
            *((name, f"{name} (not set)") for name in sorted(missing)),
        ]

    def _explain_key(self) -> None:
        words = "Stored encrypted and never shown again. Leave empty for a server without keys."
        if self.has_stored_key:
            words = (
                "A key is stored. Leave empty to keep it, type to replace it. "
                "Changing the base URL removes it."
            )
        self.fields["api_key"].help_text = words

    def _explain_prices(self) -> None:
        model = self.instance
        known = library_prices(model.base_url, model.model_id) if model.model_id else None
        for name in PRICE_LABELS:
            field = self.fields[name]
            own = getattr(model, name)
            self.initial[name] = None if own is None else f"{own.normalize():f}"
            field.help_text = "US dollars per million tokens."
            usd = _library_usd(known, name)
            if usd is not None and known is not None:
                field.widget.attrs["placeholder"] = f"{usd.normalize():f}"
                field.help_text += f" Empty: ${usd.normalize():f}, from {known.version}."


def _as_own(own: dict[str, Decimal | None]) -> dict[str, Decimal | None]:
    return {f"own_{name.partition('_')[0]}": usd for name, usd in own.items()}


def _library_usd(known: Prices | None, name: str) -> Decimal | None:
    rate = getattr(known, name.partition("_")[0], None)
    return rate.base if rate else None
