"""Serve plotly's script from its installed package, and nothing else of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.core.checks import CheckMessage
from django.core.files.storage import FileSystemStorage, Storage

PREFIX, SCRIPT = "plotly", "plotly.min.js"
ADDRESS = f"{PREFIX}/{SCRIPT}"


class PlotlyFinder(BaseFinder):
    """Find `plotly/plotly.min.js` among the static files."""

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """Return nothing: there is no setting to be wrong."""
        return []

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        """Return where the script lies on the disk; nothing for any other path."""
        found = str(script_folder() / SCRIPT) if path == ADDRESS else None
        if find_all:
            return [found] if found else []
        return found or []

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterator[tuple[str, Storage]]:
        """Give the script alone: the package also holds data sets and notebooks' widgets."""
        storage = FileSystemStorage(location=script_folder())
        storage.prefix = PREFIX  # type: ignore[attr-defined]  # collectstatic reads it off a storage
        yield SCRIPT, storage


def script_folder() -> Path:
    """Return the folder of plotly's script, without importing plotly, which takes a while."""
    spec = find_spec("plotly")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("plotly is not installed: run scripts/demo or scripts/test once.")
    return Path(spec.origin).parent / "package_data"
