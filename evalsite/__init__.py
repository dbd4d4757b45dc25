"""Evalsite: settings, members, health, the worker and the command line."""

from __future__ import annotations

from evalsite.celery import app as celery_app

__all__ = ["celery_app"]
