"""Agents behind addresses of their own: some give written attempts in turn, one reads and judges."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Attempt = Mapping[str, Any]
# The agent that is asked to judge; a word it reads or writes costs this.
READER = "reader"
USD_PER_CHARACTER = 0.0000004


class ScriptedAgents:
    """The attempts of every agent by case; asked again, an agent gives its next one, then the first."""

    def __init__(self, attempts: Mapping[str, Mapping[str, Sequence[Attempt]]]) -> None:
        """Begin with the first attempt of each case."""
        self.attempts = attempts
        self._asked: Counter[tuple[str, str]] = Counter()

    def next_attempt(self, agent: str, case: str) -> Attempt | None:
        """Return the next attempt, None for an agent or case that nothing was written for."""
        written = self.attempts.get(agent, {}).get(case)
        if not written:
            return None
        number = self._asked[agent, case]
        self._asked[agent, case] += 1
        return written[number % len(written)]


def read_attempts(paths: Sequence[Path]) -> dict[str, dict[str, list[Attempt]]]:
    """Return the attempts of `attempts-<agent>.jsonl` by agent and case, a line each.

    Raises ValueError naming the line that is wrong.
    """
    found: dict[str, dict[str, list[Attempt]]] = {}
    for path in paths:
        agent = path.stem.removeprefix("attempts-")
        cases = found.setdefault(agent, defaultdict(list))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                entry = json.loads(line)
                cases[str(entry["case"])].append(entry["reply"])
            except (ValueError, TypeError, KeyError) as error:
                said = f"{path.parent.name}/{path.name} line {number}: no readable attempt"
                raise ValueError(f"{said} ({error!r})") from error
    return found
