"""Pages and messages use one plain word for each thing: the words below stay out of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
# What to write in place of each.
ON_PAGES_AND_IN_MESSAGES = {
    r"(some|any|every)body|someone|nobody|whoever": "the role: a member, an admin, everyone with the link",
    r"e-mail|time-out|canceled|favors?": "email, timeout, cancelled, favour",
    r"what came out|what goes": "the noun: result, removed data",
    r"carr(ied|ies) out|held against|put away|taken over|goes by": "run, compared with, archived",
    r"people (say|decide)|the machine (said|says)|machine's verdict": "reviewed as, automatic verdict",
    r"never as 0|nothing is lost": "nothing: it only reassures",
    r"no such thing|(?<!there )is no (number|value|case|member)": "is not a",
    r"purses?|under way|in hand": "cost, running",
    r"keep in draft|keep as it is|out of the archive|choose none": "Cancel, Save draft, restore, Clear selection",
    r"score(d)? (it )?again|tried again by": "rescore, rerun",
    r"the (file|log|eval|files|it) holds?|it holds": "contains",
    r"comes (a|the) (condition|value|number|name)": "the imperative: write a value after",
    r"one a line|is alive": "one per line, running",
}
ON_PAGES = {
    r"alone": "only",
    r"stands|lies|tells": "is, shows",
    r"executions?": "result",
    r"slug": "short name",
    r"bands?": "threshold",
    r"negated": "inverted",
    r"make (it|a|an|the)\b": "create",
}
TAG = re.compile(r"\{%.*?%\}|\{\{.*?\}\}|\{#.*?#\}|<[^>]*>", re.DOTALL)
COMMENT = re.compile(r"\{% comment %\}.*?\{% endcomment %\}", re.DOTALL)
LITERAL = re.compile(r'"([^"]*)"')
# Judges are asked in longer texts, and in words of their own.
MAX_MESSAGE = 400


def blank(match: re.Match[str]) -> str:
    """Replace a tag, but keep the lines and the texts that it shows."""
    tag = match.group()
    literals = [] if tag.startswith("<") else LITERAL.findall(tag)
    shown = " ".join(literal for literal in literals if " " in literal)
    return f" {shown} " + "\n" * tag.count("\n")


def page_texts() -> Iterator[tuple[Path, int, str]]:
    for path in sorted((ROOT / "templates").rglob("*.html")):
        text = TAG.sub(blank, COMMENT.sub(blank, path.read_text()))
        for number, line in enumerate(text.split("\n"), start=1):
            yield path, number, line


def messages() -> Iterator[tuple[Path, int, str]]:
    """Yield the texts in modules, without docstrings, names and what judges are asked."""
    for folder in ("evalsite", "evaluators", "runs"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(path.read_text())
            told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    is_message = " " in node.value and len(node.value) < MAX_MESSAGE
                    if is_message and id(node) not in told:
                        yield path, node.lineno, node.value


def test_pages_and_messages_use_plain_words() -> None:
    on_pages, everywhere = ON_PAGES | ON_PAGES_AND_IN_MESSAGES, ON_PAGES_AND_IN_MESSAGES
    found = [
        f"{path.relative_to(ROOT)}:{number}: “{match.group()}”; write {instead}"
        for texts, words in ((page_texts(), on_pages), (messages(), everywhere))
        for path, number, text in texts
        for word, instead in words.items()
        for match in re.finditer(rf"\b({word})\b", text, re.IGNORECASE)
    ]
    assert not found, "\n".join(found)
