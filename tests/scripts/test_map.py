"""The map of the code in the README leads to files that exist, and a class name means one thing."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from itertools import takewhile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PACKAGES = ("evalsite", "evaluators", "runs")
# Django wants the one; the other two are what a program of a user sees of a case and its output.
SHARED_NAMES = {"Command", "Case", "Output"}


def section(title: str) -> str:
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_map_of_the_readme_shows_the_folders_and_modules_there_are() -> None:
    [block] = re.findall(r"```\n(.*?)```", section("The map of the code"), flags=re.DOTALL)
    folder, named = "", set()
    for line in block.splitlines():
        paths = list(takewhile(lambda word: word.endswith(("/", ".py")), line.split()))
        if not line.startswith(" "):
            folder = paths[0]
            named.update(paths)
        named.update(folder + path for path in paths if line.startswith(" "))
    assert {path for path in named if not (ROOT / path).exists()} == set()
    rooms = {
        f"{package}/{path.parent.name}/"
        for package in PACKAGES
        for path in (ROOT / package).glob("*/__init__.py")
    }
    django = {f"{package}/{name}/" for package in PACKAGES for name in ("management", "migrations")}
    assert rooms - named - django == set()


def test_every_module_that_the_flows_of_the_readme_name_exists() -> None:
    named = re.findall(
        r"`([\w/<>.]+\.py)`", section("Six flows") + section("Adding a kind, a field or a chart")
    )
    paths = [path for path in named if "<kind>" not in path]
    # A name without a folder is a module of the folder named before it.
    modules = {path.name for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert len(paths) > 15
    missing = [
        path for path in paths if not ((ROOT / path).exists() if "/" in path else path in modules)
    ]
    assert missing == []


def test_no_two_public_classes_have_the_same_name() -> None:
    places = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(str(path.relative_to(ROOT)))
    shared = {name: paths for name, paths in places.items() if len(paths) > 1}
    assert {name for name in shared if name not in SHARED_NAMES | {"Migration"}} == set(), shared


def test_every_value_that_a_style_sheet_asks_for_is_set_and_asked_for() -> None:
    sheets = "\n".join(path.read_text() for path in (ROOT / "static" / "css").glob("*.css"))
    templates = (path.read_text() for path in (ROOT / "templates").rglob("*.html"))
    modules = (path.read_text() for path in (ROOT / "runs" / "charts").glob("*.py"))
    scripts = (path.read_text() for path in (ROOT / "static" / "js").glob("*.js"))
    asked = set(re.findall(r"var\((--[\w-]+)", "\n".join((sheets, *templates, *modules, *scripts))))
    values = set(re.findall(r"(--[\w-]+)\s*:", sheets))
    assert asked - values == set()
    assert values - asked == set()
