"""The generations of suite files: what the same words meant in AgentV's, and what cannot be done here.

Evalsite's own files list their evaluators under `evaluators` at the top, or set what only they have. AgentV's
early files hold `evalcases`; the later ones hold `tests`, which they grade by `assertions`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import Enum
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

from evaluators.kinds._prompts import VARIABLE, in_braces, value_text, variables_in
from evaluators.kinds._refusals import normal_spelling
from evaluators.kinds.text_check import TRIMMABLE
from evaluators.reading.yaml import Path
from runs.formats.lines import CASES_KEYS
from runs.formats.shared_texts import include, include_all
from runs.formats.yaml import YamlDocument
from runs.specs.problems import Problem, UnreadableFileError

OWN_KEYS = {"evaluators", "aggregator", "policy", "verdicts", "judge", "profile", "title"}
AGENTV_KEYS = {"dataset", "target", "targets", "providers", "prompts", "workspace", "experiment"}
EARLY_KEYS = {"evalcases", "eval_cases"}
EARLY_CASE_KEYS = {"input_messages", "expected_messages", "expected_outcome"}
AGENTV_FILE = re.compile(r"(\A|\.)eval\.ya?ml\Z", re.IGNORECASE)
# Cases of one file are written alike.
CASES_READ = 20
# The score at which an evaluator passes there.
PASSING_SCORE = 0.8
ENVIRONMENT_VARIABLE = re.compile(r"\$\{\{\s*[A-Za-z_][A-Za-z0-9_]*\s*\}\}")


class Generation(Enum):
    """Who wrote a suite file: Evalsite, or AgentV before or after its cases were called tests."""

    OWN = "own"
    EARLY = "early"
    LATER = "later"


def find_generation(value: Any, file: str) -> Generation:
    """Return the generation of a suite file by its keys and its name; Evalsite's own without any sign."""
    if not isinstance(value, Mapping):
        return Generation.OWN
    suite = {normal_spelling(str(key)): part for key, part in value.items()}
    if suite.keys() & OWN_KEYS:
        return Generation.OWN
    cases = {key for case in _first_cases(suite) for key in map(normal_spelling, map(str, case))}
    if suite.keys() & EARLY_KEYS or cases & EARLY_CASE_KEYS:
        return Generation.EARLY
    execution = suite.get("execution")
    names_target = isinstance(execution, Mapping) and {"target", "targets"} & execution.keys()
    is_named = AGENTV_FILE.search(PurePosixPath(file).name)
    is_theirs = bool(suite.keys() & AGENTV_KEYS or names_target or is_named)
    return Generation.LATER if is_theirs else Generation.OWN


def _first_cases(suite: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for name in CASES_KEYS:
        cases = suite.get(name)
        if isinstance(cases, list):
            yield from (case for case in islice(cases, CASES_READ) if isinstance(case, Mapping))


def with_meaning(
    generation: Generation, kind: str, preset: Mapping[str, Any], settings: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the settings of an evaluator in a file, with what its generation means by their words.

    `preset` is what the name of its kind in the file sets by itself. AgentV compares texts without the white
    space at their ends, and its later files compare arguments exactly. There a required field is one that may
    not be missing; it fails no result. Execution metrics score the share of limits kept; token usage scores 0
    for any breach, as here.
    """
    if generation is Generation.OWN:
        return settings
    if kind == "text_check" and settings.get("operator") in TRIMMABLE:
        return {"trim": True, **settings}
    if kind == "tool_trajectory" and generation is Generation.LATER:
        return {"args_match": "exact", **settings}
    if kind == "execution_metrics" and not preset and not settings.get("proportional"):
        return {"share_kept": True, **settings}
    if kind == "field_accuracy" and isinstance(settings.get("fields"), list):
        return {**settings, "fields": [_field(field) for field in settings["fields"]]}
    return settings


def _field(field: Any) -> Any:
    if not isinstance(field, Mapping) or not isinstance(field.get("required"), bool):
        return field
    rest = {key: value for key, value in field.items() if key != "required"}
    return rest if field["required"] else {"optional": True, **rest}


def environment_variables(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[Any, str]]:
    """Yield the place of each text with a `${{ VARIABLE }}`, and the first such variable in it."""
    if isinstance(value, str):
        if match := ENVIRONMENT_VARIABLE.search(value):
            yield path, match.group()
        return
    parts = enumerate(value) if isinstance(value, list) else ()
    for key, part in value.items() if isinstance(value, Mapping) else parts:
        yield from environment_variables(part, (*path, key))


INPUT, EXPECTED_OUTPUT, VARS = "input", "expected_output", "vars"
OF_THE_CASE = (INPUT, EXPECTED_OUTPUT)
PROMPT_FILE = "file://"
USUAL_PROMPT = f"{{{{ {INPUT} }}}}"
ASSERTIONS = ("assert", "assertions")
# What a `default_test` gives to each case.
SHARED = (VARS, ASSERTIONS[0])


def with_variables(document: YamlDocument) -> YamlDocument:
    """Return a later file of AgentV with the variables of its cases put where they are used.

    In the newest a prompt is filled in with the `vars` of each case. The input becomes the filled prompt, `input`
    itself where the prompt is nothing else; `expected_output` becomes that of the case; the others are put
    into the values of its assertions and kept with its metadata. Values keep their lines. Raises
    UnreadableFileError for prompts that are not one text, and for a variable that a case does not have.
    """
    names = {normal_spelling(str(key)): key for key in document.value}
    cases_key = next((names[name] for name in CASES_KEYS if name in names), "")
    cases = document.value.get(cases_key)
    shared_key = names.get("default_test", "")
    shared = document.value.get(shared_key)
    has_more = bool("prompts" in names or shared or {"imports"} & names.keys())
    if not isinstance(cases, list) or not (has_more or any(map(_has_variables, cases))):
        return document
    problems: list[Problem] = []

    def refuse(path: Path, message: str) -> None:
        place = document.file_at(path), document.line_at(path)
        problems.append(Problem(message, *place, key=str(path[0])))

    prompts_key = names.get("prompts", "")
    prompt = _prompt(document.value.get(prompts_key)) if prompts_key else USUAL_PROMPT
    if not prompt:
        message = (
            "names a file, and a program that writes prompts is not run at import; write the prompt as text here"
            if PROMPT_FILE in str(document.value.get(prompts_key))
            else "is not one text; a case has one input, so make a suite for each prompt, or put what they share "
            "into the target"
        )
        refuse((prompts_key,), message)
    if shared is not None and not _is_shared(shared):
        refuse(
            (shared_key,),
            "is not a mapping with vars, a mapping, and assert, a list; write it so here",
        )
        shared = None
    if "imports" in names:
        refuse((names["imports"],), "is not read; name the files of cases under tests")
    filled = []
    for n, own in enumerate(cases):
        case = _with_shared(own, shared or {})
        lacking = _lacking(prompt, case) if isinstance(case, Mapping) else ""
        if lacking:
            refuse((cases_key, n), f"the prompt needs {lacking}, which the vars of this case lack")
        filled.append(_filled(prompt, case) if isinstance(case, Mapping) else case)
    if problems:
        raise UnreadableFileError(problems)
    value = {key: part for key, part in document.value.items() if key != prompts_key}
    if rest := {key: part for key, part in (shared or {}).items() if key not in SHARED}:
        value[shared_key] = rest
    else:
        value.pop(shared_key, None)
    return replace(
        document,
        value={**value, cases_key: filled},
        lines={_moved(path, cases_key): line for path, line in document.lines.items()},
        written={_moved(path, cases_key): text for path, text in document.written.items()},
    )


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


def _has_variables(case: Any) -> bool:
    return isinstance(case, Mapping) and isinstance(case.get(VARS), Mapping)


def _prompt(prompts: Any) -> str:
    """Return the one prompt of a file, "" if it is not one text."""
    given = prompts if isinstance(prompts, list) else [prompts]
    is_text = len(given) == 1 and isinstance(given[0], str) and not given[0].startswith(PROMPT_FILE)
    return given[0] if is_text else ""


def _lacking(prompt: str, case: Mapping[str, Any]) -> str:
    """Return the first variable of the prompt that a case with variables does not have, "" for none."""
    known = case.get(VARS) if _has_variables(case) else None
    has_input = any(name in case for name in (INPUT, "input_messages"))
    wanted = () if known is None or has_input else variables_in(prompt)
    return next((in_braces(name) for name in wanted if name not in (known or {})), "")


def _filled(prompt: str, case: Mapping[str, Any]) -> dict[str, Any]:
    if not _has_variables(case):
        return dict(case)
    variables: Mapping[str, Any] = case[VARS]
    filled = {name: part for name, part in case.items() if name != VARS}
    is_input = variables_in(prompt) == (INPUT,) and not VARIABLE.sub("", prompt).strip()
    own = {
        INPUT: variables.get(INPUT) if is_input else _replaced(prompt, variables),
        EXPECTED_OUTPUT: variables.get(EXPECTED_OUTPUT),
    }
    filled = {name: part for name, part in own.items() if part is not None} | filled
    others = {name: part for name, part in variables.items() if name not in OF_THE_CASE}
    if not others:
        return filled
    for name in ASSERTIONS:
        if isinstance(filled.get(name), list):
            filled[name] = [_with_values(part, others) for part in filled[name]]
    metadata = filled.get("metadata")
    if metadata is None or isinstance(metadata, Mapping):
        filled["metadata"] = {VARS: others, **(metadata or {})}
    return filled


def _with_values(part: Any, variables: Mapping[str, Any]) -> Any:
    """Return an assertion with the variables in its value and in those within it."""
    if isinstance(part, str):
        return _replaced(part, variables)
    if not isinstance(part, Mapping):
        return part
    nested: dict[str, Any] = {
        name: [_with_values(item, variables) for item in part[name]]
        for name in ASSERTIONS
        if isinstance(part.get(name), list)
    }
    value = part.get("value")
    if isinstance(value, str):
        nested["value"] = _replaced(value, variables)
    elif isinstance(value, list):
        nested["value"] = [_with_values(item, variables) for item in value]
    return {**part, **nested}


def _replaced(text: str, variables: Mapping[str, Any]) -> str:
    """Return a text with these variables filled in; others stay."""

    def put(match: re.Match[str]) -> str:
        return include(value_text(variables[match[1]])) if match[1] in variables else match[0]

    return include(VARIABLE.sub(put, text))


def _moved(path: Path, cases_key: str) -> Path:
    if len(path) > 3 and path[0] == cases_key and path[2] == VARS and path[3] in OF_THE_CASE:
        return (*path[:2], *path[3:])
    return path
