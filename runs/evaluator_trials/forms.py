"""The form of a try: the output of a result, or a pasted output for a case."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from django import forms
from django.http import QueryDict

from evaluators.reading.json import read_json
from evaluators.templatetags.figures import thousands
from runs.evaluator_trials.queries import RunOption
from runs.evaluator_trials.services import TriedOutput
from runs.models.results import Result
from runs.models.suites import Case, Suite
from runs.target_kinds._outputs import output_from_json

MAX_OUTPUT_LENGTH = 1_000_000
MAX_KEY_LENGTH = 200
MAX_REPETITIONS = 10_000
STORED, PASTED = "stored", "pasted"
SOURCES = ((STORED, "The output of a run"), (PASTED, "An output you paste"))


class OutputField(forms.CharField):
    """A long text, kept unchanged; the message for a text that is too long gives both lengths."""

    widget = forms.Textarea

    def __init__(self, rows: int, **options: Any) -> None:
        """Show this number of lines."""
        super().__init__(strip=False, required=False, **options)
        self.widget.attrs |= {"rows": rows, "spellcheck": "false"}

    def validate(self, value: str) -> None:
        """Refuse a text that is too long for a try."""
        super().validate(value)
        if len(value) > MAX_OUTPUT_LENGTH:
            raise forms.ValidationError(
                f"This is {thousands(len(value))} characters long; "
                f"{thousands(MAX_OUTPUT_LENGTH)} is the limit."
            )


class EvaluatorTrialForm(forms.Form):
    """A result by run, case and repetition, or a case with an output; `chosen` is the output.

    `once` identifies this form: sent twice, it queues one try.
    """

    source = forms.ChoiceField(
        choices=SOURCES, label="Try it on", widget=forms.RadioSelect, initial=STORED
    )
    run = forms.ChoiceField(required=False)
    case = forms.CharField(
        max_length=MAX_KEY_LENGTH,
        help_text="Its id.",
        widget=forms.TextInput(
            attrs={"list": "try-cases", "autocomplete": "off", "spellcheck": "false"}
        ),
    )
    repetition = forms.IntegerField(
        required=False, min_value=1, max_value=MAX_REPETITIONS, initial=1
    )
    output = OutputField(
        6, label="Output", help_text="The answer of the target. Files are not possible here."
    )
    trace = OutputField(
        4,
        label="Trace",
        help_text='Steps as JSON: [{"type": "tool", "name": "look_up", "input": {"id": 7}, "output": "found"}]',
    )
    baseline = OutputField(
        3,
        label="Output of the baseline",
        help_text="Leave it empty to compare with the output of the baseline run.",
    )
    once = forms.UUIDField(widget=forms.HiddenInput, initial=uuid4)

    def __init__(
        self,
        suite: Suite,
        runs: tuple[RunOption, ...],
        data: QueryDict | None = None,
        **options: Any,
    ) -> None:
        """Offer the runs; without runs, begin with a pasted output."""
        super().__init__(data, prefix="try", **options)
        self.suite = suite
        self.chosen: TriedOutput | None = None
        self.fields["run"].choices = [(str(run.number), run.label) for run in runs]  # type: ignore[attr-defined]  # a ChoiceField
        if not runs:
            self.initial["source"] = PASTED

    def clean(self) -> dict[str, Any]:
        """Find the output; refuse a result that does not exist or has no output, and an empty text."""
        values: dict[str, Any] = super().clean() or self.cleaned_data
        if not self.errors:
            find = self._stored if values["source"] == STORED else self._pasted
            find(values)
        self._forget_too_long()
        return values

    def _stored(self, values: dict[str, Any]) -> None:
        number, key = values.get("run"), values["case"].strip()
        if not number:
            self.add_error("run", "Choose a run.")
            return
        repetition = values.get("repetition") or 1
        results = Result.objects.select_related("case", "run", "output")
        result = results.filter(
            **{"run__suite": self.suite, "run__number": number, "run__is_deleted": False},
            **{"case__key": key, "repetition": repetition},
        ).first()
        if result is None:
            self.add_error("case", f"Run #{number} has no repetition {repetition} of “{key}”.")
        elif not hasattr(result, "output"):
            self.add_error("case", f"“{key}” has no output in run #{number}.")
        elif message := result.output.removal_message:
            self.add_error("case", message)
        else:
            self.chosen = TriedOutput(result.case, result, baseline=values["baseline"])

    def _pasted(self, values: dict[str, Any]) -> None:
        key = values["case"].strip()
        case = Case.objects.filter(suite=self.suite, key=key, is_current=True).first()
        if case is None:
            self.add_error("case", f"The suite has no case “{key}”.")
        if not values["output"]:
            self.add_error("output", "Paste the output to score.")
        steps = self._steps(values["trace"]) if values["trace"].strip() else None
        if case is not None and not self.errors:
            pasted = {"output": values["output"]} | ({} if steps is None else {"trace": steps})
            self.chosen = TriedOutput(case, pasted=pasted, baseline=values["baseline"])

    def _steps(self, text: str) -> Any:
        try:
            steps = read_json(text, keeps_last=True, unstorable="replace")
            output_from_json({"output": "", "trace": steps})
        except (ValueError, TypeError) as error:
            message = str(error)[:200]
            self.add_error("trace", f"This is not a trace: {message}.")
        else:
            return steps
        return None

    def _forget_too_long(self) -> None:
        """Drop texts that are too long: a browser could hardly open a page with them."""
        names = map(self.add_prefix, ("output", "trace", "baseline"))
        long = {name: "" for name in names if len(self.data.get(name, "")) > MAX_OUTPUT_LENGTH}
        if long:
            self.data = {**dict(self.data.items()), **long}
