"""Files of other tools: one module each, registered here. A tool is known by what its files hold."""

from __future__ import annotations

from runs.formats.lines import REMEDIES, Form
from runs.formats.tools import (
    braintrust,
    inspect_ai,
    langfuse,
    langsmith,
    openai_evals,
    pae,
    phoenix,
    promptfoo,
    promptfoo_results,
)
from runs.formats.tools._base import ToolFile, ToolFormat, open_file
from runs.specs.problems import Problem, UnreadableFileError

MODULES = (
    *(promptfoo, promptfoo_results, inspect_ai, openai_evals),
    *(langsmith, langfuse, phoenix, braintrust, pae),
)
FORMATS: tuple[ToolFormat, ...] = tuple(each for module in MODULES for each in module.FORMATS)

# The tools whose suites and whose results can be read, as a sentence lists them.
TOOLS_OF_SUITES = ", ".join(dict.fromkeys(each.tool for each in FORMATS if each.read_suites))
TOOLS_OF_RESULTS = ", ".join(dict.fromkeys(each.tool for each in FORMATS if each.read_results))


def recognise(file: ToolFile) -> ToolFormat | None:
    """Return the format of a file, None if no tool is known to write such a file.

    Raises UnreadableFileError where two match, because nobody should have to guess whose file it is.
    """
    found = [each for each in FORMATS if each.matches(file)]
    if len(found) > 1:
        labels = " or ".join(each.label for each in found)
        message = f"the file may be {labels}; remove the keys of one of them"
        raise UnreadableFileError([Problem(message, file.path)])
    return found[0] if found else None


def refuse_results(content: bytes, file: str) -> None:
    """Raise UnreadableFileError for a table of cases that is, in truth, what another tool measured."""
    opened = open_file(file, content)
    tool = recognise(opened) if opened else None
    if tool and not tool.read_suites:
        remedy = tool.refusal or REMEDIES[Form.RESULTS]
        message = f"the file is {tool.label}, no cases; {remedy}"
        raise UnreadableFileError([Problem(message, file)])
