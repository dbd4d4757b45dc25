"""Prompts and variables of AgentV's newest files: every prompt, filled in with the `vars` of a case, is an input.

A prompt is a text, a conversation, a file (`file://…`, or `file`), or what a program prints (`function`, `command`):
it runs once, and the variables of each case are put into what it printed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import chain, product
from typing import Any, TypeVar

from evaluators.kinds._json_paths import PathError, follow
from evaluators.kinds._prompts import (
    VARIABLE,
    in_braces,
    reference_path,
    value_text,
    variables_in,
)
from evaluators.kinds._refusals import normal_spelling
from evaluators.kinds.script.program import INTERPRETERS
from evaluators.reading.json import read_json
from evaluators.reading.yaml import Path
from runs.formats.bundles import missing_file_message
from runs.formats.lines import CASES_KEYS
from runs.formats.prompt_programs import RunProgram, program_output
from runs.formats.reading import MAX_PROBLEMS
from runs.formats.scenarios import MAX_CASES
from runs.formats.shared_texts import VALUES_OF_A_PLACE, include, include_all, include_values
from runs.formats.suite_cases import parent_folder
from runs.formats.yaml import YamlDocument, decode_text
from runs.specs.problems import Problem, UnreadableFileError

PROMPTS, DEFAULT_TEST = "prompts", "default_test"
INPUT, EXPECTED_OUTPUT, VARS = "input", "expected_output", "vars"
OF_THE_CASE = (INPUT, EXPECTED_OUTPUT)
FILE = "file://"
ASSERTIONS = ("assert", "assertions")
# What a `default_test` gives to each case.
SHARED = (VARS, ASSERTIONS[0])
# Texts of a case in which variables may stand.
FILLED = ("criteria", "description", EXPECTED_OUTPUT)
PROGRAMS = ("function_file", "function", "command")
WRITTEN = ("messages", "prompt", "raw")
TEMPLATE_CODE = re.compile(r"\{[%#]")
WRITE = (
    "write it as a text, a list of messages, file://… or a mapping with file, function or command"
)
MAX_NAME, MAX_PROMPTS = 48, 1_000

Fact = TypeVar("Fact")


@dataclass(frozen=True, slots=True)
class _Prompt:
    """One prompt: a text or messages, with the name that its cases get where it is one of several."""

    name: str
    content: Any


USUAL = _Prompt("", in_braces(INPUT))


@dataclass(frozen=True, slots=True)
class FilledDocument:
    """A file with its inputs, the paths of the files that were read for them, and notes."""

    document: YamlDocument
    read_with: tuple[str, ...] = ()
    notes: tuple[Problem, ...] = ()


def with_variables(
    document: YamlDocument, files: Mapping[str, bytes], run: RunProgram
) -> FilledDocument:
    """Return a later file of AgentV with the variables of its cases put where they are used.

    The input of a case becomes the filled prompt, the value of a variable itself where the prompt is nothing else;
    several prompts make a case each. `expected_output` becomes that of the case; the other variables are put into the
    texts and assertions of the case and kept with its metadata. Values keep their lines. Raises UnreadableFileError
    with every problem: a prompt that cannot be read, a variable that a case does not have.
    """
    filling = _Filling(document, files, run)
    cases = document.value.get(filling.cases_key)
    has_more = filling.names.keys() & {PROMPTS, DEFAULT_TEST, "imports"}
    if not isinstance(cases, list) or not (has_more or any(map(_has_variables, cases))):
        return FilledDocument(document)
    filled = filling.fill(cases)
    if filling.problems:
        raise UnreadableFileError(filling.problems)
    return FilledDocument(filled, tuple(filling.read_with), tuple(filling.notes))


@dataclass(slots=True)
class _Filling:
    """One file while its prompts are read and filled in."""

    document: YamlDocument
    files: Mapping[str, bytes]
    run: RunProgram
    problems: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)
    read_with: dict[str, None] = field(default_factory=dict)
    # The keys of the file as they are written, by their usual spelling, and that of its cases.
    names: dict[str, Any] = field(init=False)
    cases_key: str = field(init=False)

    def __post_init__(self) -> None:
        self.names = {normal_spelling(str(key)): key for key in self.document.value}
        self.cases_key = next((self.names[name] for name in CASES_KEYS if name in self.names), "")

    def fill(self, cases: list[Any]) -> YamlDocument:
        names, document = self.names, self.document
        prompts_key, shared_key = names.get(PROMPTS, ""), names.get(DEFAULT_TEST, "")
        prompts = list(self._prompts(prompts_key)) if prompts_key else [USUAL]
        shared = document.value.get(shared_key)
        if shared is not None and not _is_shared(shared):
            self._refuse(
                (shared_key,),
                "is not a mapping with vars, a mapping, and assert, a list; write it so here",
            )
            shared = None
        if "imports" in names:
            self._refuse((names["imports"],), "is not read; name the files of cases under tests")
        filled: list[Any] = []
        places: list[list[int]] = []
        for n, case in enumerate(cases):
            before = len(filled)
            for each in _expanded(_with_shared(case, shared or {})):
                filled += (
                    self._case(prompt, each, n, is_one=len(prompts) == 1) for prompt in prompts
                )
                if len(filled) > max(MAX_CASES, len(cases)):
                    message = f"the prompts and lists of vars make more than {MAX_CASES:,} cases; give a part of them"
                    self._refuse((self.cases_key, n), message)
                    return document
            places.append(list(range(before, len(filled))))
        value = {key: part for key, part in document.value.items() if key != prompts_key}
        if rest := {key: part for key, part in (shared or {}).items() if key not in SHARED}:
            value[shared_key] = rest
        else:
            value.pop(shared_key, None)
        return replace(
            document,
            value={**value, self.cases_key: filled},
            lines=self._moved(document.lines, places),
            written=self._moved(document.written, places),
            elsewhere=self._moved(document.elsewhere, places),
        )

    def _moved(self, facts: Mapping[Path, Fact], places: list[list[int]]) -> dict[Path, Fact]:
        """Return what is known about places of the file by the places where their values are now."""
        moved: dict[Path, Fact] = {}
        cases_key = self.cases_key
        for path, fact in facts.items():
            if path[:1] != (cases_key,) or len(path) == 1:
                moved[path] = fact
                continue
            rest = path[2:]
            if len(rest) > 1 and rest[0] == VARS and rest[1] in OF_THE_CASE:
                rest = rest[1:]
            now_at = places[int(path[1])]
            include_values(VALUES_OF_A_PLACE * (len(now_at) - 1))
            moved |= {(cases_key, place, *rest): fact for place in now_at}
        return moved

    def _refuse(self, path: Path, message: str) -> None:
        place = self.document.file_at(path), self.document.line_at(path)
        key = (
            f"{path[0]}[{path[1]}]" if path[0] == self.names.get(PROMPTS) and path[1:] else path[0]
        )
        self.problems.append(Problem(message, *place, key=str(key)))
        if len(self.problems) >= MAX_PROBLEMS:
            raise UnreadableFileError(self.problems)

    def _prompts(self, key: str) -> Iterator[_Prompt]:
        given = self.document.value[key]
        listed = given if isinstance(given, list) and not _is_chat(given) else [given]
        if not listed or len(listed) > MAX_PROMPTS:
            self._refuse((key,), f"needs one prompt, and at most {MAX_PROMPTS:,}; {WRITE}")
            return
        for n, entry in enumerate(listed):
            place = (key, n) if listed is given else (key,)
            try:
                prompt = self._prompt(entry, place)
                _check_templates(prompt.content)
            except ValueError as error:
                self._refuse(place, str(error))
            else:
                yield prompt

    def _prompt(self, entry: Any, place: Path) -> _Prompt:
        """Return the prompt of an entry; raises ValueError with the reason."""
        if isinstance(entry, str) and entry.startswith(FILE):
            return _Prompt(entry.removeprefix(FILE), self._file_text(entry))
        if isinstance(entry, str) and entry.strip():
            return _Prompt(f"prompt-{_digest(entry)}", entry)
        if _is_chat(entry):
            return _Prompt(f"chat-{_digest(entry)}", entry)
        values = {normal_spelling(str(key)): part for key, part in _mapping(entry).items()}
        name = str(values.get("id") or "").strip()
        for key in PROGRAMS:
            if key in values:
                command = _command(key, values[key])
                usual = f"function-{_digest(command)}" if key == "command" else command[0]
                return _Prompt(name or usual, self._output(command, place))
        if isinstance(values.get("file"), str):
            return _Prompt(
                name or values["file"].removeprefix(FILE), self._file_text(values["file"])
            )
        content = next((values[key] for key in WRITTEN if key in values), None)
        if content is None and "role" in values:
            content = [entry]
        if not (isinstance(content, str) and content.strip()) and not _is_chat(content):
            raise ValueError(f"is no prompt; {WRITE}")
        kind = "prompt" if isinstance(content, str) else "chat"
        return _Prompt(name or f"{kind}-{_digest(content)}", content)

    def _file_text(self, reference: str) -> str:
        """Return the text of a file; raises ValueError for one that is missing or is a program."""
        named, folder = reference.removeprefix(FILE), parent_folder(self.document.file)
        path = reference_path(named, folder)
        if named.lower().endswith(tuple(INTERPRETERS)):
            raise ValueError(
                f"{named!r} is a program; where it prints the prompt, write it as {{function: {named}}}"
            )
        if not path or path not in self.files:
            raise ValueError(missing_file_message(named, self.files, folder))
        self.read_with[path] = None
        return decode_text(self.files[path], path).replace("\r\n", "\n")

    def _output(self, command: list[str], place: Path) -> Any:
        """Return the prompt that a program prints; raises ValueError with the reason."""
        folder = parent_folder(self.document.file)
        printed = program_output(command, folder, self.files, self.run).strip()
        self.read_with |= dict.fromkeys(
            path for part in command if (path := reference_path(part, folder)) in self.files
        )
        content = _printed_prompt(printed)
        if content is None:
            raise ValueError(
                f"the program {' '.join(command)} printed neither a text nor messages with role and content"
            )
        message = f"the program {' '.join(command)} was run and wrote this prompt; import the file again after it changed"
        where = self.document.file, self.document.line_at(place)
        self.notes.append(Problem(message, *where, key=str(place[0])))
        return content

    def _case(self, prompt: _Prompt, case: Any, n: int, *, is_one: bool) -> Any:
        if not isinstance(case, Mapping):
            return case
        variables = dict(case[VARS]) if _has_variables(case) else {}
        if INPUT in case:
            variables[INPUT] = case[INPUT]
        is_usual = prompt is USUAL and VARS not in case
        is_odd = VARS in case and not _has_variables(case)
        if is_usual or is_odd or case.keys() & {"turns", "input_messages"}:
            return dict(case)
        lacking = (name for name in _variables(prompt.content) if _lacks(variables, name))
        if name := next(lacking, ""):
            message = f"the prompt needs {in_braces(name)}, which the vars of this case lack"
            self._refuse((self.cases_key, n), message)
        filled = _filled(prompt, case, variables)
        if is_one:
            return filled
        name, tags = _safe(prompt.name), filled.get("tags", [])
        filled |= {"id": f"{filled['id']}__prompt_{name}"} if "id" in filled else {}
        filled |= {"tags": [*tags, name]} if isinstance(tags, list) else {}
        include_all(filled)
        return filled


def _is_shared(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and isinstance(value.get(VARS, {}), Mapping)
        and isinstance(value.get(ASSERTIONS[0], []), list)
    )


def _with_shared(case: Any, shared: Mapping[str, Any]) -> Any:
    """Return a case with the variables and assertions that all cases have."""
    if not isinstance(case, Mapping):
        return case
    name = next((name for name in ASSERTIONS if name in case), ASSERTIONS[0])
    own_variables, own_assertions = case.get(VARS, {}), case.get(name, [])
    whole = dict(case)
    if VARS in shared and isinstance(own_variables, Mapping):
        whole[VARS] = {**shared[VARS], **own_variables}
    if ASSERTIONS[0] in shared and isinstance(own_assertions, list):
        whole[name] = [*own_assertions, *shared[ASSERTIONS[0]]]
    include_all(whole)
    return whole


def _expanded(case: Any) -> Iterator[Any]:
    """Yield a case for each value of a variable that is a list of texts, as AgentV runs it."""
    listed = {
        name: value
        for name, value in (case[VARS].items() if _has_variables(case) else ())
        if isinstance(value, list) and value and isinstance(value[0], str)
    }
    for k, values in enumerate(product(*listed.values())):
        each = case
        if listed:
            each = {**case, VARS: {**case[VARS], **dict(zip(listed, values, strict=True))}}
            each |= {"id": f"{case['id']}-{k + 1}"} if k and "id" in case else {}
            include_all(each)
        yield each


def _has_variables(case: Any) -> bool:
    return isinstance(case, Mapping) and isinstance(case.get(VARS), Mapping)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _is_chat(value: Any) -> bool:
    return (
        isinstance(value, list) and bool(value) and all("role" in _mapping(each) for each in value)
    )


def _digest(value: Any) -> str:
    """Return the name that AgentV gives to a prompt without one, by which its results find their cases."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _command(key: str, program: Any) -> list[str]:
    """Return a program as a command; raises ValueError with the reason."""
    if isinstance(program, str) and program.strip():
        words = program.split() if key == "command" else [program]
    else:
        words = program if isinstance(program, list) else []
    if not words or not all(isinstance(word, str) for word in words):
        raise ValueError(f"{key} is no program; write the name of its file, or a command as a list")
    return [word.removeprefix(FILE) for word in words]


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name.strip()).strip("-")[:MAX_NAME] or _digest(name)


def _printed_prompt(printed: str) -> Any:
    """Return the prompt in what a program printed: a text, or JSON of one; None for anything else."""
    try:
        value = read_json(printed)
    except ValueError:
        return printed or None
    given = _mapping(value)
    for part in (value, given.get("prompt"), given.get("raw"), given.get("messages")):
        if _is_chat(part) or (isinstance(part, str) and part.strip()):
            return part
    return None


def _texts(content: Any) -> Iterator[str]:
    """Yield every text in a prompt."""
    if isinstance(content, str):
        yield content
    parts = content.values() if isinstance(content, Mapping) else content
    if isinstance(content, Mapping | list):
        yield from chain.from_iterable(map(_texts, parts))


def _variables(content: Any) -> Iterator[str]:
    return chain.from_iterable(map(variables_in, _texts(content)))


def _check_templates(content: Any) -> None:
    if any(TEMPLATE_CODE.search(text) for text in _texts(content)):
        raise ValueError(
            "uses {% … %}, and only variables are filled in here; write it with variables"
        )


def _value(variables: Mapping[str, Any], name: str) -> Any:
    """Return the value of a variable, also of `vars.name` and of a path into one; raises PathError."""
    if name in variables:
        return variables[name]
    return follow(name.removeprefix(f"{VARS}."), variables)


def _lacks(variables: Mapping[str, Any], name: str) -> bool:
    try:
        _value(variables, name)
    except PathError:
        return True
    return False


def _replaced(value: Any, variables: Mapping[str, Any]) -> Any:
    """Return a value with these variables in its texts, in place of a text that is nothing else; others stay."""
    if isinstance(value, list):
        return [_replaced(part, variables) for part in value]
    if isinstance(value, Mapping):
        return {key: _replaced(part, variables) for key, part in value.items()}
    if not isinstance(value, str):
        return value
    only = VARIABLE.fullmatch(value.strip())
    if only and not _lacks(variables, only[1]):
        whole = _value(variables, only[1])
        include(value_text(whole))
        return whole

    def put(match: re.Match[str]) -> str:
        is_known = not _lacks(variables, match[1])
        return include(value_text(_value(variables, match[1]))) if is_known else match[0]

    return include(VARIABLE.sub(put, value))


def _filled(
    prompt: _Prompt, case: Mapping[str, Any], variables: Mapping[str, Any]
) -> dict[str, Any]:
    expected = variables.get(EXPECTED_OUTPUT)
    filled = {EXPECTED_OUTPUT: expected} if expected is not None else {}
    filled |= {name: part for name, part in case.items() if name not in (VARS, INPUT)}
    filled[INPUT] = _replaced(prompt.content, variables)
    others = {name: part for name, part in variables.items() if name not in OF_THE_CASE}
    # Criteria often repeat the expected output. A conversation cannot be part of a sentence, so it is left out.
    known = others | ({EXPECTED_OUTPUT: expected} if isinstance(expected, str) else {})
    for name in FILLED:
        if isinstance(case.get(name), str):
            filled[name] = _replaced(case[name], known)
    for name in ASSERTIONS:
        if isinstance(filled.get(name), list):
            filled[name] = [_with_values(part, known) for part in filled[name]]
    metadata = filled.get("metadata")
    if others and (metadata is None or isinstance(metadata, Mapping)):
        filled["metadata"] = {VARS: others, **(metadata or {})}
    return filled


def _with_values(part: Any, variables: Mapping[str, Any]) -> Any:
    """Return an assertion with the variables in its value and in those within it."""
    if isinstance(part, str):
        return _text(part, variables)
    if not isinstance(part, Mapping):
        return part
    nested: dict[str, Any] = {
        name: [_with_values(item, variables) for item in part[name]]
        for name in ASSERTIONS
        if isinstance(part.get(name), list)
    }
    value = part.get("value")
    if isinstance(value, str):
        only = _replaced(value, variables)
        nested["value"] = only if isinstance(only, list) else _text(value, variables)
    elif isinstance(value, list):
        nested["value"] = _replaced(value, variables)
    return {**part, **nested}


def _text(text: str, variables: Mapping[str, Any]) -> str:
    return value_text(_replaced(text, variables))
