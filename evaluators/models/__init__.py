"""The stored form of evaluators and language models, and the record of who changed what."""

from __future__ import annotations

from evaluators.models.audit import AuditEntry
from evaluators.models.evaluators import Evaluator
from evaluators.models.language_models import LanguageModel, ModelInUseError, ReplyMode
from evaluators.models.money import ZERO_USD, money_field
from evaluators.models.shared_limits import SlotLease, StartGrant

__all__ = [
    "ZERO_USD",
    "AuditEntry",
    "Evaluator",
    "LanguageModel",
    "ModelInUseError",
    "ReplyMode",
    "SlotLease",
    "StartGrant",
    "money_field",
]
