"""The commands and configurations that the README gives to those who run Evalsite."""

from __future__ import annotations

import re

from tests.services.processes import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def readme_commands(beginning: str) -> str:
    """Return the block of commands that begins so."""
    return readme_block("sh", beginning)


def readme_block(language: str, beginning: str = "") -> str:
    """Return the block of that language that begins so."""
    blocks = re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)
    [found] = [block for block in blocks if block.startswith(beginning)]
    return str(found)
