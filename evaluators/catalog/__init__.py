"""The pages of language models and of the evaluator gallery."""

from __future__ import annotations
