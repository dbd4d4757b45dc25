"""Forms of one evaluator in a draft: add one, edit its settings, choose how a composite combines."""

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
    SetPassMark,
    SetWeight,
    free_name,
    name_for,
    nodes_with_paths,
    weight_in_force,
)
from runs.suites.numbers import WrongNumberError, number_text, read_share, read_weight, share_text
from runs.suites.queries import aggregator_choices, composites, list_file_paths
from runs.suites.tree_forms import PERCENT
from runs.target_kinds import target_kinds

ONE_MODEL, MODELS, AGENT, AGENTS = "model", "models", "agent", "agents"
# Settings, of any kind, that may name files of the suite.
FILE_SETTINGS = ("prompt", "criteria", "instructions", "command", "script", "database")
MAX_FILES = 20


def offer_choices(form: forms.Form, suite: Suite) -> None:
    """Offer the models and agents there are as choices, and list the suite's files in the help."""
    fields = form.fields
    if ONE_MODEL in fields or MODELS in fields:
        slugs = list(LanguageModel.objects.order_by("slug").values_list("slug", flat=True))
        if ONE_MODEL in fields:
            judge = f", {suite.judge.slug}" if suite.judge else ", which is not set"
            _choose(form, ONE_MODEL, slugs, empty=f"The suite's judge{judge}")
        if MODELS in fields:
            _add_help(fields[MODELS], f"Available: {', '.join(slugs) or 'none yet'}.")
    if AGENT in fields or AGENTS in fields:
        able = [name for name, kind in target_kinds().items() if kind.can_judge]
        targets = Target.objects.filter(archived_at=None, kind__in=able).order_by("name")
        names = list(targets.values_list("name", flat=True))
        if AGENT in fields:
            _choose(form, AGENT, names, empty="Choose one")
        if AGENTS in fields:
            _add_help(fields[AGENTS], f"Available: {', '.join(names) or 'none yet'}.")
    named = [name for name in FILE_SETTINGS if name in fields]
    if named and (files := list_file_paths(suite)):
        shown = ", ".join(files[:MAX_FILES]) + (" and more" if len(files) > MAX_FILES else "")
        for name in named:
            _add_help(fields[name], f"Files of the suite: {shown}.")


def _choose(form: forms.Form, name: str, options: Sequence[str], *, empty: str) -> None:
    field = form.fields[name]
    current = str(form.get_initial_for_field(field, name) or "")
    missing = [(current, f"{current}, not available")] if current and current not in options else []
    choices = [("", empty), *((option, option) for option in options), *missing]
    form.fields[name] = forms.ChoiceField(
        choices=choices,
        label=field.label,
        help_text=field.help_text,
        required=field.required,
        initial=field.initial,
    )


def _add_help(field: forms.Field, text: str) -> None:
    field.help_text = f"{field.help_text} {text}".strip()


GATES = "required"
SHARES = ("gate_threshold", "threshold", "share")
REMAINDERS = (
    ("all", "The gates count in the average too"),
    ("remaining", "Only the others count in the average"),
)


class CombineForm(forms.Form):
    """The rule of a composite; only the fields of the chosen rule count."""

    type = forms.ChoiceField(label="Children combine by")

    def __init__(self, node: Mapping[str, Any], scale: int, *args: Any, **options: Any) -> None:
        """Fill the form from the composite; thresholds are on the suite's scale, `share` is in percent."""
        stored = node["config"].get("aggregator") or {}
        usual = AggregatorOptions.model_construct().model_dump(mode="json", warnings=False)
        values = {**usual, **stored}
        for name in SHARES:
            values[name] = share_text(values[name], self._most(name, scale))
        super().__init__(*args, **{"initial": values} | options)
        self.node, self.scale = node, scale
        self.fields["type"].choices = aggregator_choices()  # type: ignore[attr-defined]  # it is a ChoiceField
        for name in {option for options in OPTIONS.values() for option in options}:
            self.fields[name] = self._field(name)

    def clean(self) -> dict[str, Any]:
        """Check the chosen rule's options; every error is shown at its field."""
        values: dict[str, Any] = super().clean() or {}
        rule = values.get("type", "")
        options = {"type": rule}
        for name in OPTIONS.get(rule, ()):
            value = self._value(name, values.get(name))
            if value not in EMPTY:
                options[name] = value
        if rule == "safety_gate" and not options.get(GATES):
            self.add_error(GATES, "Choose at least one gate.")
        if self.errors:
            return values
        try:
            read_config(COMPOSITE, {"aggregator": options})
        except InvalidConfigError as error:
            for refusal in error.refusals:
                name = str(refusal.path[1]) if len(refusal.path) > 1 else ""
                self.add_error(name if name in self.fields else None, refusal.reason)
        self.options = {name: value for name, value in options.items() if name != "type"}
        return values

    def operation(self, node: str) -> Combine:
        """Return the operation that applies the form; empty options get their defaults."""
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
                help_text="They run first; a gate below the threshold makes the score 0 and the verdict fail.",
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
        field = setting_field(name, setting)
        field.required = False
        return field

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
        strip=False, help_text="Unique within its composite; results and files use this name."
    )
    weight = forms.CharField(
        help_text="Only the ratio to its siblings' weights counts. With 0 its score is only recorded.",
        widget=forms.TextInput(attrs={"inputmode": "decimal", "autocomplete": "off"}),
    )
    required = forms.BooleanField(
        required=False, help_text="The result fails when this scores 0, regardless of the total."
    )
    below = forms.CharField(
        required=False,
        label="Minimum",
        widget=forms.TextInput(attrs={"inputmode": "decimal", "autocomplete": "off"}),
    )
    negate = forms.BooleanField(
        required=False, label="Invert score", help_text="1 becomes 0, and 0 becomes 1."
    )
    pass_mark = forms.CharField(
        required=False,
        label="Pass mark",
        widget=forms.TextInput(attrs={"inputmode": "decimal", "autocomplete": "off"}),
    )

    def __init__(self, scale: int, *args: Any, **options: Any) -> None:
        """Explain minimum and pass mark on the suite's scale."""
        super().__init__(*args, **options)
        self.scale = scale
        self.fields[
            "below"
        ].help_text = (
            f"If it is required, the score it must reach, 0 to {scale}. Empty means above 0."
        )
        self.fields["pass_mark"].help_text = (
            f"Pages show its score as good from this score on, 0 to {scale}. "
            "It changes no score and no verdict. Empty for none."
        )

    def clean_name(self) -> str:
        """Return the name; refuse an invalid one."""
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
        """Return the minimum as a share of 0 to 1, None without one."""
        return self._share("below")

    def clean_pass_mark(self) -> float | None:
        """Return the pass mark as a share of 0 to 1, None without one."""
        return self._share("pass_mark")

    def _share(self, name: str) -> float | None:
        text = self.cleaned_data[name]
        try:
            return read_share(text, self.scale) if text else None
        except WrongNumberError as refusal:
            raise forms.ValidationError(str(refusal)) from refusal

    def marks(self, node: str) -> list[Operation]:
        """Return the operations that set the evaluator's weight and marks."""
        values = self.cleaned_data
        below = values["below"]
        required = values["required"] if below is None or not values["required"] else below
        weigh = [SetWeight(node, values["weight"])] if "weight" in self.fields else []
        return [
            *weigh,
            Require(node, required),
            Negate(node, values["negate"]),
            SetPassMark(node, values["pass_mark"]),
        ]


class _SettingsForms:
    """The form of the marks and that of the settings, checked and saved as one."""

    marks: MarksForm
    settings: KindForm | CombineForm | None

    def __init__(self, draft: SuiteDraft, data: QueryDict | None) -> None:
        """Take the draft and the form data."""
        self.draft = draft
        self.is_bound = data is not None
        self.is_stale = False

    @property
    def errors(self) -> Mapping[str, Any]:
        """Return the errors of both forms by field."""
        settings = self.settings.errors if self.settings is not None else {}
        return {**self.marks.errors, **settings}

    @property
    def refusals(self) -> Sequence[str]:
        """Return the errors that belong to no field."""
        errors = [*self.marks.non_field_errors()]
        return errors if self.settings is None else [*errors, *self.settings.non_field_errors()]

    @property
    def refused_fields(self) -> Iterable[Any]:
        """Yield the fields with errors."""
        for form in (self.marks, self.settings):
            yield from (bound for bound in form or () if bound.errors)

    def is_valid(self) -> bool:
        """Tell whether both forms are valid."""
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
            self.marks.add_error("name", f"Another evaluator here is already called “{name}”.")
            return True
        return False


class AddForm(_SettingsForms):
    """A new evaluator of a kind, to be added to a composite of a draft."""

    def __init__(self, draft: SuiteDraft, kind: Kind, into: str, data: QueryDict | None) -> None:
        """Offer every composite of the draft as its parent."""
        super().__init__(draft, data)
        content = draft.content
        parents = composites(content)
        into = into if into in dict(parents) else parents[0][0]
        taken = {child["name"] for child in _node(content, into)["children"]}
        initial = {"stamp": draft.stamp, "weight": "1", "name": free_name(kind.name, taken)}
        self.marks = MarksForm(int(content["policy"]["scale"]), data, initial=initial)
        field = forms.ChoiceField(choices=parents, initial=into, label="Inside")
        self.marks.fields["parent"] = field
        self.kind = kind
        self.settings = None
        if kind.name != COMPOSITE:
            self.settings = KindForm(kind, data, prefix=SETTINGS)
            offer_choices(self.settings, draft.suite)

    def add(self) -> SuiteDraft | None:
        """Add it to the draft; None, with the reasons among the errors, if that is refused."""
        values = self.marks.cleaned_data
        content = self.draft.content
        parent = _node(content, values["parent"])
        if self._refuse_taken(child["name"] for child in parent["children"]):
            return None
        # The draft gives its next id to the evaluator that is added first.
        new_id = f"n{content['last_id'] + 1}"
        config = self.settings.config if isinstance(self.settings, KindForm) else None
        adding = Add(self.kind.name, parent["id"], name=values["name"], config=config)
        return self._change(adding, *self.marks.marks(new_id))


class EvaluatorForm(_SettingsForms):
    """An evaluator of a draft: its name, marks and settings."""

    def __init__(
        self,
        draft: SuiteDraft,
        node: dict[str, Any],
        parent: dict[str, Any] | None,
        kind: Kind | None,
        data: QueryDict | None,
    ) -> None:
        """Fill both forms from the draft."""
        super().__init__(draft, data)
        self.node, self.parent = node, parent
        scale = int(draft.content["policy"]["scale"])
        below, mark = node["required_below"], node.get("pass_mark")
        initial = {
            "stamp": draft.stamp,
            "name": node["name"],
            "weight": "" if parent is None else number_text(weight_in_force(parent, node)),
            "required": node["required"] or below is not None,
            "below": "" if below is None else share_text(below, scale),
            "negate": node["negate"],
            "pass_mark": "" if mark is None else share_text(mark, scale),
        }
        self.marks = MarksForm(scale, data, initial=initial)
        if parent is None:
            for name in ("weight", "required", "below", "negate", "pass_mark"):
                del self.marks.fields[name]
        self.settings = _settings_form(draft, node, kind, data)

    def show_problems(self, problems: Iterable[DraftProblem]) -> list[str]:
        """Show each problem at its setting; return those that belong to none."""
        others = []
        for problem in problems:
            name = problem.field.removeprefix("aggregator.").partition("[")[0]
            if self.settings is not None and not self.is_bound and name in self.settings.fields:
                errors = self.settings.errors.setdefault(name, self.settings.error_class())
                errors.append(problem.message)
            elif not self.is_bound:
                others.append(str(problem))
        return others

    def keep(self) -> SuiteDraft | None:
        """Save the form in the draft; None, with the reasons among the errors, if that is refused."""
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
    nodes = nodes_with_paths(content["evaluators"])
    return next(node for _, node in nodes if node["id"] == key)


def _settings_form(
    draft: SuiteDraft, node: dict[str, Any], kind: Kind | None, data: QueryDict | None
) -> KindForm | CombineForm | None:
    """Return the form of the settings; None for an unknown kind."""
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
