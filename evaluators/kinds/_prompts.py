"""Texts with variables, such as `{{input}}` and `{{metadata.customer.id}}`, above all the prompts of judges.

Judges' prompts, the requests of HTTP targets and the values of their headers share one syntax; each has its own
variables. Variables inside a value are not replaced.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from posixpath import normpath
from typing import Any, TypeGuard

from evaluators.kinds._base import Context, Message, Step
from evaluators.kinds._json_paths import PathError, follow, parse_path

# No white space is tried twice: a text with much of it after an open {{ would take cubic time.
VARIABLE = re.compile(r"\{\{\s*+((?:[^{}\s]++|\s++(?!\}\}))*+)\s*+\}\}")
METADATA = "metadata"
METADATA_NAME = re.compile(METADATA + r"(?:[.\[]|\Z)")


class VariableError(ValueError):
    """A variable is unknown, in the wrong place, or has no value in a case."""


def variables_in(text: str) -> tuple[str, ...]:
    """Return the names in double braces, in order."""
    return tuple(VARIABLE.findall(text))


def variables_problem(text: str, known: Collection[str]) -> str:
    """Return what is wrong with the variables of a text, "" for nothing; `known` ones and metadata are allowed."""
    names = dict.fromkeys(variables_in(text))
    unknown = [name for name in names if name not in known and not METADATA_NAME.match(name)]
    if unknown:
        listed = ", ".join((*known, METADATA, f"{METADATA}.<key>"))
        return f"{', '.join(map(in_braces, unknown))} is not a variable; there are {listed}"
    for name in names:
        try:
            parse_path(name)
        except PathError as error:
            return f"{in_braces(name)} is not a path: {error}"
    if "{{" in VARIABLE.sub("", text):
        return "{{ is not closed: write a variable as {{input}}"
    return ""


def in_braces(name: str) -> str:
    """Return a variable as users write it."""
    return f"{{{{{name}}}}}"


def metadata_value(name: str, metadata: Mapping[str, Any]) -> Any:
    """Return the value of `metadata` or `metadata.<path>`; raises PathError if there is none."""
    return follow(name, {METADATA: dict(metadata)})


def value_text(value: Any) -> str:
    """Return a value as part of a text: null as nothing, other values as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)


# A longer pattern of names would take gigabytes to compile.
MAX_PATH_LENGTH = 300
FILE_REFERENCE = re.compile(r"\A(?:file:(?://)?)?(\.{1,2}/\S+|[\w./-]+\.(?:md|txt|prompt|j2))\Z")


def is_reference(value: object) -> TypeGuard[str]:
    """Tell whether a text is the name of a file (`./prompts/tone.md`, `file://tone.md`)."""
    return isinstance(value, str) and bool(FILE_REFERENCE.match(value.strip()))


def reference_path(reference: str, folder: str = "") -> str:
    """Return the path of a reference, relative to a folder of the suite; "" if it leads outside or is too long."""
    match = FILE_REFERENCE.match(reference.strip())
    named = match.group(1) if match else reference.strip()
    path = normpath(f"{folder}/{named}" if folder else named)
    is_usable = len(path) <= MAX_PATH_LENGTH and not path.startswith(("..", "/"))
    return path if is_usable else ""


def named_file(reference: str, files: Mapping[str, bytes]) -> bytes:
    """Return the content of a file; raises ValueError naming a file that is missing."""
    path = reference_path(reference)
    if path not in files:
        raise ValueError(f"the file {reference.strip()!r} is not among the files of the suite")
    return files[path]


def reference_text(reference: str, files: Mapping[str, bytes]) -> str:
    """Return the text of a file; raises ValueError naming a file that is missing or not text."""
    try:
        return named_file(reference, files).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"the file {reference.strip()!r} is not text in UTF-8") from error


def prompt_text(value: str, files: Mapping[str, bytes]) -> str:
    """Return a prompt, from its file if it names one; raises ValueError like reference_text."""
    return reference_text(value, files) if is_reference(value) else value


NOTHING = "(none given)"
NO_TRACE = "(the agent reports no tool calls)"
NO_CALLS = "(no tool was called)"

ANSWER, QUESTION, CONVERSATION = "candidate_answer", "question", "input"
REFERENCE, TOOLS = "reference_answer", "tool_calls"
EVALUATOR_RESULTS = "evaluator_results"
# Names that users know from other tools, such as AgentV.
ALIASES = {
    **{"output": ANSWER, "answer": ANSWER, "expected_output": REFERENCE},
    **{"expected_messages": REFERENCE, "input_messages": CONVERSATION},
    **{"output_messages": "messages", "expected_outcome": "criteria", "outcome": "criteria"},
    **{"note": "metadata.note", "metadata_json": "metadata"},
    "EVALUATOR_RESULTS_JSON": EVALUATOR_RESULTS,
}
SHOWS_OUTPUT = {ANSWER, "output", "answer", TOOLS}


@dataclass(frozen=True, slots=True)
class FilledPrompt:
    """A prompt with its variables replaced: the instructions, and the texts they quote."""

    instructions: str
    quoted: tuple[tuple[str, str], ...]


def prompt_problem(prompt: str, extra: Collection[str] = ()) -> str:
    """Return what is wrong with the variables of a prompt, "" for nothing; `extra` ones are allowed too."""
    names = {*extra, *_QUOTED, *_TRUSTED}
    aliases = {
        alias for alias, name in ALIASES.items() if name in names or METADATA_NAME.match(name)
    }
    return variables_problem(prompt, (*extra, *sorted((names | aliases) - {*extra})))


def fill(
    prompt: str,
    context: Context,
    *,
    always: tuple[str, ...] = (),
    extra: Mapping[str, str] | None = None,
) -> FilledPrompt:
    """Return the prompt with its variables replaced; those in `always` are quoted in any case.

    `extra` holds more texts to quote, by variable.
    """
    quoted: dict[str, str] = {}

    def put(name: str) -> str:
        name = ALIASES.get(name, name)
        if name in _TRUSTED:
            return _TRUSTED[name](context) or NOTHING
        text = extra[name] if extra and name in extra else _untrusted(name, context)
        if not text:
            return NOTHING
        quoted[name] = text
        return f"[quoted text: {name}]"

    instructions = VARIABLE.sub(lambda match: put(match[1]), prompt)
    for name in always:
        put(name)
    return FilledPrompt(instructions, tuple(quoted.items()))


def _untrusted(name: str, context: Context) -> str:
    if name in _QUOTED:
        return _QUOTED[name](context)
    try:
        value = metadata_value(name, context.case.metadata)
    except PathError:
        return ""
    return "" if value == {} else value_text(value)


def last_question(context: Context) -> str:
    """Return the last message of the user, the whole conversation if it has none."""
    questions = [turn.content for turn in context.case.input if turn.role == "user"]
    return questions[-1] if questions else _conversation(context)


def _conversation(context: Context) -> str:
    return _turns(context.case.input)


def _turns(turns: tuple[Message, ...]) -> str:
    if len(turns) == 1 and turns[0].role == "user":
        return turns[0].content
    return "\n\n".join(f"{turn.role}: {turn.content}" for turn in turns)


def _tool_calls(context: Context) -> str:
    if context.output.trace is None:
        return NO_TRACE
    calls = [step for step in context.output.trace if step.type == "tool"]
    return "\n".join(f"{n}. {_call(step)}" for n, step in enumerate(calls, 1)) or NO_CALLS


def _call(step: Step) -> str:
    facts = {"tool": step.name, "input": step.input, "output": step.output, "error": step.error}
    return value_text({name: value for name, value in facts.items() if value not in (None, "")})


def _listed(texts: tuple[str, ...]) -> str:
    return "\n".join(f"{n}. {text}" for n, text in enumerate(texts, 1))


_QUOTED: Mapping[str, Callable[[Context], str]] = {
    QUESTION: last_question,
    CONVERSATION: _conversation,
    ANSWER: lambda context: context.output.text or "(the answer is empty)",
    REFERENCE: lambda context: context.case.expected_output,
    TOOLS: _tool_calls,
    "messages": lambda context: _turns(context.output.messages),
}
_TRUSTED: Mapping[str, Callable[[Context], str]] = {
    "criteria": lambda context: context.case.criteria,
    "expected_outcomes": lambda context: _listed(context.case.expected_outcomes),
}


WRITTEN_AS = ("prompt", "value", "criteria")
TEXTS = ("text", "value")
FILES = ("file", "path")
PROGRAMS = ("command", "script")


def lists_criteria(mapping: Mapping[str, Any]) -> bool:
    """Tell whether the settings of a judge are a rubric: criteria in a list."""
    return "rubrics" in mapping or any(
        isinstance(mapping.get(name), list) for name in ("value", "criteria")
    )


def read_prompt(mapping: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with the prompt under its own name.

    Raises ValueError for two prompts, and for a prompt written by a program.
    """
    settings = dict(mapping)
    names = [name for name in WRITTEN_AS if settings.get(name) is not None]
    if len(names) > 1:
        raise ValueError(f"{names[0]} and {names[1]} both say what to judge by; keep one of them")
    for name in names:
        settings["prompt"] = _text(settings.pop(name))
    return settings


def _text(prompt: Any) -> Any:
    """Return the text of a prompt or the name of its file."""
    if not isinstance(prompt, Mapping):
        return prompt
    if any(name in prompt for name in PROGRAMS):
        raise ValueError(
            "prompt: a prompt written by a program is not supported; write a text or name a file"
        )
    texts = [prompt[name] for name in TEXTS if isinstance(prompt.get(name), str)]
    files = [prompt[name] for name in FILES if isinstance(prompt.get(name), str)]
    if len(texts) + len(files) != 1 or len(prompt.keys() - {"type"}) != 1:
        raise ValueError("prompt: is not a text; write a text, the name of a file or {file: name}")
    return texts[0] if texts else _reference(files[0])


def _reference(name: str) -> str:
    return name if name.startswith((".", "file:")) else f"./{name}"


LOOKS_LIKE_VARIABLE = re.compile(r"\{\{\s*[A-Za-z_][\w.-]*\s*(?:\|[^{}]*)?\}\}")
# The match of expected_output for each operator of a text check; contains for all others.
MATCHES = {"equals": "exact", "regex": "regex"}
MAX_SHOWN_LENGTH = 60


@dataclass(frozen=True, slots=True)
class LiteralVariable:
    """A setting with a variable that is not replaced, and what the check does with it."""

    setting: str
    text: str


def literal_variable(kind: str, config: Mapping[str, Any]) -> LiteralVariable | None:
    """Return the first variable that a text check, or a check of a hybrid judge, takes literally."""
    for setting, operator, text in _searches(kind, config):
        if variable := LOOKS_LIKE_VARIABLE.search(text):
            problem = (
                f"looks for “{variable[0][:MAX_SHOWN_LENGTH]}” literally, as text checks do not replace variables; "
                "to look for the expected output of each case, use "
                f"type expected_output with match: {MATCHES.get(operator, 'contains')}"
            )
            return LiteralVariable(setting, problem)
    return None


def _searches(kind: str, config: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield setting, operator and text of each search; incomplete settings are skipped."""
    if kind == "text_check":
        for name, text in _texts(config):
            yield name, str(config.get("operator")), text
    checks = config.get("checks") if kind == "hybrid_judge" else None
    for check in checks if isinstance(checks, list | tuple) else ():
        if isinstance(check, Mapping):
            for _, text in _texts(check):
                yield "checks", str(check.get("type")), text


def _texts(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    values = settings.get("values")
    several = values if isinstance(values, list | tuple) else ()
    for name, text in (("value", settings.get("value")), *(("values", value) for value in several)):
        if isinstance(text, str):
            yield name, text
