"""Static files: Plotly's script from its installed package, the style sheets joined into one file, and their state."""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.staticfiles.finders import BaseFinder
from django.core.checks import CheckMessage
from django.core.files.storage import FileSystemStorage, Storage
from whitenoise.storage import CompressedManifestStaticFilesStorage

PREFIX, SCRIPT = "plotly", "plotly.min.js"
ADDRESS = f"{PREFIX}/{SCRIPT}"
PACKAGES_WITH_FILES = ("django-htmx", "drf-spectacular-sidecar")
IMPORT = r"""(?P<matched>import\s*(?P<names>[^"';]*)["'](?P<url>\./[^"']+)["'];)"""


class PlotlyFinder(BaseFinder):
    """Find `plotly/plotly.min.js` among the static files."""

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """Return no problems: there are no settings."""
        return []

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        """Return the file of the script; nothing for any other path."""
        file = str(script_folder() / SCRIPT) if path == ADDRESS else None
        if find_all:
            return [file] if file else []
        return file or []

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterator[tuple[str, Storage]]:
        """Yield only the script: the package also contains data sets and notebook widgets."""
        storage = FileSystemStorage(location=script_folder())
        storage.prefix = PREFIX  # type: ignore[attr-defined]  # collectstatic reads it
        yield SCRIPT, storage


def script_folder() -> Path:
    """Return the folder of Plotly's script, without the slow import of plotly."""
    spec = find_spec("plotly")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("plotly is not installed: run scripts/demo or scripts/test once.")
    return Path(spec.origin).parent / "package_data"


class SiteStorage(CompressedManifestStaticFilesStorage):  # type: ignore[misc]  # it has no types
    """Hashed and compressed files; scripts import each other by their hashed names."""

    # Django's own patterns also match imports in packages whose imported files are not shipped.
    patterns = (
        *CompressedManifestStaticFilesStorage.patterns,
        ("js/*.js", ((IMPORT, 'import %(names)s"%(url)s";'),)),
    )
    bundle = "css/app.css"
    manifest_name = settings.STATIC_MANIFEST.name

    def __init__(self, *args: Any, **options: Any) -> None:
        """Keep the manifest out of the folder whose files are served."""
        notes = FileSystemStorage(location=settings.STATIC_MANIFEST.parent)
        super().__init__(*args, manifest_storage=notes, **options)

    def stored_name(self, name: str) -> str:
        """Return the hashed name; of a file that was not collected its own, so that a page only lacks that file."""
        try:
            return str(super().stored_name(name))
        except ValueError:
            return name

    def post_process(
        self, paths: dict[str, Any], dry_run: bool = False, **options: Any
    ) -> Iterator[tuple[str, str, bool]]:
        """Join the style sheets into one file, so that a first visit needs one request."""
        if not dry_run:
            sheets = (Path(self.path(f"css/{name}.css")) for name in settings.STYLE_SHEETS)
            text = "\n".join(sheet.read_text() for sheet in sheets)
            Path(self.path(self.bundle)).write_text(minify(text))
            paths[self.bundle] = (self, self.bundle)
        yield from super().post_process(paths, dry_run, **options)


def minify(style_sheet: str) -> str:
    """Drop comments and indentation, a fifth of the size."""
    return re.sub(r"\n\s*", "\n", re.sub(r"/\*.*?\*/", "", style_sheet, flags=re.DOTALL)).lstrip()


def stamp_file() -> Path:
    """Return the file with the stamp of the files that were collected last."""
    return Path(settings.STATIC_MANIFEST).with_name("stamp")


def static_stamp() -> str:
    """Return a hash that changes with every file the site serves."""
    digest = hashlib.sha256()
    for package in PACKAGES_WITH_FILES:
        digest.update(importlib.metadata.version(package).encode())
    for folder in map(Path, settings.STATICFILES_DIRS):
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
            digest.update(path.read_bytes())
    return digest.hexdigest()


def are_collected() -> bool:
    """Tell whether the files were collected under their hashed names since any of them changed."""
    stamp, manifest = stamp_file(), Path(settings.STATIC_MANIFEST)
    return manifest.exists() and stamp.exists() and stamp.read_text() == static_stamp()
