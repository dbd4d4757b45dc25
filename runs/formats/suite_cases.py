"""Cases of a suite file, in it or in a file of their own, with their turns and the files these name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from evaluators.kinds._prompts import reference_path
from evaluators.kinds._refusals import normal_spelling
from evaluators.reading.yaml import Path
from evaluators.scoring.tree import EvaluatorSpec
from runs.formats.bundles import OUTSIDE, missing_file_message
from runs.formats.generations import Generation
from runs.formats.lines import (
    CASES_KEYS,
    LINES_SUFFIXES,
    YAML_SUFFIXES,
    Form,
    LinedCases,
    read_lined,
    wrong_content_problem,
)
from runs.formats.reading import Fields, Reading
from runs.formats.recorded_outputs import read_recorded
from runs.formats.suite_evaluators import (
    check_composite,
    default_children,
    make_root,
    read_aggregator,
    read_evaluators,
)
from runs.formats.yaml import YamlDocument, decode_text, describe_value, read_document
from runs.specs.problems import Problem, UnreadableFileError
from runs.specs.suites import CASE_LISTS, MAX_CASE_TAG_LENGTH, CaseSpec, too_many

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
    return join_blocks([block for block in read if block is not None])


def join_blocks(parts: Sequence[Block]) -> tuple[str, list[dict[str, str]]]:
    """Return the text of blocks, and the blocks where some of them are files.

    A single file is its text; among other blocks its text is enclosed in tags with its name.
    """
    blocks = [block for _, block in parts]
    if not any(block["type"] == "file" for block in blocks):
        return "\n".join(text for text, _ in parts), []
    if len(parts) == 1:
        return parts[0][0], blocks
    return "\n".join(_marked(text, block) for text, block in parts), blocks


def text_block(text: str) -> Block:
    """Return a block of text."""
    return text, {"type": "text", "value": text}


def read_file(
    reading: Reading, path: Path, reference: str, *, case: str, is_kept: bool = True
) -> Block | None:
    """Return the block of a file of the suite; None, with a problem, if it is not text."""
    named = repr(reference.strip())
    try:
        stored_path = reading.use(reference, is_kept=is_kept)
        text = reading.files[stored_path].decode("utf-8-sig")
    except UnicodeDecodeError:
        message = "is not text in UTF-8, but a case's input is text; leave it out or convert it"
        reading.refuse(path, f"the file {named} {message}", case=case)
        return None
    except ValueError as error:
        reading.refuse(path, str(error), case=case)
        return None
    if "\0" in text:
        reading.refuse(path, f"the file {named} contains the character NUL; convert it", case=case)
        return None
    reading.weigh(text, path, case=case)
    return text, {"type": "file", "value": f"./{stored_path}"}


def _block(turn: Fields, key: str, n: int, part: Any, *, is_kept: bool) -> Block | None:
    """Return the text of a block and the block in its shortest form; None if it is not text."""
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
        message = f"a block of type {kind}{shown} cannot be made text; {WRITE}"
        block.refuse(named, message)
        return None
    return text_block(text)


def _marked(text: str, block: Mapping[str, str]) -> str:
    """Return the text of a block; a file's text in tags with its name."""
    if block["type"] != "file":
        return text
    return f'<file path="{block["value"].removeprefix("./")}">\n{text.rstrip()}\n</file>'


def as_json(value: Any) -> str:
    """Return a value as JSON text, as a model gets it."""
    return json.dumps(value, ensure_ascii=False)


ROLES = ("system", "developer", "user", "assistant", "tool")
BLOCKS = "blocks"

Turn = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SharedInput:
    """What a suite puts before the input of each of its cases.

    `named` are the files its turns name; they are not kept if all cases skip the defaults.
    """

    turns: tuple[Turn, ...] = ()
    files: tuple[Block, ...] = ()
    named: Mapping[str, bytes] = field(default_factory=dict)


def read_shared_input(suite: Fields) -> SharedInput:
    """Return the `input` and `input_files` of a suite; problems are noted."""
    key, value = suite.take("input")
    used = suite.reading.used_files
    suite.reading.used_files = {}
    turns = read_turns(suite, key, value) if key else ()
    named, suite.reading.used_files = suite.reading.used_files, used
    return SharedInput(turns, _files(suite, is_kept=False), named)


def read_input(case: Fields, shared: SharedInput) -> tuple[Turn, ...]:
    """Return the input of a case: the suite's turns and its own; problems are noted.

    Files under `input_files`, by default the suite's, go before an input that is a text.
    """
    key, value = case.take("input")
    files_key, _ = case.peek("input_files")
    files = _files(case)
    case.reading.used_files |= shared.named
    for turn in shared.turns:
        case.reading.weigh(turn["content"], case.path, case=case.case)
    is_missing = value is None or value in ("", [], {})
    prompt = _prompt_file(case, files or shared.files) if is_missing else None
    if is_missing and prompt is None:
        case.refuse(
            key, f"the case has no input; write what it asks under input{case.suggestion('input')}"
        )
        return ()
    text = case.written(key, value)
    if prompt is None and not isinstance(text, str):
        if files:
            message = "goes with an input that is a text; in turns a file is a block of type file"
            case.refuse(files_key, message)
        return (*shared.turns, *read_turns(case, key, value))
    if not files:
        for content, _ in shared.files:
            case.reading.weigh(content, case.path, case=case.case)
        case.reading.keep(block["value"] for _, block in shared.files)
    others = (block for block in files or shared.files if block != prompt)
    content, blocks = join_blocks([*others, prompt or text_block(text)])
    own = {"role": "user", "content": content}
    return (*shared.turns, {**own, BLOCKS: blocks} if blocks else own)


PROMPT_FILE = "PROMPT.md"


def _prompt_file(case: Fields, files: Sequence[Block]) -> Block | None:
    """Return the prompt of a case without input: in AgentV a file of this name, among its files or beside the suite."""
    reading = case.reading
    for block in files:
        if PurePosixPath(block[1]["value"]).name == PROMPT_FILE:
            return block
    beside = f"{reading.folder}/{PROMPT_FILE}".lstrip("/")
    if reading.generation is not Generation.LATER or beside not in reading.files:
        return None
    return read_file(reading, case.path, f"./{PROMPT_FILE}", case=case.case)


def _files(holder: Fields, *, is_kept: bool = True) -> tuple[Block, ...]:
    """Return the files listed under `input_files`; those that cannot be used are noted."""
    key, _ = holder.peek("input_files")
    blocks = [
        read_file(holder.reading, (*holder.place(key), n), name, case=holder.case, is_kept=is_kept)
        for n, name in enumerate(holder.texts("input_files"))
    ]
    return tuple(block for block in blocks if block is not None)


def read_turns(holder: Fields, key: str, value: Any) -> tuple[Turn, ...]:
    """Return the turns of a key; a text or JSON is one user turn; problems are noted.

    A turn has role and content, `blocks` if its content names files, and its other keys.
    """
    text = holder.written(key, value)
    if isinstance(text, str):
        return ({"role": "user", "content": text},)
    if isinstance(value, dict) and not _is_turn(value):
        return ({"role": "user", "content": as_json(value)},)
    if not isinstance(value, dict | list):
        holder.refuse(key, "is neither a text nor a list of turns with role and content")
        return ()
    if isinstance(value, dict):
        return _read(holder, key, value)
    turns = [_read(holder, key, part, n) for n, part in enumerate(value)]
    return tuple(turn for group in turns for turn in group)


def read_expected(case: Fields) -> tuple[str, dict[str, Any]]:
    """Return the expected output as text, and its value to keep if the text loses something; problems are noted.

    The text of a conversation is what the assistant says in it.
    """
    key, value = case.take("expected_output")
    is_said = isinstance(value, list) and any(isinstance(part, dict) for part in value)
    if isinstance(value, dict) and _is_turn(value):
        value, is_said = [value], True
    if value is None or not is_said or not any(_is_turn(part) for part in value):
        written = case.written(key, value)
        return (
            "" if value is None else written if isinstance(written, str) else as_json(value)
        ), {}
    parts = [_read(case, key, part, n, is_kept=False) for n, part in enumerate(value)]
    turns = [turn for part in parts for turn in part]
    message = [turn["content"] for turn in turns if turn["role"] == "assistant"]
    text = "\n\n".join(content for content in message if content)
    has_more = any(turn.keys() - {"role", "content"} for turn in turns)
    return text, {key: value} if has_more else {}


def _is_turn(value: Any) -> bool:
    return isinstance(value, dict) and any(str(key).lower() == "role" for key in value)


def _read(
    holder: Fields, key: str, part: Any, n: int | None = None, *, is_kept: bool = True
) -> tuple[Turn, ...]:
    path = holder.place(key) if n is None else (*holder.place(key), n)
    turn = Fields(holder.reading, path, value=part, case=holder.case)
    if not isinstance(part, Mapping):
        return ()
    role = turn.text("role").strip().lower()
    content_key, content = turn.take("content")
    if not role:
        turn.refuse("", f"the turn has no role; it is one of {', '.join(ROLES)}")
    elif role not in ROLES:
        turn.refuse("role", f"{role!r} is not one of {', '.join(ROLES)}")
    if content is None and not turn.rest():
        turn.refuse("", f"the turn has no content; {WRITE}")
    text, blocks = read_content(turn, content_key, content, is_kept=is_kept)
    turn_facts: dict[str, Any] = {"role": role, "content": text}
    for name, value in turn.rest().items():
        if name in (*turn_facts, BLOCKS):
            turn.refuse(name, "is not known here; known are role and content")
        turn.warn(name, "is kept; targets and judges are given role and content of a turn")
        turn_facts[name] = value
    return ({**turn_facts, BLOCKS: blocks} if blocks and is_kept else turn_facts,)


def cases_file_paths(document: YamlDocument) -> tuple[str, ...]:
    """Return the paths of the files of cases that a suite file's `tests` name."""
    folder = parent_folder(document.file)
    return tuple(reference_path(reference, folder) for reference in _references(document).values())


def with_cases(
    document: YamlDocument, files: Mapping[str, bytes]
) -> tuple[YamlDocument, tuple[str, ...]]:
    """Return the document with the cases of the files that its `tests` name, and the paths of those files.

    `tests` is such a name, or a list with such names among its cases. A file is YAML or JSON Lines. Each
    value keeps its place in its own file. Raises UnreadableFileError for files that are missing or have no
    list of cases.
    """
    references, key = _references(document), _cases_key(document)
    if not references:
        return document, ()
    is_list = isinstance(document.value[key], list)
    own = _by_item(document, key) if is_list else {}
    cases: list[Any] = []
    lines = {path: line for path, line in document.lines.items() if path[:1] != (key,)}
    written = {path: text for path, text in document.written.items() if path[:1] != (key,)}
    elsewhere = dict(document.elsewhere)
    seen: set[str] = set()
    for n, item in enumerate(document.value[key] if is_list else [None]):
        at, part = len(cases), own.get(n, LinedCases())
        if n in references:
            place = (key, n) if is_list else (key,)
            path, part = _read_named(document, place, references[n], files)
            if path in seen:
                message = f"names {path} again; name each file once"
                problem = Problem(
                    message, document.file, document.line_at(place), key=f"{key}[{n}]"
                )
                raise UnreadableFileError([problem])
            seen.add(path)
            places = [(key, at + number) for number in range(len(part.cases))]
            elsewhere |= dict.fromkeys(places if is_list else [(key,)], path)
        else:
            part.cases = [item]
        cases += part.cases
        lines |= {_shifted(place, at): line for place, line in part.lines.items()}
        written |= {_shifted(place, at): text for place, text in part.written.items()}
    value = {**document.value, key: cases}
    lines[key,] = document.line_at((key,))
    joined = replace(document, value=value, lines=lines, written=written, elsewhere=elsewhere)
    return joined, cases_file_paths(document)


def _by_item(document: YamlDocument, key: str) -> dict[int, LinedCases]:
    """Return the places of each item of a list, as those of the first item of a list of their own."""
    items: dict[int, LinedCases] = {}
    for path, line in document.lines.items():
        if path[:1] == (key,) and len(path) > 1:
            items.setdefault(int(path[1]), LinedCases()).lines[(key, 0, *path[2:])] = line
    for path, text in document.written.items():
        if path[:1] == (key,) and len(path) > 1:
            items.setdefault(int(path[1]), LinedCases()).written[(key, 0, *path[2:])] = text
    return items


def _shifted(path: Path, by: int) -> Path:
    return (path[0], int(path[1]) + by, *path[2:]) if by and len(path) > 1 else path


def _read_named(
    document: YamlDocument, place: Path, reference: str, files: Mapping[str, bytes]
) -> tuple[str, LinedCases]:
    """Return the path of a file of cases, and its cases with their places in it."""
    folder, key = parent_folder(document.file), str(place[0])
    path = reference_path(reference, folder)
    if path not in files:
        message = f"the file {reference!r} {OUTSIDE}"
        if path:
            message = missing_file_message(reference, files, folder)
        shown = f"{key}[{place[1]}]" if len(place) > 1 else key
        problem = Problem(message, document.file, document.line_at(place), key=shown)
        raise UnreadableFileError([problem])
    read = _lined if path.lower().endswith(LINES_SUFFIXES) else _listed
    return path, read(files[path], path, key)


def parent_folder(file: str) -> str:
    """Return the folder of a file, "" for the top."""
    parent = str(PurePosixPath(file).parent)
    return "" if parent == "." else parent


def _listed(content: bytes, path: str, key: str) -> LinedCases:
    """Return the cases of a YAML file."""
    document = read_document(decode_text(content, path), path)
    if not isinstance(document.value, list):
        message = f"expected a list of cases, but found {describe_value(document.value)}"
        raise UnreadableFileError([Problem(message, path, 1)])
    return LinedCases(
        cases=document.value,
        lines={(key, *place): line for place, line in document.lines.items()},
        written={(key, *place): text for place, text in document.written.items()},
    )


def _lined(content: bytes, path: str, key: str) -> LinedCases:
    """Return the cases of JSON Lines."""
    cases = read_lined(content, path, key)
    if not cases.cases and not cases.problems:
        cases.problems.append(
            Problem("the file contains no cases; write one per line, with id and input", path)
        )
    only = wrong_content_problem(content, path, Form.CASES)
    if only or cases.problems:
        raise UnreadableFileError([only] if only else cases.problems)
    return cases


def _references(document: YamlDocument) -> dict[int, str]:
    """Return the files of cases that `tests` name, by their place in the list; 0 for the only one."""
    key = _cases_key(document)
    value = document.value[key] if key else None
    items = value if isinstance(value, list) else [value]
    texts = {n: item.strip() for n, item in enumerate(items) if isinstance(item, str)}
    return {
        n: text.removeprefix("file://")
        for n, text in texts.items()
        if text.lower().endswith((*YAML_SUFFIXES, *LINES_SUFFIXES))
    }


def _cases_key(document: YamlDocument) -> str:
    """Return the key of the cases, "" without one."""
    if not isinstance(document.value, dict):
        return ""
    keys = (key for key in document.value if normal_spelling(key) in CASES_KEYS)
    return next((key for key in keys if isinstance(document.value[key], str | list)), "")


MAX_KEY_LENGTH = 200
MAX_TITLE_LENGTH = 300
ALIASES = {
    "id": ("key", "case_id", "eval_id", "test_id"),
    "title": ("name",),
    "criteria": ("expected_outcome", "outcome"),
    "input": ("input_messages",),
    "expected_output": ("expected_messages", "reference_answer"),
    "assertions": ("assert",),
    "output": ("recorded_output",),
}
WITHIN = {"assertions": ("assert",)}


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a suite gives each of its cases: shared input, and its evaluators.

    `is_default` tells that the suite lists no evaluators, so a case's own replace the default.
    """

    root: EvaluatorSpec
    is_default: bool
    shared: SharedInput


def refuse_trials(fields: Fields) -> None:
    """Take how often a file runs each case; more than once is refused, because a run chooses that."""
    key, trials = fields.take("trials")
    count = trials.get("count") if isinstance(trials, Mapping) else trials
    if trials is not None and count != 1:
        times = count if isinstance(count, int) and count > 0 else "N"
        message = (
            "is chosen for each run here, not in a suite; remove it and start the run with "
            f"--repetitions {times}: the run then says in how many cases any and in how many all of them passed"
        )
        fields.refuse(key, message)


def read_cases(
    reading: Reading, path: Path, items: list[Any], defaults: Defaults
) -> tuple[CaseSpec, ...]:
    """Return the cases of a list; ids must be unique; unreadable cases are noted and left out."""
    cases_by_key: dict[str, CaseSpec] = {}
    first_lines: dict[str, int] = {}
    for n, item in enumerate(items):
        at = (*path, n)
        if isinstance(item, str):
            message = (
                f"{item[:100]!r} is not a case; list the cases themselves here, with id and input"
            )
            reading.refuse(at, message)
            continue
        case = _Case(reading, at, item, defaults).content()
        if case is None:
            continue
        if case.key in cases_by_key:
            message = f"the id {case.key!r} is repeated, first on line {first_lines[case.key]}"
            reading.refuse((*at, "id"), f"{message}; give each case its own", case=case.key)
            continue
        cases_by_key[case.key] = case
        first_lines[case.key] = reading.document.line_at(at)
    return tuple(cases_by_key.values())


class _Case:
    """One case of a list."""

    def __init__(self, reading: Reading, path: Path, item: Any, defaults: Defaults) -> None:
        self.reading = reading
        self.path = path
        self.fields = Fields(reading, path, aliases=ALIASES, value=item)
        self.defaults = defaults

    def content(self) -> CaseSpec | None:
        """Return the case, None when it has no usable id."""
        key = self.fields.text("id")
        if not key.strip():
            self.fields.refuse("", "the case has no id; give it one that no other case has")
            return None
        if len(key) > MAX_KEY_LENGTH:
            self.fields.refuse(
                "id", f"the id is longer than {MAX_KEY_LENGTH} characters; shorten it"
            )
        self.fields.case = key
        title = self.fields.text("title")
        if len(title) > MAX_TITLE_LENGTH:
            message = f"the title is longer than {MAX_TITLE_LENGTH} characters; shorten it"
            self.fields.refuse("title", message)
        execution_key, block = self.fields.mapping("execution")
        place = self.fields.place(execution_key)
        inner = Fields(self.reading, place, aliases=WITHIN, value=block, case=key)
        self.reading.check_environment(
            self.fields.rest() | {execution_key: block}, self.path, case=key
        )
        for fields in (self.fields, inner):
            refuse_trials(fields)
        self._refuse_live_turns()
        skips = bool(inner.flag("skip_defaults")) | bool(self.fields.flag("skip_defaults"))
        # Most cases have only these; once they are read nothing is left, which makes further look-ups quick.
        asked = read_input(self.fields, SharedInput() if skips else self.defaults.shared)
        recorded = read_recorded(self.fields)
        evaluators, append = self._evaluators(inner, skips=skips)
        expected, kept = read_expected(self.fields)
        rest = inner.keep_rest()
        own = self.reading.kept.pop(key, {})
        content = CaseSpec(
            key=key,
            title=title,
            tags=self.fields.texts("tags", longest=MAX_CASE_TAG_LENGTH),
            input=asked,
            expected_output=expected,
            expected_outcomes=self.fields.texts("expected_outcomes"),
            criteria=self.fields.text("criteria"),
            recorded_output=recorded,
            evaluators=evaluators,
            evaluators_append=append,
            metadata=self.fields.metadata(
                {"execution": rest} if rest else {}, {"evaluators": own} if own else {}, kept
            ),
        )
        for name in CASE_LISTS:
            if message := too_many(name, getattr(content, name)):
                self.fields.refuse(name, f"{message}. Remove some")
        if any(not outcome.strip() for outcome in content.expected_outcomes):
            self.fields.refuse(
                "expected_outcomes", "an expected outcome is empty; write it or remove it"
            )
        return content

    def _refuse_live_turns(self) -> None:
        turns_key, turns = self.fields.peek("turns")
        if isinstance(turns, list) and any(isinstance(turn, Mapping) for turn in turns):
            message = (
                "these turns cannot be asked one after the other, each with the answer before it; write one "
                "conversation under input, with what the assistant said in it"
            )
            self.fields.refuse(turns_key, message)

    def _evaluators(self, inner: Fields, *, skips: bool) -> tuple[EvaluatorSpec | None, bool]:
        """Return the case's own tree and whether it joins the suite's (`assertions`) or replaces it."""
        own = self._listed(self.fields, "evaluators", ())
        own += self._listed(inner, "evaluators", own)
        joins = not own and not skips and not self.defaults.is_default
        beside = self.defaults.root.children if joins else own
        joined = self._listed(self.fields, "assertions", beside)
        joined += self._listed(inner, "assertions", (*beside, *joined))
        for fields in (self.fields, inner):
            joined += self._listed(fields, "rubrics", (*beside, *joined))
        aggregator_key, options = self.fields.mapping("aggregator")
        place = self.fields.place(aggregator_key)
        aggregator = (
            read_aggregator(self.reading, place, options, case=self.fields.case)
            if options
            else None
        )
        if options and (joins or not (own or joined)):
            message = "comes from the suite, unless the case lists its own evaluators"
            self.fields.refuse(aggregator_key, message)
        if not own and not joined:
            return (make_root(default_children()), False) if skips else (None, False)
        root = make_root((*own, *joined), aggregator)
        check_composite(self.reading, self.path, root, case=self.fields.case)
        return root, joins

    def _listed(
        self, fields: Fields, name: str, beside: tuple[EvaluatorSpec, ...]
    ) -> tuple[EvaluatorSpec, ...]:
        key, items = fields.items(name)
        if not items:
            return ()
        if name == "rubrics":
            items = [{"type": "rubric", "rubrics": items}]
        return read_evaluators(
            self.reading, fields.place(key), items, case=self.fields.case, beside=beside
        )
