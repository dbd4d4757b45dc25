"""Forms of one evaluator in a draft: add one of a kind, and edit its name, marks and settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django import forms
from django.http import QueryDict

from evaluators.kind_forms import KindForm
from evaluators.kinds._base import Kind
from evaluators.scoring.tree import COMPOSITE
from evaluators.scoring.types import DomainError
from runs.drafting import (
    Add,
    Configure,
    Content,
    Negate,
    Operation,
    Rename,
    Require,
    SetWeight,
)
from runs.drafting.combining import weight_in_force
from runs.drafting.content import nodes_with_paths
from runs.drafting.editing import ChangeRefusedError, free_name, name_for
from runs.forms.combining import CombineForm
from runs.forms.setting_choices import offer_choices
from runs.forms.tree_numbers import WrongNumberError, read_share, read_weight, spelt, spelt_share
from runs.models import SuiteDraft
from runs.reports.tree_editor import composites
from runs.services.draft_problems import DraftProblem
from runs.services.drafts import DraftChangedError, change_draft

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
