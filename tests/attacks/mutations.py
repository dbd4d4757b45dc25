"""Change values and texts a little, at random, into what a careless or hostile writer might send."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from typing import Any

# Texts that mean something to one of the readers: paths, templates, formulas, other notations, signs that look alike.
TEXTS = (
    *("", " ", "\0", "\ud800", "\u2028", "\u202e back", "\ufeff", "\x1b[31m", "🙂", "e\u0301", "ﬁ"),
    *("٣", "no", "1e3", "~", "null", "NaN", "-", "[]", "{}", '{"a": 1}', "[1,", '"', "'", "\\"),
    *("file://../../etc/passwd", "file:///etc/passwd", "../a.md", "C:\\a", "a/b", "__proto__"),
    *("{{input}}", "{{x", "{% if %}", "${{ HOME }}", "=1+1", "@SUM(A1)", "%s%n", "&a", "*a", "<<"),
    *("<script>alert(1)</script>", "id", "input", "tests", "2024-01-01", "a\nb", "\r", "\t"),
    *("a" * 201, "b" * 5_000),
)
NUMBERS = (
    *(0, -1, 1, 2, 0.5, -0.0, 101, 3.7, 1e15, 1e308, -1e308, 5e-324, 2**31, 2**53 + 1, 2**63),
    *(-(2**63) - 1, 10**30, 10**290),
)
CONTAINERS: tuple[Any, ...] = (
    *([], {}, [[]], [None], [{}], {"": ""}, {"a": {}}, {"id": 1}, [1, "a", None, {}]),
    *(True, False, None),
)
# Numbers that JSON does not know or that no machine holds.
LITERALS = ("NaN", "-Infinity", "1e400", "1" * 400, "-0", "01", "+1", ".5", "0.1e-400")
SIGNS = (
    *(b"\xef\xbb\xbf", b"\xff\xfe", b"\0", b"\r", b"\t", b'"', b"'", b",", b";", b"{", b"}", b"["),
    *(b"]", b":", b"- ", b"&a ", b"*a", b"|", b">", b"#", b"---\n", b"<<: *a\n", b"? "),
)
DEPTHS = (5, 20, 59, 61, 199, 201)
# Deeper than any reader goes, and not too deep to be written.
MAX_DEPTH = 250


def odd_value(chance: random.Random) -> Any:
    """Return a value that few expect."""
    match chance.randrange(10):
        case 0:
            value: Any = 1
            for _ in range(chance.choice(DEPTHS)):
                value = [value] if chance.random() < 0.5 else {"a": value}
            return value
        case 1 | 2 | 3 | 4:
            return chance.choice(TEXTS)
        case 5 | 6:
            return chance.choice(NUMBERS)
        case _:
            return deepcopy(chance.choice(CONTAINERS))


def mutate(value: Any, chance: random.Random, times: int = 0) -> Any:
    """Return a copy of a JSON value that is changed in one place, or in a few; `times` says in how many."""
    changed = {"": deepcopy(value)}
    for _ in range(times or chance.choice((1, 1, 1, 2, 3, 5))):
        container, key = chance.choice(_places(changed))
        # Copies of what is already deep may be too deep for Python.
        with suppress(RecursionError):
            chance.choice(CHANGES)(container, key, chance)
        changed.setdefault("", None)
    return changed[""]


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return every container within a value with each of its keys."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, part in pairs:
        found.append((value, key))
        if isinstance(part, dict | list):
            found += _places(part)
    return found


def _replace(container: Any, key: Any, chance: random.Random) -> None:
    container[key] = odd_value(chance)


def _remove(container: Any, key: Any, chance: random.Random) -> None:
    del container[key]


def _rename(container: Any, key: Any, chance: random.Random) -> None:
    """Spell a key otherwise, or add it once more in another spelling."""
    if isinstance(container, dict):
        camel = key.title().replace("_", "")
        name = chance.choice((chance.choice(TEXTS), key.upper(), camel, f"{key} "))
        container[name] = container[key] if chance.random() < 0.5 else container.pop(key)


def _repeat(container: Any, key: Any, chance: random.Random) -> None:
    if isinstance(container, list):
        container.extend([deepcopy(container[key])] * chance.choice((1, 3, 20)))


def _swap(container: Any, key: Any, chance: random.Random) -> None:
    """Put a value in the place of another of the same container."""
    keys = list(container) if isinstance(container, dict) else range(len(container))
    container[key] = deepcopy(container[chance.choice(keys)])


def _add(container: Any, key: Any, chance: random.Random) -> None:
    """Put one value more into a container, or a container around a value."""
    match container[key]:
        case dict() as part:
            part[chance.choice(TEXTS)] = odd_value(chance)
        case list() as part:
            part.insert(chance.randrange(len(part) + 1), odd_value(chance))
        case part:
            container[key] = [part] if chance.random() < 0.5 else {"value": part}


def _bend(container: Any, key: Any, chance: random.Random) -> None:
    """Keep the type of a value, and change it."""
    match container[key]:
        case bool() as part:
            container[key] = not part
        case str() as part:
            odd = chance.choice(TEXTS)
            looks_alike = part.replace("a", "\u0430")
            container[key] = chance.choice(
                (part + odd, odd + part, part.upper(), part * 30, part[:1], looks_alike)
            )
        case int() | float() as part:
            container[key] = chance.choice((str(part), -part, min(part, 10**6) * 10**9, part + 1))


CHANGES: tuple[Callable[[Any, Any, random.Random], None], ...] = (
    *(_replace, _replace, _replace, _bend, _bend, _add, _remove, _rename, _repeat, _swap),
)


def write_json(value: Any, chance: random.Random, depth: int = 0) -> str:
    """Return a value as JSON; now and then a key stands twice, or a number is one that JSON does not know."""
    match value:
        case dict() | list() if depth > MAX_DEPTH:
            return "[]"
        case dict():
            pairs = [
                f"{json.dumps(str(key))}: {write_json(part, chance, depth + 1)}"
                for key, part in value.items()
            ]
            if pairs and chance.random() < 0.01:
                pairs.append(
                    f"{json.dumps(str(next(iter(value))))}: {write_json(odd_value(chance), chance, depth + 1)}"
                )
            return "{" + ", ".join(pairs) + "}"
        case list():
            return "[" + ", ".join(write_json(part, chance, depth + 1) for part in value) + "]"
        case int() | float() if not isinstance(value, bool) and chance.random() < 0.01:
            return chance.choice(LITERALS)
    return json.dumps(value)


def mutate_bytes(content: bytes, chance: random.Random) -> bytes:
    """Return a text or archive with bytes and lines lost, repeated, or put where they do not belong."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = chance.randrange(len(content) + 1)
        before, after = content[:at], content[at:]
        match chance.randrange(7):
            case 0:
                content = before + after[chance.randrange(1, 30) :]
            case 1:
                odd = chance.choice(TEXTS).encode("utf-8", "surrogatepass")
                content = before + odd + after
            case 2:
                content = before + chance.randbytes(chance.randrange(1, 5)) + after
            case 3:
                content = before + chance.choice(SIGNS) + after
            case 4:
                content = before + before[-chance.randrange(1, 200) :] + after
            case 5:
                lines = content.split(b"\n")
                lines.insert(chance.randrange(len(lines) + 1), chance.choice(lines))
                content = b"\n".join(lines)
            case _:
                content = before if chance.random() < 0.3 else before + b"  " + after
    return content
