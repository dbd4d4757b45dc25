"""The file formats: one module each. What they read and write are plain values."""

from __future__ import annotations

from runs.formats._content import CaseContent, ModelPlace, RecordedLine, SuiteContent
from runs.formats._problems import Problem, UnreadableFileError

__all__ = [
    "CaseContent",
    "ModelPlace",
    "Problem",
    "RecordedLine",
    "SuiteContent",
    "UnreadableFileError",
]
