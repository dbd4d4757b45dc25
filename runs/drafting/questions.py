"""What a model is asked for drafted cases, and what is read of its reply, which may say anything. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evaluators.kinds._base import JudgeQuestion
from runs.specs.suites import MAX_CASE_TAG_LENGTH

PURPOSE = "drafting"
# What a reply is likely to have; an expected output and outcomes take most of it.
TOKENS_A_CASE = 250
MAX_NAMED_CASES, MAX_NAMED_LENGTH = 60, 160
MAX_TEXT_LENGTH, MAX_SHOWN_LENGTH = 20_000, 300
MAX_TAGS, MAX_OUTCOMES, MAX_TURNS, MAX_METADATA = 20, 20, 40, 8
LEAST = {
    "type": "object",
    "properties": {"cases": {"type": "array"}},
    "required": ["cases"],
}
TEXT = {"type": "string"}
TEXTS = {"type": "array", "items": TEXT}
ROLES = ("system", "user", "assistant")
FIELDS = ("title", "input", "expected_output", "expected_outcomes", "tags", "metadata")
INSTRUCTIONS = """\
You draft test cases for an AI agent. A case is what a user asks the agent, and what a good answer has to achieve. A
person reads your cases before any is used.

Draft {count} from the material below, each about something else, and none that repeats a case listed as existing.
Write them in the language of the material. Use only facts that the material states; leave a field empty where it
states none.

title: a few words that tell this case from the others.
input: {input}
expected_output: a correct answer, in full.
expected_outcomes: one to four short statements, each of which a reader of an answer can say is met or not.
tags: one to three short words, if possible from those of the existing cases{tags}.{metadata}"""
ONE_INPUT = "what the user writes, as a user would write it."
CONVERSATION = "the conversation so far, as the user and the assistant would write it; its last message is the user's."
RESULTS_ARE = (
    "The material is results in which the agent failed. Draft cases that would find the same weakness again with "
    "other words, other facts and at its edges."
)
CASES_ARE = "The material is existing cases. Draft cases that test what they leave out."
ABOUT = {"results": RESULTS_ARE, "cases": CASES_ARE}


def batch_question(
    asked: Mapping[str, Any], *, part: int, wanted: int, titles: Sequence[str]
) -> JudgeQuestion:
    """Return the question for some cases from one part of the material; `titles` are those of cases drafted before.

    `asked` is the request of the job: description, kind of source, parts, existing cases and tags, whether inputs
    are conversations, and the names of metadata.
    """
    names = asked["metadata"]
    instructions = INSTRUCTIONS.format(
        count="1 case" if wanted == 1 else f"{wanted} cases",
        input=CONVERSATION if asked["has_conversations"] else ONE_INPUT,
        tags=f" ({', '.join(asked['tags'])})" if asked["tags"] else "",
        metadata="\nmetadata: short values in the form of those of the existing cases."
        if names
        else "",
    )
    about = ABOUT.get(asked["source"], "")
    quoted = [
        ("description of the agent and of what to test", asked["description"]),
        ("material", asked["parts"][part]["text"]),
        ("existing cases", _lines((*asked["existing"], *titles))),
    ]
    return JudgeQuestion(
        purpose=PURPOSE,
        instructions=f"{instructions}\n\n{about}".strip(),
        quoted=tuple((label, text) for label, text in quoted if text),
        schema=draft_schema(has_conversations=asked["has_conversations"], metadata=names),
        least=LEAST,
    )


def draft_schema(*, has_conversations: bool, metadata: Sequence[str]) -> dict[str, Any]:
    """Return the schema of a reply. It has inputs, expectations, tags and metadata, and nothing else of a case."""
    turn = _object({"role": {"type": "string", "enum": list(ROLES)}, "content": TEXT})
    properties: dict[str, Any] = {
        "title": TEXT,
        "input": {"type": "array", "items": turn} if has_conversations else TEXT,
        "expected_output": TEXT,
        "expected_outcomes": TEXTS,
        "tags": TEXTS,
    }
    if metadata:
        properties["metadata"] = _object(dict.fromkeys(metadata, TEXT))
    return _object({"cases": {"type": "array", "items": _object(properties)}})


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": list(properties)}


def _lines(texts: Iterable[str]) -> str:
    return "\n".join(f"- {text[:MAX_NAMED_LENGTH]}" for text in [*texts][-MAX_NAMED_CASES:])


def read_drafts(
    cases: Sequence[Any], *, wanted: int, part: int, metadata: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the first `wanted` entries of a reply as rows; one that is no case says in `unread` why."""
    return [_row(case, metadata) | {"part": part} for case in cases[:wanted]]


def _row(case: Any, names: Sequence[str]) -> dict[str, Any]:
    if not isinstance(case, dict):
        return {"unread": "the model gave no case here", "text": _shown(case)}
    row: dict[str, Any] = {}
    try:
        row["title"] = _text(case, "title")
        row["input"] = _input(case.get("input"))
        row["expected_output"] = _text(case, "expected_output")
        row["expected_outcomes"] = _texts(case, "expected_outcomes", MAX_OUTCOMES)
        row["tags"] = [tag[:MAX_CASE_TAG_LENGTH] for tag in _texts(case, "tags", MAX_TAGS)]
        row["metadata"] = _metadata(case.get("metadata"), names)
    except _UnreadableError as error:
        return {"unread": str(error), "text": _shown(case)}
    if left := sorted(set(map(str, case)) - set(FIELDS)):
        row["left_out"] = [name[:40] for name in left[:MAX_METADATA]]
    return row


class _UnreadableError(ValueError):
    """An entry has a value that its field cannot have."""


def _text(case: Mapping[str, Any], name: str) -> str:
    value = case.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _UnreadableError(f"{name} is not a text")
    return _within(value, name)


def _within(text: str, name: str) -> str:
    if len(text) > MAX_TEXT_LENGTH:
        raise _UnreadableError(
            f"{name} has {len(text):,} characters; {MAX_TEXT_LENGTH:,} is the limit"
        )
    return text.strip()


def _texts(case: Mapping[str, Any], name: str, most: int) -> list[str]:
    value = case.get(name)
    value = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise _UnreadableError(f"{name} is not a list of texts")
    texts = [_within(text, name) for text in value]
    return [*dict.fromkeys(filter(None, texts))][:most]


def _input(value: Any) -> str | list[dict[str, str]]:
    if value is None or isinstance(value, str):
        return _within(value or "", "input")
    if not isinstance(value, list) or len(value) > MAX_TURNS:
        raise _UnreadableError(
            f"input is neither a text nor a conversation of up to {MAX_TURNS} messages"
        )
    turns = []
    for turn in value:
        role, content = (
            (turn.get(name) for name in ("role", "content")) if isinstance(turn, dict) else (0, 0)
        )
        if role not in ROLES or not isinstance(content, str):
            raise _UnreadableError("a message of the input has no role or no text")
        turns.append({"role": role, "content": _within(content, "input")})
    is_plain = len(turns) == 1 and turns[0]["role"] == "user"
    return turns[0]["content"] if is_plain else turns


def _metadata(value: Any, names: Sequence[str]) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    return {
        name: _within(value[name], "metadata")
        for name in names
        if isinstance(value.get(name), str) and value[name].strip()
    }


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)[:MAX_SHOWN_LENGTH]


NOT_IN_KEYS = re.compile(r"[^\w.-]+")
MAX_KEY_BEGINNING = 60


def give_keys(rows: Sequence[Mapping[str, Any]], taken: Iterable[str]) -> list[str]:
    """Return a key for each row: its own, else one made from its title that neither the suite nor another row has."""
    known = {*taken, *(row["key"] for row in rows if row.get("key"))}
    keys = []
    for row in rows:
        key = row.get("key") or ""
        if not key:
            text = NOT_IN_KEYS.sub("-", str(row.get("title") or "").lower()).strip("-.")
            begin = text[:MAX_KEY_BEGINNING].rstrip("-.") or "drafted"
            names = (begin, *(f"{begin}-{number}" for number in range(2, len(known) + 3)))
            key = next(name for name in names if name not in known)
            known.add(key)
        keys.append(key)
    return keys
