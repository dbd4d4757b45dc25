"""What users fill in, checked before anything is called."""

from __future__ import annotations

from runs.forms.resuming import ResumeForm
from runs.forms.retrying import ResultRetryForm, RunRetryForm
from runs.forms.starting import StartRunForm
from runs.forms.target_form import TargetForm
from runs.forms.targets import target_choices, target_form
from runs.forms.trying import TrialForm

__all__ = [
    "ResultRetryForm",
    "ResumeForm",
    "RunRetryForm",
    "StartRunForm",
    "TargetForm",
    "TrialForm",
    "target_choices",
    "target_form",
]
