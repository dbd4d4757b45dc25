"""The bill of materials (CycloneDX) of the packages in the image that the Dockerfile makes, in sbom.cdx.json.

It needs no network. The hashes of the packages are in requirements.lock.
"""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from collections.abc import Iterator

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from tests.services.processes import ROOT

FILE = ROOT / "sbom.cdx.json"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
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


def production_packages() -> dict[str, tuple[str, set[str]]]:
    """Return version and needs of the pinned packages of the site, without those for development, by name."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pinned = [line for line in map(Requirement, PINNED.findall(lock)) if is_in_image(line)]
    versions = {canonicalize_name(line.name): str(line.specifier)[2:] for line in pinned}
    found: dict[str, tuple[str, set[str]]] = {}
    waiting = [Requirement(line) for line in PROJECT["dependencies"]]
    seen: set[tuple[NormalizedName, frozenset[str]]] = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        package = name, frozenset(requirement.extras)
        if package not in seen:
            seen.add(package)
            needed = [*needs(requirement)]
            waiting += needed
            _, names = found.setdefault(name, (versions[name], set()))
            names.update(canonicalize_name(line.name) for line in needed)
    return found


def bill_of_materials() -> str:
    """Return the content of the file, which holds no time and no random number."""
    bom = Bom()
    bom.serial_number = bom.metadata.timestamp = None
    site = bom.metadata.component = Component(
        name=PROJECT["name"],
        version=PROJECT["version"],
        description=PROJECT["description"],
        type=ComponentType.APPLICATION,
        bom_ref=PROJECT["name"],
    )
    packages = production_packages()
    components = {}
    for name, (version, _) in packages.items():
        url = PackageURL("pypi", name=name, version=version)
        components[name] = Component(name=name, version=version, purl=url, bom_ref=str(url))
    bom.components.update(components.values())
    asked_for = {canonicalize_name(Requirement(line).name) for line in PROJECT["dependencies"]}
    bom.register_dependency(site, [components[name] for name in asked_for])
    for name, (_, needed) in packages.items():
        bom.register_dependency(components[name], [components[other] for other in needed])
    return f"{JsonV1Dot6(bom).output_as_string(indent=2)}\n"


if __name__ == "__main__":
    FILE.write_text(bill_of_materials(), encoding="utf-8")
