"""What a model reads to draft cases: texts from documents, cases and results, cut in parts. Pure."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from evaluators.reading.json import storable
from evaluators.templatetags.figures import counted, thousands
from runs.formats.tables import table_text
from runs.specs.problems import Problem, UnreadableFileError

# About 3,000 tokens: a model still looks at all of it.
PART_LENGTH = 12_000
# How many texts the label of a part names.
MAX_NAMED = 3
MAX_DOCUMENTS, MAX_DOCUMENT_BYTES, MAX_MATERIAL_LENGTH = 20, 5_000_000, 600_000
# A part ends at a paragraph, a line, a sentence or a word, if one ends in its last third.
ENDS = ("\n\n", "\n", ". ", " ")
HTML = (".html", ".htm")
# A parser takes minutes for markup that is badly nested; each character of a document is looked at once here. A number
# of a character that is longer than any is left out like markup.
MARKUP = re.compile(
    r"<!--.*?(?:-->|\Z)|<(script|style)\b.*?(?:</\1[^>]*>?|\Z)|</?[a-z!?][^>]*>?|&#x?[0-9a-f]{8,};?",
    re.I | re.S,
)
BLOCK_ENDS = re.compile(r"</(?:p|div|h[1-6]|li|tr|td|th|dt|dd|pre|section|article)>|<br", re.I)
SAVE_AS = "save its text as plain text, Markdown or HTML"
OTHERS = {
    **dict.fromkeys((".pdf",), "a PDF"),
    **dict.fromkeys((".doc", ".docx", ".odt", ".rtf"), "a document of a word processor"),
    **dict.fromkeys((".xls", ".xlsx", ".ods"), "a workbook"),
    **dict.fromkeys((".ppt", ".pptx", ".odp"), "a presentation"),
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".gif", ".webp"), "a picture"),
    **dict.fromkeys((".zip", ".gz", ".tar", ".7z"), "an archive"),
}


@dataclass(frozen=True, slots=True)
class SourceText:
    """One text to draft cases from, and its name as people know it."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Part:
    """What is read for one or more questions; the label says where a case comes from."""

    label: str
    text: str


def document_text(content: bytes, name: str) -> SourceText:
    """Return the text of an uploaded document; raises UnreadableFileError with what would help."""
    name = storable(PurePosixPath(name.replace("\\", "/")).name[:200]) or "document"
    suffix = PurePosixPath(name).suffix.lower()
    problem = ""
    if suffix in OTHERS:
        problem = f"this is {OTHERS[suffix]}, which cannot be read; {SAVE_AS}"
    elif len(content) > MAX_DOCUMENT_BYTES:
        problem = f"the document has {thousands(len(content))} bytes; {thousands(MAX_DOCUMENT_BYTES)} is the limit"
    elif b"\x00" in content[:4096] and not content.startswith((b"\xff\xfe", b"\xfe\xff")):
        problem = f"this is not a text; {SAVE_AS}"
    if problem:
        raise UnreadableFileError([Problem(problem, name)])
    text, _ = table_text(content, name)
    if suffix in HTML:
        text = html.unescape(MARKUP.sub("", BLOCK_ENDS.sub(r"\n\g<0>", text)))
        text = "\n".join(line.strip() for line in text.splitlines() if line.strip())
    text = storable(text).strip()
    if not text:
        raise UnreadableFileError([Problem("there is no text in it", name)])
    return SourceText(name, text)


def check_length(sources: Iterable[SourceText]) -> None:
    """Raise UnreadableFileError where the texts together are too long."""
    length = sum(len(source.text) for source in sources)
    if length > MAX_MATERIAL_LENGTH:
        raise UnreadableFileError(
            [
                Problem(
                    f"the texts have {thousands(length)} characters together; {thousands(MAX_MATERIAL_LENGTH)} is the "
                    "limit. Choose fewer, or only the chapters that matter"
                )
            ]
        )


def cut_documents(sources: Sequence[SourceText]) -> list[Part]:
    """Return each document in parts, which say which part of how many they are."""
    parts = []
    for source in sources:
        pieces = list(_pieces(source.text))
        for number, piece in enumerate(pieces, 1):
            of = f", part {number} of {len(pieces)}" if len(pieces) > 1 else ""
            parts.append(Part(f"{source.name}{of}", piece))
    return parts


def gather(sources: Sequence[SourceText], noun: str) -> list[Part]:
    """Return short texts, several in a part; one that is too long for a part is cut short."""
    parts: list[Part] = []
    names: list[str] = []
    texts: list[str] = []
    for source in sources:
        text = source.text[:PART_LENGTH]
        if texts and sum(map(len, texts)) + len(text) > PART_LENGTH:
            parts.append(_gathered(names, texts, noun))
            names, texts = [], []
        names.append(source.name)
        texts.append(text)
    if texts:
        parts.append(_gathered(names, texts, noun))
    return parts


def _gathered(names: Sequence[str], texts: Sequence[str], noun: str) -> Part:
    label = ", ".join(names)
    if len(names) > MAX_NAMED:
        label = f"{counted(len(names), noun)}, {names[0]} and others"
    return Part(label, "\n\n".join(texts))


def _pieces(text: str) -> Iterator[str]:
    while len(text) > PART_LENGTH:
        window = text[:PART_LENGTH]
        ends = (window.rfind(end) + len(end) for end in ENDS)
        cut = next((at for at in ends if at > PART_LENGTH * 2 // 3), PART_LENGTH)
        yield text[:cut].strip()
        text = text[cut:].lstrip()
    if text:
        yield text


@dataclass(frozen=True, slots=True)
class Batch:
    """One question: which part it is about, and how many cases it asks for."""

    part: int
    wanted: int


# More in one reply, and models begin to repeat themselves or break off.
MAX_BATCH = 10


def plan_batches(lengths: Sequence[int], count: int) -> list[Batch]:
    """Return the questions for so many cases: each part gets at least one, the rest by their lengths.

    Raises ValueError where there are more parts than cases.
    """
    if count < len(lengths):
        raise ValueError(f"{len(lengths)} parts, {count} cases")
    weights = lengths if any(lengths) else [1] * len(lengths)
    exact = [weight / sum(weights) * (count - len(lengths)) for weight in weights]
    shares = [1 + int(more) for more in exact]
    by_rest = sorted(range(len(lengths)), key=lambda n: (int(exact[n]) - exact[n], n))
    for n in by_rest[: count - sum(shares)]:
        shares[n] += 1
    return [
        Batch(part, min(MAX_BATCH, share - start))
        for part, share in enumerate(shares)
        for start in range(0, share, MAX_BATCH)
    ]
