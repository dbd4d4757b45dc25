"""compose.yaml and the Dockerfile as they would be carried out, without a container engine."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.services.processes import ROOT, Process

FILE = ROOT / "compose.yaml"
VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\}")
IN_ANOTHER_FOLDER = "import os, sys; os.chdir(sys.argv[1]); os.execvp(sys.argv[2], sys.argv[2:])"


def services() -> dict[str, dict[str, Any]]:
    """Return the services of compose.yaml, merged and with the defaults of its variables."""
    found: dict[str, dict[str, Any]] = read()["services"]
    return found


def read() -> dict[str, Any]:
    """Return compose.yaml with the defaults of its variables."""
    found: dict[str, Any] = _filled(yaml.safe_load(FILE.read_text(encoding="utf-8")))
    return found


def _filled(part: Any) -> Any:
    """Fill in variables where they stand, after reading: an empty one stays a text."""
    match part:
        case dict():
            return {name: _filled(value) for name, value in part.items()}
        case list():
            return [_filled(value) for value in part]
        case str():
            return VARIABLE.sub(lambda match: match["default"] or "", part)
        case _:
            return part


def image(folder: Path) -> Path:
    """Copy what .dockerignore lets into the image, and prepare it as the Dockerfile does."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for name in (line[1:] for line in lines if line.startswith("!")):
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, folder / name, ignore=ignored)
        else:
            shutil.copy(source, folder / name)
    return folder


@dataclass(frozen=True, slots=True)
class Container:
    """A service as a process: its command and environment, with addresses and paths of the test."""

    service: Mapping[str, Any]
    folder: Path
    places: Mapping[str, str] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        """Return its environment and what the image adds."""
        own = {
            name: self._placed(str(value)) for name, value in self.service["environment"].items()
        }
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {"PATH": path, "PYTHONPATH": str(self.folder), **own}

    def process(self, log: Path, *more: str) -> Process:
        """Return the process of its command, with more options at the end."""
        return self._process([*map(str, self.service["command"]), *more], log)

    def check(self, log: Path) -> Process:
        """Return the process of its health check."""
        kind, *command = self.service["healthcheck"]["test"]
        return self._process(["sh", "-c", *command] if kind == "CMD-SHELL" else command, log)

    def _process(self, command: list[str], log: Path) -> Process:
        placed = [self._placed(part) for part in command]
        return Process(
            [sys.executable, "-c", IN_ANOTHER_FOLDER, str(self.folder), *placed],
            log=log,
            env=self.env,
        )

    def _placed(self, text: str) -> str:
        for before, after in self.places.items():
            text = text.replace(before, after)
        return text
