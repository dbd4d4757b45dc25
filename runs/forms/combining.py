"""A form of how a composite makes one score of many: every rule with its options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms

from evaluators.kind_forms import EMPTY, field_of
from evaluators.kinds import InvalidConfigError, read_config
from evaluators.kinds.composite import OPTIONS, AggregatorOptions
from evaluators.scoring.tree import COMPOSITE
from runs.drafting import Combine
from runs.forms.tree_numbers import PERCENT, WrongNumberError, read_share, spelt_share
from runs.reports.tree_editor import rules_offered

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
        found = field_of(name, setting)
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
