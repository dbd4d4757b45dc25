"""What a dry run would have sent and started, as plain JSON for its page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from evaluators.judging.specs import ModelSpec
from evaluators.kinds import all_kinds
from evaluators.kinds._base import ScriptCall
from evaluators.scoring.tree import Node, walk
from runs.execution.unsent import Unsent, UnsentRequest
from runs.plan import judge_calls

CHARACTERS_A_TOKEN = 4
MOST_FILES = 200
MOST_STDIN = 1_000_000


def unsent_of(unsent: Unsent, root: Node) -> dict[str, Any]:
    """Return each different question once, with how often it is asked, and each program."""
    ordered = sorted(unsent.requests, key=lambda one: (one.key.round, one.key.sample))
    seen = Counter(one.key.evaluator_path for one in ordered)
    times = Counter((one.key.evaluator_path, one.digest) for one in ordered)
    first = {(one.key.evaluator_path, one.digest): one for one in reversed(ordered)}
    most = _calls_at_most(root)
    return {
        "requests": [
            {**_request(first[place]), "times": count, "in_all": _more(place[0], seen, most)}
            for place, count in times.items()
        ],
        "scripts": [_script(call) for call in unsent.scripts],
    }


def _calls_at_most(root: Node) -> dict[str, int]:
    """Return by path how many calls of judges each evaluator makes at most."""
    alone = ((path, replace(node, children=())) for path, node in walk(root))
    return {path: judge_calls(node, all_kinds(), has_outcomes=False) for path, node in alone}


def _more(path: str, seen: Mapping[str, int], most: Mapping[str, int]) -> int | None:
    """Return how many calls an evaluator makes at most where more follow that depend on replies."""
    return most[path] if most.get(path, 0) > seen[path] else None


def _request(request: UnsentRequest) -> dict[str, Any]:
    # As text: databases keep the values of JSON and not the order of its keys.
    body, spec = json.dumps(request.body), request.spec
    tokens = len(json.dumps(request.body, ensure_ascii=False)) // CHARACTERS_A_TOKEN
    cost = _price(spec, tokens)
    return {
        "path": request.key.evaluator_path,
        "model": (spec.name or spec.slug) if spec else request.to,
        "address": spec.base_url if spec else str(request.body.get("url", "")),
        "is_chat": spec is not None,
        "body": body,
        "tokens": tokens,
        "cost_usd": None if cost is None else str(cost),
    }


def _price(spec: ModelSpec | None, tokens: int) -> Decimal | None:
    if spec is None or spec.prices is None:
        return None
    return spec.prices.cost_usd(input_tokens=tokens, output_tokens=0, cached_tokens=None)


def _script(call: ScriptCall) -> dict[str, Any]:
    left = {f"$EVAL_WORKSPACE/{name}": content for name, content in call.workspace.items()}
    sizes = sorted((name, len(content)) for name, content in {**call.files, **left}.items())
    return {
        "command": list(call.command),
        "environment": list(call.environment.items()),
        "stdin": call.stdin[:MOST_STDIN].decode("utf-8", "replace"),
        "files": sizes[:MOST_FILES],
        "file_count": len(sizes),
        "seconds": call.seconds,
        "needs_network": call.needs_network,
        "folder": call.folder,
    }
