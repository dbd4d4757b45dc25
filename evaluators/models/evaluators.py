"""The stored form of evaluators: one row for each node of a tree."""

from __future__ import annotations

from django.core.validators import MinValueValidator
from django.db import models

from evaluators.trees import EvaluatorQuerySet


class Evaluator(models.Model):
    """One node of an evaluator tree. A suite owns a root composite; trees are copied, never shared."""

    parent = models.ForeignKey(
        "self", on_delete=models.CASCADE, related_name="children", null=True, blank=True
    )
    position = models.PositiveIntegerField(default=0)
    name = models.CharField(max_length=100)
    kind = models.CharField(max_length=50)
    weight = models.FloatField(default=1.0, validators=[MinValueValidator(0.0)])
    required = models.BooleanField(default=False)
    required_below = models.FloatField(null=True, blank=True)
    negate = models.BooleanField(default=False)
    config = models.JSONField(default=dict, blank=True)

    objects = EvaluatorQuerySet.as_manager()

    class Meta:
        """Order siblings as the suite's author placed them."""

        ordering = ("position", "id")
        constraints = (
            models.UniqueConstraint(
                fields=("parent", "name"), name="evaluator_name_unique_among_siblings"
            ),
            models.CheckConstraint(
                condition=models.Q(weight__gte=0), name="evaluator_weight_not_negative"
            ),
        )

    def __str__(self) -> str:
        """Return the name."""
        return self.name
