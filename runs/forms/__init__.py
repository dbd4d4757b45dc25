"""What users fill in, checked before anything is called."""

from __future__ import annotations

from runs.forms.retrying import ResumeForm, RetryForm
from runs.forms.starting import StartRunForm
from runs.forms.targets import TargetForm, target_choices, target_form

__all__ = ["ResumeForm", "RetryForm", "StartRunForm", "TargetForm", "target_choices", "target_form"]
