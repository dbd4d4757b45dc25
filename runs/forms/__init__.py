"""What users fill in, checked before anything is called."""

from __future__ import annotations

from runs.forms.resuming import ResumeForm
from runs.forms.retrying import ResultRetryForm, RunRetryForm
from runs.forms.starting import StartRunForm
from runs.forms.targets import TargetForm, target_choices, target_form

__all__ = [
    "ResultRetryForm",
    "ResumeForm",
    "RunRetryForm",
    "StartRunForm",
    "TargetForm",
    "target_choices",
    "target_form",
]
