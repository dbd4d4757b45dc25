"""The bill of materials lists what the site needs."""

from __future__ import annotations

from tests.scripts.bill_of_materials import FILE, bill_of_materials, production_packages


def test_the_bill_of_materials_is_up_to_date() -> None:
    is_current = FILE.read_text(encoding="utf-8") == bill_of_materials()
    assert is_current, "Write sbom.cdx.json again: scripts/sbom"


def test_it_lists_what_the_site_needs_and_nothing_for_development() -> None:
    names = production_packages().keys()
    # What is asked for, what that needs, what an extra brings.
    assert {"django", "asgiref", "psycopg-binary", "aiohttp"} <= names
    assert not names & {"pytest", "ruff", "cyclonedx-python-lib", "playwright"}
