"""Cases that were written for the demo, given out as a model that drafts cases would."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripted.asking import QUOTED

WANTED = re.compile(r"^Draft (\d+) cases?\b", re.MULTILINE)
INPUT = re.compile(r"^Input: (.+)$", re.MULTILINE)

Case = Mapping[str, Any]


def read_cases(path: Path) -> list[Case]:
    """Return the written cases of a file, each below a key of its own: the file is no suite."""
    return [json.loads(line)["draft"] for line in path.read_text(encoding="utf-8").splitlines()]


def draft(body: Mapping[str, Any], cases: Sequence[Case]) -> str | None:
    """Return drafted cases for a request that asks for some, None for any other request.

    Those of titles that the request lists are left out, as a model would. From cases and results the first one repeats
    an input, as models also do, and the second one nearly.
    """
    text = "\n".join(str(message.get("content")) for message in body["messages"])
    wanted = WANTED.search(text)
    if wanted is None or not text.startswith("You draft test cases"):
        return None
    quoted = {label: content for _, label, content in QUOTED.findall(text)}
    known = quoted.get("existing cases", "")
    fresh = [case for case in cases if f"- {case['title']}" not in known]
    given = INPUT.findall(quoted.get("material", ""))
    repeated = [
        {**case, "title": title, "input": words.format(given[0])}
        for case, title, words in zip(
            cases, ("As before", "Nearly as before"), ("{}", "{} Please."), strict=False
        )
        if given and f"- {title}" not in known
    ]
    return json.dumps({"cases": [*repeated, *fresh][: int(wanted[1])]}, ensure_ascii=False)
