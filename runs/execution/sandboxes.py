"""The sandbox of this process, under the terms of its settings."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from django.conf import settings

from evaluators.kinds._base import Sandbox
from evaluators.sandbox.limits import Limits, Terms
from evaluators.sandbox.local import LocalSandbox


def sandbox_in_force() -> Sandbox | None:
    """Return where programs of users run, None where the administrator has not switched them on."""
    return _sandbox(_terms()) if settings.SCRIPTS else None


@cache
def _sandbox(terms: Terms) -> LocalSandbox:
    """Return the one sandbox of the process: all runs share what it runs at once."""
    return LocalSandbox(terms)


def _terms() -> Terms:
    limits = Limits(
        seconds=settings.SCRIPT_SECONDS,
        memory_mb=settings.SCRIPT_MEMORY_MB,
        processes=settings.SCRIPT_PROCESSES,
        output_kb=settings.SCRIPT_OUTPUT_KB,
        disk_mb=settings.SCRIPT_DISK_MB,
        files=settings.SCRIPT_FILES,
    )
    return Terms(
        limits=limits,
        allows_network=settings.SCRIPTS_NETWORK,
        concurrency=settings.SCRIPT_CONCURRENCY,
        python=settings.SCRIPT_PYTHON,
        folders=tuple(settings.SCRIPT_FOLDERS),
        hidden=_hidden(),
        agents_dir=settings.AGENTS_DIR,
    )


def _hidden() -> tuple[str, ...]:
    """Return the folders of the site: its data, and its code and .env where it runs from a checkout.

    Installed as a package it lies among others, which programs may need.
    """
    base = Path(settings.BASE_DIR).resolve()
    own = [base] if (base / "manage.py").exists() else []
    return tuple(map(str, (*own, settings.DATA_DIR.resolve())))
