"""Forms of one evaluator in a draft: add one of a kind, edit its settings, say how a composite combines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django import forms
from django.http import QueryDict

from evaluators.catalog.kind_forms import EMPTY, KindForm, setting_field
from evaluators.kinds import read_config
from evaluators.kinds._base import Kind
from evaluators.kinds._refusals import InvalidConfigError
from evaluators.kinds.composite import OPTIONS, AggregatorOptions
from evaluators.models import LanguageModel
from evaluators.scoring.tree import COMPOSITE
from evaluators.scoring.types import DomainError
from runs.models.suites import Suite, SuiteDraft, Target
from runs.suites.drafts import DraftChangedError, DraftProblem, change_draft
from runs.suites.edits import (
    Add,
    ChangeRefusedError,
    Combine,
    Configure,
    Content,
    Negate,
    Operation,
    Rename,
    Require,
    SetWeight,
    free_name,
    name_for,
    nodes_with_paths,
    weight_in_force,
)
from runs.suites.queries import composites, files_of, rules_offered
from runs.suites.tree_forms import (
    PERCENT,
    WrongNumberError,
    read_share,
    read_weight,
    spelt,
    spelt_share,
)

ONE_MODEL, MODELS, AGENT = "model", "models", "agent"
# Settings of every kind that may name files of the suite.
OF_FILES = ("prompt", "criteria", "instructions", "command", "script")
MAX_FILES = 20


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
        shown = ", ".join(files[:MAX_FILES]) + (" and more" if len(files) > MAX_FILES else "")
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


GATES = "required"
SHARES = ("gate_threshold", "threshold", "share")
REMAINDERS = (
    ("all", "Gates count in the average, too"),
    ("remaining", "Only the others count in the average"),
)


class CombineForm(forms.Form):
    """The rule of a composite; fields of other rules than the chosen one are left aside."""

    type = forms.ChoiceField(label="Children combine by")

    def __init__(self, node: Mapping[str, Any], scale: int, *args: Any, **options: Any) -> None:
        """Fill the form with the composite; thresholds are on the suite's scale, `share` in percent."""
        stored = node["config"].get("aggregator") or {}
        usual = AggregatorOptions.model_construct().model_dump(mode="json", warnings=False)
        values = {**usual, **stored}
        for name in SHARES:
            values[name] = spelt_share(values[name], self._most(name, scale))
        super().__init__(*args, **{"initial": values} | options)
        self.node, self.scale = node, scale
        self.fields["type"].choices = rules_offered()  # type: ignore[attr-defined]  # it is a ChoiceField
        for name in {option for options in OPTIONS.values() for option in options}:
            self.fields[name] = self._field(name)

    def clean(self) -> dict[str, Any]:
        """Hold the chosen rule's options to its own rules; every refusal stands at its field."""
        found: dict[str, Any] = super().clean() or {}
        rule = found.get("type", "")
        given = {"type": rule}
        for name in OPTIONS.get(rule, ()):
            value = self._value(name, found.get(name))
            if value not in EMPTY:
                given[name] = value
        if rule == "safety_gate" and not given.get(GATES):
            self.add_error(GATES, "Choose at least one that has to pass first.")
        if self.errors:
            return found
        try:
            read_config(COMPOSITE, {"aggregator": given})
        except InvalidConfigError as error:
            for refusal in error.refusals:
                name = str(refusal.path[1]) if len(refusal.path) > 1 else ""
                self.add_error(name if name in self.fields else None, refusal.reason)
        self.options = {name: value for name, value in given.items() if name != "type"}
        return found

    def operation(self, node: str) -> Combine:
        """Return what lets the composite combine as entered; options left empty are as they usually are."""
        rule = self.cleaned_data["type"]
        fields = AggregatorOptions.model_fields
        usual = {
            name: fields[name].get_default(call_default_factory=True)
            for name in OPTIONS.get(rule, ())
        }
        return Combine(node, rule, {**usual, **self.options})

    def rows(self) -> list[tuple[str, Any]]:
        """Return each option's field with the names of the rules that have it."""
        return [
            (" ".join(rule for rule, names in OPTIONS.items() if name in names), self[name])
            for name in AggregatorOptions.model_fields
            if name in self.fields and name != "type"
        ]

    def _field(self, name: str) -> forms.Field:
        setting = AggregatorOptions.model_fields[name]
        if name == GATES:
            names = [(child["name"], child["name"]) for child in self.node["children"]]
            return forms.MultipleChoiceField(
                choices=names,
                required=False,
                label="Gates",
                help_text="They run first; one below the threshold ends it with 0 and fail.",
                widget=forms.CheckboxSelectMultiple,
            )
        if name == "remainder":
            return forms.ChoiceField(choices=REMAINDERS, required=False, label="Afterwards")
        if name in SHARES:
            most = self._most(name, self.scale)
            unit = "percent" if name == "share" else f"0 to {most}"
            return forms.CharField(
                required=False,
                label=name.replace("_", " ").capitalize(),
                help_text=f"{setting.description} {unit.capitalize()}.",
                widget=forms.TextInput(attrs={"inputmode": "decimal", "autocomplete": "off"}),
            )
        found = setting_field(name, setting)
        found.required = False
        return found

    def _value(self, name: str, value: Any) -> Any:
        if name in SHARES and value not in EMPTY:
            try:
                return read_share(str(value), self._most(name, self.scale))
            except WrongNumberError as refusal:
                self.add_error(name, str(refusal))
        return value

    @staticmethod
    def _most(name: str, scale: int) -> int:
        return PERCENT if name == "share" else scale


SETTINGS = "settings"


class MarksForm(forms.Form):
    """Name, weight and marks of an evaluator; thresholds are on the suite's scale."""

    stamp = forms.CharField(widget=forms.HiddenInput)
    name = forms.CharField(
        strip=False, help_text="Unique among those beside it; results and files name it by this."
    )
    weight = forms.CharField(
        help_text="Among those beside it; only the ratio counts. 0 is recorded and counts in no score.",
        widget=forms.TextInput(attrs={"inputmode": "decimal", "autocomplete": "off"}),
    )
    required = forms.BooleanField(
        required=False, help_text="Whatever the total: the result fails when this scores 0."
    )
    below = forms.CharField(
        required=False,
        label="Minimum",
        widget=forms.TextInput(attrs={"inputmode": "decimal", "autocomplete": "off"}),
    )
    negate = forms.BooleanField(
        required=False, label="Negated", help_text="A score s counts as 1 − s."
    )

    def __init__(self, scale: int, *args: Any, **options: Any) -> None:
        """Say the minimum on the scale of the suite."""
        super().__init__(*args, **options)
        self.scale = scale
        self.fields[
            "below"
        ].help_text = f"Where it is required: what it must reach, 0 to {scale}. Empty: above 0."

    def clean_name(self) -> str:
        """Return the name; refuse what is none."""
        try:
            return name_for(self.cleaned_data["name"])
        except ChangeRefusedError as refusal:
            raise forms.ValidationError(str(refusal)) from refusal

    def clean_weight(self) -> float:
        """Return the weight."""
        try:
            return read_weight(self.cleaned_data["weight"])
        except WrongNumberError as refusal:
            raise forms.ValidationError(str(refusal)) from refusal

    def clean_below(self) -> float | None:
        """Return the minimum as a share of 0 to 1, None for none."""
        text = self.cleaned_data["below"]
        try:
            return read_share(text, self.scale) if text else None
        except WrongNumberError as refusal:
            raise forms.ValidationError(str(refusal)) from refusal

    def marks(self, node: str) -> list[Operation]:
        """Return what gives an evaluator weight and marks as entered."""
        found = self.cleaned_data
        below = found["below"]
        required = found["required"] if below is None or not found["required"] else below
        weigh = [SetWeight(node, found["weight"])] if "weight" in self.fields else []
        return [*weigh, Require(node, required), Negate(node, found["negate"])]


class _SettingsForms:
    """The form of the marks beside that of the settings, checked and kept as one."""

    marks: MarksForm
    settings: KindForm | CombineForm | None

    def __init__(self, draft: SuiteDraft, data: QueryDict | None) -> None:
        """Hold the draft."""
        self.draft = draft
        self.is_bound = data is not None
        self.is_stale = False

    @property
    def errors(self) -> Mapping[str, Any]:
        """Return what is refused in either form, by field."""
        settings = self.settings.errors if self.settings is not None else {}
        return {**self.marks.errors, **settings}

    @property
    def refusals(self) -> Sequence[str]:
        """Return what is refused of the whole."""
        found = [*self.marks.non_field_errors()]
        return found if self.settings is None else [*found, *self.settings.non_field_errors()]

    @property
    def refused_fields(self) -> Iterable[Any]:
        """Yield the fields that are refused."""
        for form in (self.marks, self.settings):
            yield from (bound for bound in form or () if bound.errors)

    def is_valid(self) -> bool:
        """Tell whether both forms are."""
        marks = self.marks.is_valid()
        return (self.settings is None or self.settings.is_valid()) and marks

    def _change(self, *operations: Operation) -> SuiteDraft | None:
        stamp = self.marks.cleaned_data["stamp"]
        try:
            return change_draft(self.draft, stamp, *operations)
        except DraftChangedError:
            self.is_stale = True
        except DomainError as refusal:
            self.marks.add_error(None, str(refusal))
        return None

    def _refuse_taken(self, siblings: Iterable[str]) -> bool:
        name = self.marks.cleaned_data["name"]
        if name in set(siblings):
            self.marks.add_error("name", f"Another evaluator beside it is called “{name}” already.")
            return True
        return False


class AddForm(_SettingsForms):
    """An evaluator of a kind that is to be added to a draft, in a composite of it."""

    def __init__(self, draft: SuiteDraft, kind: Kind, into: str, data: QueryDict | None) -> None:
        """Offer every composite of the draft to hold it."""
        super().__init__(draft, data)
        content = draft.content
        offered = composites(content)
        into = into if into in dict(offered) else offered[0][0]
        taken = {child["name"] for child in _node(content, into)["children"]}
        initial = {"stamp": draft.stamp, "weight": "1", "name": free_name(kind.name, taken)}
        self.marks = MarksForm(int(content["policy"]["scale"]), data, initial=initial)
        field = forms.ChoiceField(choices=offered, initial=into, label="Inside")
        self.marks.fields["parent"] = field
        self.kind = kind
        self.settings = None
        if kind.name != COMPOSITE:
            self.settings = KindForm(kind, data, prefix=SETTINGS)
            offer_choices(self.settings, draft.suite)

    def add(self) -> SuiteDraft | None:
        """Add it to the draft; None, with the reasons among the errors, when refused."""
        found = self.marks.cleaned_data
        content = self.draft.content
        parent = _node(content, found["parent"])
        if self._refuse_taken(child["name"] for child in parent["children"]):
            return None
        # The draft gives the next id to what is added first.
        made = f"n{content['last_id'] + 1}"
        config = self.settings.config if isinstance(self.settings, KindForm) else None
        adding = Add(self.kind.name, parent["id"], name=found["name"], config=config)
        return self._change(adding, *self.marks.marks(made))


class EvaluatorForm(_SettingsForms):
    """An evaluator of a draft: its name, its marks, and all settings of its kind."""

    def __init__(
        self,
        draft: SuiteDraft,
        node: dict[str, Any],
        parent: dict[str, Any] | None,
        kind: Kind | None,
        data: QueryDict | None,
    ) -> None:
        """Fill both forms with the draft."""
        super().__init__(draft, data)
        self.node, self.parent = node, parent
        scale = int(draft.content["policy"]["scale"])
        below = node["required_below"]
        initial = {
            "stamp": draft.stamp,
            "name": node["name"],
            "weight": "" if parent is None else spelt(weight_in_force(parent, node)),
            "required": node["required"] or below is not None,
            "below": "" if below is None else spelt_share(below, scale),
            "negate": node["negate"],
        }
        self.marks = MarksForm(scale, data, initial=initial)
        if parent is None:
            for name in ("weight", "required", "below", "negate"):
                del self.marks.fields[name]
        self.settings = _settings_form(draft, node, kind, data)

    def point_out(self, problems: Iterable[DraftProblem]) -> list[str]:
        """Put to each setting what keeps the draft from being saved; return what belongs to none."""
        left = []
        for problem in problems:
            name = problem.field.removeprefix("aggregator.").partition("[")[0]
            if self.settings is not None and not self.is_bound and name in self.settings.fields:
                listed = self.settings.errors.setdefault(name, self.settings.error_class())
                listed.append(problem.message)
            elif not self.is_bound:
                left.append(str(problem))
        return left

    def keep(self) -> SuiteDraft | None:
        """Keep what was entered in the draft; None, with the reasons among the errors, when refused."""
        key = self.node["id"]
        siblings = self.parent["children"] if self.parent else ()
        if self._refuse_taken(child["name"] for child in siblings if child["id"] != key):
            return None
        operations: list[Operation] = [Rename(key, self.marks.cleaned_data["name"])]
        if self.parent is not None:
            operations += self.marks.marks(key)
        if isinstance(self.settings, CombineForm):
            operations.append(self.settings.operation(key))
        elif self.settings is not None:
            operations.append(Configure(key, self.settings.config))
        return self._change(*operations)


def _node(content: Content, key: str) -> dict[str, Any]:
    found = nodes_with_paths(content["evaluators"])
    return next(node for _, node in found if node["id"] == key)


def _settings_form(
    draft: SuiteDraft, node: dict[str, Any], kind: Kind | None, data: QueryDict | None
) -> KindForm | CombineForm | None:
    """Return the form of the settings; None for a kind that is not known here."""
    if kind is None:
        return None
    form: KindForm | CombineForm
    if kind.name == COMPOSITE:
        scale = int(draft.content["policy"]["scale"])
        form = CombineForm(node, scale, data, prefix=SETTINGS)
    else:
        form = KindForm(kind, data, prefix=SETTINGS, initial=node["config"])
    offer_choices(form, draft.suite)
    return form
