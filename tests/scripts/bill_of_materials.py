"""The bill of materials (CycloneDX) of the packages in the image that the Dockerfile makes, in sbom.cdx.json.

It needs no network. The hashes of the packages are in requirements.lock.
"""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from tests.services.processes import ROOT

FILE = ROOT / "sbom.cdx.json"
PINNED = re.compile(r"^[a-z0-9][^\\\n]*", re.MULTILINE)
# The image, so that every machine writes the same file.
IMAGE = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "python_full_version": "3.11.14",
    "python_version": "3.11",
    "sys_platform": "linux",
}


def is_in_image(requirement: Requirement, extra: str = "") -> bool:
    """Tell whether the marker of a requirement, if it has one, is met by the image."""
    return requirement.marker is None or requirement.marker.evaluate({**IMAGE, "extra": extra})


def needs(requirement: Requirement) -> Iterator[Requirement]:
    """Yield what a package needs in the image, with the extras it is asked for."""
    try:
        lines = importlib.metadata.requires(requirement.name) or []
    except importlib.metadata.PackageNotFoundError:
        # It is for the image and not for this machine.
        return
    for needed in map(Requirement, lines):
        if any(is_in_image(needed, extra) for extra in ("", *requirement.extras)):
            yield needed


def production_packages() -> list[str]:
    """Return the pinned packages that the site needs, without those for development, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pinned = [line for line in map(Requirement, PINNED.findall(lock)) if is_in_image(line)]
    versions = {canonicalize_name(line.name): line.specifier for line in pinned}
    waiting = [Requirement(line) for line in project["dependencies"]]
    seen: set[tuple[NormalizedName, frozenset[str]]] = set()
    while waiting:
        requirement = waiting.pop()
        package = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if package not in seen:
            seen.add(package)
            waiting += needs(requirement)
    names = sorted({name for name, _ in seen})
    return [f"{name}{versions[name]}" for name in names]


def bill_of_materials() -> str:
    """Return the content of the file."""
    made = subprocess.run(
        [
            *(sys.executable, "-m", "cyclonedx_py", "requirements", "-"),
            *("--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible"),
        ],
        input="\n".join(production_packages()),
        capture_output=True,
        text=True,
        check=True,
    )
    return made.stdout


if __name__ == "__main__":
    FILE.write_text(bill_of_materials(), encoding="utf-8")
