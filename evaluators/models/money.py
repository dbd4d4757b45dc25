"""US dollars as columns hold them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.db import models

ZERO_USD = Decimal(0)


def money_field(**options: Any) -> models.DecimalField[Any, Any]:
    """Return a column for US dollars, exact to a billionth (one token of the cheapest models)."""
    return models.DecimalField(max_digits=18, decimal_places=9, **options)
