"""The content of a turn of a suite file: a text, JSON, or blocks of text, JSON and files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from runs.formats._document import Path
from runs.formats._fields import Fields
from runs.formats._reading import Reading

# The text of a block and its shortest form.
Block = tuple[str, dict[str, str]]

WRITE = "write a text, or blocks of type text, file or json"
TEXT_TYPES = ("text", "input_text", "output_text")


def read_content(
    turn: Fields, key: str, content: Any, *, is_kept: bool
) -> tuple[str, list[dict[str, str]]]:
    """Return the text of a turn, and its blocks where some of them are files."""
    if content is None:
        return "", []
    written = turn.written(key, content)
    if isinstance(written, str):
        return written, []
    if isinstance(content, dict):
        return as_json(content), []
    if not isinstance(content, list):
        turn.refuse(key, f"the content is neither a text nor blocks; {WRITE}")
        return "", []
    read = [_block(turn, key, n, part, is_kept=is_kept) for n, part in enumerate(content)]
    return joined([found for found in read if found is not None])


def joined(found: Sequence[Block]) -> tuple[str, list[dict[str, str]]]:
    """Return the text of blocks, and the blocks where some of them are files.

    A file alone is its text; beside others it stands between marks that name it.
    """
    blocks = [block for _, block in found]
    if not any(block["type"] == "file" for block in blocks):
        return "\n".join(text for text, _ in found), []
    if len(found) == 1:
        return found[0][0], blocks
    return "\n".join(_marked(text, block) for text, block in found), blocks


def text_block(text: str) -> Block:
    """Return a block of text."""
    return text, {"type": "text", "value": text}


def read_file(
    reading: Reading, path: Path, reference: str, *, case: str, is_kept: bool = True
) -> Block | None:
    """Return the block of a file of the suite, None with a problem for one that is no text."""
    named = repr(reference.strip())
    try:
        found = reading.use(reference, is_kept=is_kept)
        text = reading.files[found].decode("utf-8-sig")
    except UnicodeDecodeError:
        said = "is not text in UTF-8, and what a case asks is text; leave it out or convert it"
        reading.refuse(path, f"the file {named} {said}", case=case)
        return None
    except ValueError as error:
        reading.refuse(path, str(error), case=case)
        return None
    if "\0" in text:
        reading.refuse(path, f"the file {named} holds the character NUL; convert it", case=case)
        return None
    reading.weigh(text, path, case=case)
    return text, {"type": "file", "value": f"./{found}"}


def _block(turn: Fields, key: str, n: int, part: Any, *, is_kept: bool) -> Block | None:
    """Return the text of a block and the block in its shortest form; None for what is no text."""
    path = (*turn.place(key), n)
    if isinstance(part, str):
        return text_block(part)
    block = Fields(turn.reading, path, value=part, case=turn.case)
    if not isinstance(part, Mapping):
        return None
    kind = block.text("type") or "text"
    named, value = block.take_as("value", "text", "path", "file")
    block.refuse_rest("type and value")
    if kind == "json" and named:
        text = as_json(value)
    elif kind == "file" and isinstance(value, str) and value.strip():
        return read_file(block.reading, block.place(named), value, case=block.case, is_kept=is_kept)
    elif kind in TEXT_TYPES and isinstance(value, str):
        text = value
    else:
        shown = f" ({value!r})" if isinstance(value, str) and len(value) < 100 else ""
        said = f"a block of type {kind}{shown} cannot be made text; {WRITE}"
        block.refuse(named, said)
        return None
    return text_block(text)


def _marked(text: str, block: Mapping[str, str]) -> str:
    """Return the text of a block, that of a file between marks that name it."""
    if block["type"] != "file":
        return text
    return f'<file path="{block["value"].removeprefix("./")}">\n{text.rstrip()}\n</file>'


def as_json(value: Any) -> str:
    """Return a value as the text a model is given."""
    return json.dumps(value, ensure_ascii=False)
