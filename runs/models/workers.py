"""Who carries runs out: worker processes, and the pairs of hands they lend to runs."""

from __future__ import annotations

from datetime import datetime
from typing import Self

from django.db import models

from runs.models.clock import LEASE
from runs.models.runs import Run


class HandQuerySet(models.QuerySet["Hand"]):
    """Pairs of hands."""

    def alive(self, *, now: datetime) -> Self:
        """Return those that have shown a sign of life lately."""
        return self.filter(heartbeat_at__gte=now - LEASE)


class Hand(models.Model):
    """One `work_on_run` at work: a pair of hands on one run, alive while its heartbeat is young."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="hands")
    token = models.CharField(max_length=64, unique=True)
    worker = models.CharField(max_length=200)
    started_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField()
    in_flight = models.PositiveIntegerField(default=0)

    objects = HandQuerySet.as_manager()

    def __str__(self) -> str:
        """Return worker and run."""
        return f"{self.worker} on run {self.run_id}"


class WorkerProcessQuerySet(models.QuerySet["WorkerProcess"]):
    """Worker processes."""

    def alive(self, *, now: datetime) -> Self:
        """Return those that have shown a sign of life lately."""
        return self.filter(heartbeat_at__gte=now - LEASE)


class WorkerProcess(models.Model):
    """One worker process; alive while its heartbeat is young."""

    name = models.CharField(max_length=200, unique=True)
    host = models.CharField(max_length=200)
    pid = models.PositiveIntegerField()
    version = models.CharField(max_length=40)
    sandbox = models.CharField(max_length=100, blank=True, default="")
    started_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField(db_index=True)
    last_error = models.TextField(blank=True, default="")
    last_error_at = models.DateTimeField(null=True, blank=True)

    objects = WorkerProcessQuerySet.as_manager()

    def __str__(self) -> str:
        """Return the name."""
        return self.name
