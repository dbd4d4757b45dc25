"""Cases of a suite file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from evaluators.scoring.tree import Node
from runs.formats._content import CaseContent
from runs.formats._document import Path
from runs.formats._evaluators import check_composite, read_aggregator, read_evaluators, root_of
from runs.formats._fields import Fields, Reading
from runs.formats._recorded import read_recorded

LONGEST_KEY = 200
LONGEST_TITLE = 300
ALIASES = {
    "id": ("key", "case_id", "eval_id"),
    "title": ("name",),
    "criteria": ("expected_outcome", "outcome"),
    "input": ("input_messages",),
    "expected_output": ("expected_messages", "reference_answer"),
    "assertions": ("assert",),
    "output": ("recorded_output",),
}


def read_cases(reading: Reading, path: Path, items: list[Any]) -> tuple[CaseContent, ...]:
    """Return the cases of a list; ids must be unique, what cannot be read is noted and left out."""
    found: dict[str, CaseContent] = {}
    first_lines: dict[str, int] = {}
    for n, item in enumerate(items):
        at = (*path, n)
        case = _Case(reading, at, item).content()
        if case is None:
            continue
        if case.key in found:
            said = f"the id {case.key!r} stands twice, first on line {first_lines[case.key]}"
            reading.refuse((*at, "id"), said, case=case.key)
            continue
        found[case.key] = case
        first_lines[case.key] = reading.document.line_of(at)
    return tuple(found.values())


class _Case:
    """One case of a list."""

    def __init__(self, reading: Reading, path: Path, item: Any) -> None:
        self.reading = reading
        self.path = path
        self.fields = Fields(reading, path, aliases=ALIASES, value=item)

    def content(self) -> CaseContent | None:
        """Return the case, None when it has no usable id."""
        key = self.fields.text("id")
        if not key:
            self.fields.refuse("", "the case has no id")
            return None
        if len(key) > LONGEST_KEY:
            self.fields.refuse("id", f"the id is longer than {LONGEST_KEY} characters")
        self.fields.case = key
        title = self.fields.text("title")
        if len(title) > LONGEST_TITLE:
            self.fields.refuse("title", f"the title is longer than {LONGEST_TITLE} characters")
        evaluators, append = self._evaluators()
        content = CaseContent(
            key=key,
            title=title,
            tags=self.fields.texts("tags"),
            input=self._input(),
            expected_output=self._expected(),
            expected_outcomes=self.fields.texts("expected_outcomes"),
            criteria=self.fields.text("criteria"),
            recorded_output=read_recorded(self.fields),
            evaluators=evaluators,
            evaluators_append=append,
            metadata={**self.fields.mapping("metadata")[1], **self.fields.keep_rest()},
        )
        if any(not outcome.strip() for outcome in content.expected_outcomes):
            self.fields.refuse("expected_outcomes", "an expected outcome is empty")
        return content

    def _input(self) -> tuple[Mapping[str, str], ...]:
        key, value = self.fields.take("input")
        if value is None or value in ("", []):
            self.fields.refuse(key, "the case has no input")
            return ()
        if isinstance(value, str):
            return ({"role": "user", "content": value},)
        return self._turns(key, value)

    def _turns(self, key: str, value: Any) -> tuple[Mapping[str, str], ...]:
        if not isinstance(value, list):
            self.fields.refuse(key, "is neither a text nor a list of turns with role and content")
            return ()
        turns: list[Mapping[str, str]] = []
        for n, part in enumerate(value):
            path = (*self.fields.place(key), n)
            turn = Fields(self.reading, path, value=part, case=self.fields.case)
            role, content = turn.text("role"), turn.take("content")[1]
            turn.refuse_rest("role and content")
            if not role:
                turn.refuse("", "the turn has no role (user, assistant, system or tool)")
            turns.append({"role": role, "content": self._text_of(turn, content)})
        return tuple(turns)

    def _text_of(self, turn: Fields, content: Any) -> str:
        """Return the text of a turn: a text, or blocks of type text one below the other."""
        blocks = content if isinstance(content, list) else [{"type": "text", "value": content}]
        texts: list[str] = []
        for block in blocks:
            text = block.get("value", block.get("text")) if isinstance(block, dict) else None
            if not isinstance(text, str) or block.get("type") != "text":
                turn.refuse("content", "the content is neither a text nor blocks of type text")
                return ""
            texts.append(text)
        return "\n".join(texts)

    def _expected(self) -> str:
        key, value = self.fields.take("expected_output")
        if isinstance(value, list) and all(isinstance(part, dict) for part in value):
            turns = self._turns(key, value)
            return "\n\n".join(turn["content"] for turn in turns if turn["role"] == "assistant")
        if isinstance(value, dict | list):
            return json.dumps(value, ensure_ascii=False)
        return value if isinstance(value, str) else "" if value is None else self._plain(key, value)

    def _plain(self, key: str, value: Any) -> str:
        return self.reading.document.written.get(self.fields.place(key), json.dumps(value))

    def _evaluators(self) -> tuple[Node | None, bool]:
        """Return the case's own tree and whether it joins the suite's (`assertions`) or replaces it."""
        execution_key, block = self.fields.mapping("execution")
        inner = Fields(
            self.reading, self.fields.place(execution_key), value=block, case=self.fields.case
        )
        own = self._listed(self.fields, "evaluators") + self._listed(inner, "evaluators")
        joined = self._listed(self.fields, "assertions")
        rubrics_key, rubrics = self.fields.items("rubrics")
        if rubrics:
            item = [{"name": "rubric", "type": "rubric", "rubrics": rubrics}]
            at = self.fields.place(rubrics_key)
            joined += read_evaluators(self.reading, at, item, case=self.fields.case)
        skips = bool(inner.flag("skip_defaults")) | bool(self.fields.flag("skip_defaults"))
        inner.refuse_rest("evaluators and skip_defaults")
        key, options = self.fields.mapping("aggregator")
        aggregator = read_aggregator(
            self.reading, self.fields.place(key), options, case=self.fields.case
        )
        if not own and not joined:
            return None, False
        append = not own and not skips
        if append and options:
            self.fields.refuse(key, "assertions that join the suite's take the suite's aggregator")
        root = root_of((*own, *joined), aggregator if options else None)
        check_composite(self.reading, self.path, root, case=self.fields.case)
        return root, append

    def _listed(self, fields: Fields, name: str) -> tuple[Node, ...]:
        key, items = fields.items(name)
        return read_evaluators(self.reading, fields.place(key), items, case=self.fields.case)
