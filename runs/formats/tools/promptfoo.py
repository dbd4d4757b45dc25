"""Suites of promptfoo: prompts × tests become cases, assertions become evaluators, providers are the targets.

There a test passes when none of its assertions fails, or when its score reaches the `threshold` of the test. Here
each evaluator is required, or together they must reach the threshold; nothing else decides.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from itertools import islice, product
from pathlib import PurePosixPath
from typing import Any

from evaluators.kinds._prompts import VARIABLE, in_braces, reference_path, value_text
from evaluators.kinds._refusals import normal_spelling
from evaluators.reading.json import read_json
from runs.formats.bundles import missing_file_message
from runs.formats.lines import LINES_SUFFIXES, UnreadableLineError, numbered_lines, read_object
from runs.formats.lines import YAML_SUFFIXES as YAML
from runs.formats.shared_texts import include, include_all, include_values
from runs.formats.tables import read_table
from runs.formats.tools._base import (
    FreeNames,
    ToolFile,
    ToolFormat,
    ToolSuite,
    as_text,
    mapping,
    objects,
)
from runs.formats.tools.promptfoo_programs import is_function, written_prompts
from runs.formats.yaml import YamlDocument, decode_text, read_document
from runs.specs.problems import Problem, UnreadableFileError

OWN_FILE_NAME = "promptfooconfig"
PROVIDERS = ("providers", "targets")
TESTS = ("tests", "scenarios")
# Keys of other suite files that look alike.
OTHERS = {"name", "evaluators", "execution", "evalcases", "cases"}
OF_A_TEST = ("provider", "providerOutput")
OPTIONS = {"prefix", "suffix", "disableVarExpansion", "disableDefaultAsserts", "transform"}
LEFT_OUT = "has no counterpart here and was left out"
MAX_CASES, MAX_PROMPTS = 20_000, 1_000
MAX_ASSERTIONS, MAX_SETS = 200_000, 10
MAX_KEY, MAX_NAME = 60, 200
FILE = "file://"
SEPARATOR = re.compile(r"^---\s*$", re.M)
PATH = re.compile(r"\A[A-Za-z_]\w*(?:\.\w+)*\Z")
TEMPLATE_CODE = ("{%", "{#")

TEXTS = {
    "equals", "contains", "icontains", "starts_with", "ends_with", "regex",
    "contains_any", "contains_all", "icontains_any", "icontains_all",
}  # fmt: skip
LISTED = {"contains_any", "contains_all", "icontains_any", "icontains_all"}
LIMITS = {"latency": "max_duration_ms", "cost": "max_cost_usd"}
JUDGED = {"llm_rubric", "model_graded_closedqa", "g_eval"}
G_EVAL_THRESHOLD = 0.7
PROGRAMS = {"javascript", "python"}
SET = "assert_set"
EXPECTED = re.compile(
    r"\A(?P<type>(?:not-)?[a-z][a-z-]*)(?:\((?P<threshold>[\d.]+)\))?(?::(?P<value>.*))?\Z", re.S
)
EXPECTED_NAMES = {"fn": "javascript", "eval": "javascript", "grade": "llm-rubric"}

JAVASCRIPT = """#!/usr/bin/env node
// An assertion of promptfoo: an expression, or the body of a function.
const given = JSON.parse(require("fs").readFileSync(0, "utf8"));
const code = {code};
const body = /\\n|\\breturn\\b/.test(code) ? code : `return (${{code}});`;
const context = {{ vars: (given.metadata || {{}}).vars || {{}} }};
Promise.resolve(new Function("output", "context", body)(given.output || "", context)).then((got) => {{
  const result = got !== null && typeof got === "object" ? got : {{ score: Number(got), pass: Boolean(got) }};
  const score = result.pass === false ? 0 : Math.min(1, Math.max(0, Number(result.score ?? 1)));
  console.log(JSON.stringify({{ score, reasoning: String(result.reason || "") }}));
}});
"""
PYTHON = """#!/usr/bin/env python3
# An assertion of promptfoo: an expression, or the body of a function.
import json, sys, textwrap

given = json.load(sys.stdin)
code = {code}
output, context = given["output"] or "", {{"vars": (given["metadata"] or {{}}).get("vars", {{}})}}
names = {{"output": output, "context": context}}
if "\\n" in code.strip():
    exec("def assertion(output, context):\\n" + textwrap.indent(code, "    "), names)
    got = names["assertion"](output, context)
else:
    got = eval(code, names)
result = got if isinstance(got, dict) else {{"score": float(got), "pass": bool(got)}}
score = 0.0 if result.get("pass") is False else min(1.0, max(0.0, float(result.get("score", 1))))
print(json.dumps({{"score": score, "reasoning": str(result.get("reason", ""))}}))
"""


class UnfillableError(ValueError):
    """A template uses more than variables; the message is the part that does."""


def fill(template: str, variables: Mapping[str, Any]) -> str:
    """Return a template with its variables; one that a test lacks is empty, as in promptfoo.

    Raises UnfillableError for filters, tags and the environment.
    """
    if any(code in template for code in TEMPLATE_CODE):
        raise UnfillableError("{% … %}")
    return VARIABLE.sub(lambda match: include(value_text(_variable(match[1], variables))), template)


def _variable(name: str, variables: Mapping[str, Any]) -> Any:
    if not PATH.match(name) or name.startswith("env."):
        raise UnfillableError(in_braces(name))
    value: Any = variables
    for part in name.split("."):
        value = mapping(value).get(part)
    return value


def fill_all(value: Any, variables: Mapping[str, Any]) -> Any:
    """Return a value with the variables in each of its texts; a text that uses more stays as it is."""
    if isinstance(value, str):
        try:
            return fill(value, variables)
        except UnfillableError:
            return value
    if isinstance(value, list | Mapping):
        include_values(len(value))
    if isinstance(value, list):
        return [fill_all(part, variables) for part in value]
    if isinstance(value, Mapping):
        return {name: fill_all(part, variables) for name, part in value.items()}
    return value


def make_key(description: str, variables: Mapping[str, Any]) -> str:
    """Return the key of a test: its description, else the values of its variables, in plain letters."""
    text = description or " ".join(as_text(value) for value in variables.values())
    return short(text, MAX_KEY) or "test"


def short(text: str, most: int) -> str:
    """Return the letters and digits of a text in lower case, joined by hyphens."""
    return re.sub(r"[\W_]+", "-", text.casefold()).strip("-")[:most].strip("-")


class Keys:
    """Gives each test a key of its own; equal tests share one, because they are repetitions."""

    def __init__(self) -> None:
        self._by_test: dict[str, str] = {}
        self._free = FreeNames("-")

    def key(self, description: str, variables: Mapping[str, Any], more: Any = None) -> str:
        """Return the key of a test; `more` is what else tells tests apart."""
        test = json.dumps([description, variables, more], sort_keys=True, default=str)
        if test not in self._by_test:
            self._by_test[test] = self._free.take(make_key(description, variables))
        return self._by_test[test]


def prompt_endings(labels: Sequence[str]) -> dict[str, str]:
    """Return what each prompt adds to the key of a test, by label: with several, the label; with one, nothing."""
    if len(labels) < 2:
        return dict.fromkeys(labels, "")
    names = [short(each, MAX_KEY) or f"prompt-{n}" for n, each in enumerate(labels, 1)]
    counts, endings = Counter(names), dict[str, str]()
    for n, (label, name) in enumerate(zip(labels, names, strict=True), 1):
        endings.setdefault(label, f".{name}" if counts[name] == 1 else f".{name}-{n}")
    return endings


def prompt_tags(label: str, labels: Sequence[str]) -> list[str]:
    """Return the tag by which the cases of one prompt are found, none where there is only one prompt."""
    return [short(label, MAX_KEY)] if len(labels) > 1 and short(label, MAX_KEY) else []


def assertion_names(assertions: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a name for each assertion: its metric or its type, with a number where that is taken."""
    free, names = FreeNames(), []
    for assertion in assertions:
        named = as_text(assertion.get("metric")) or as_text(assertion.get("type")) or "assertion"
        name = named.replace("/", "-").lstrip("@").strip()[:90] or "assertion"
        names.append(free.take(name))
    return names


THRESHOLD = "threshold"


def _is_suite(file: ToolFile) -> bool:
    keys = file.value.keys()
    tests = file.value.get("tests")
    has_ids = any("id" in test for test in objects(tests))
    return bool(
        "prompts" in keys
        and keys & set(PROVIDERS)
        and keys & set(TESTS)
        and not keys & OTHERS
        and not has_ids
    )


def suite_name(description: Any, path: str) -> str:
    """Return the name of a suite: its description, else that of its file, or of the folder of a usual one."""
    at = PurePosixPath(path)
    usual = at.parent.name if at.stem == OWN_FILE_NAME else at.stem
    return as_text(description).strip() or usual or at.stem


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt with its label: a text, or turns with texts, which are templates.

    A `program`, such as `prompts.py:ask`, writes the content for each test.
    """

    label: str
    content: Any
    program: str = ""

    def input(self, variables: Mapping[str, Any], before: str, after: str) -> Any:
        """Return what a case asks; raises UnfillableError."""
        if isinstance(self.content, str):
            return fill(before + self.content + after, variables)
        return [
            {**turn, "content": fill(as_text(turn.get("content")), variables)}
            for turn in self.content
        ]


@dataclass(frozen=True, slots=True)
class PromptfooTest:
    """One test with the place it is written at; `lines` are those of its assertions."""

    values: Mapping[str, Any]
    line: int
    file: str
    lines: tuple[int, ...] = ()

    @property
    def assertions(self) -> list[Mapping[str, Any]]:
        """Return its own assertions."""
        return objects(self.values.get("assert"))


@dataclass(slots=True)
class _Config:
    """One configuration while it is read."""

    file: ToolFile
    files: Mapping[str, bytes]
    suite: ToolSuite
    shared: Mapping[str, Any]
    noted: set[str] = field(default_factory=set)
    read_tests: dict[str, list[PromptfooTest]] = field(default_factory=dict)
    read_values: dict[str, Any] = field(default_factory=dict)
    assertions: int = 0

    @property
    def document(self) -> YamlDocument:
        return self.file.document or YamlDocument({})

    @property
    def folder(self) -> str:
        parent = str(PurePosixPath(self.file.path).parent)
        return "" if parent == "." else parent

    def refuse(self, message: str, line: int = 0, key: str = "") -> None:
        self.suite.problems.append(Problem(message, self.file.path, line, key=key))

    def note(
        self, message: str, line: int = 0, key: str = "", file: str = "", case: str = ""
    ) -> None:
        """Note once what was changed or left out."""
        problem = Problem(message, file or self.file.path, line, case, key)
        if str(problem) not in self.noted:
            self.noted.add(str(problem))
            self.suite.notes.append(problem)

    def line(self, *path: str | int) -> int:
        return self.document.line_at(path)

    def paths(self, reference: str, line: int, key: str) -> list[str]:
        """Return the paths of the files that a name or pattern stands for; a missing one is a problem."""
        named = reference.removeprefix(FILE)
        path = reference_path(named, self.folder)
        if "*" in named:
            include_values(len(self.files))
            found = sorted(each for each in self.files if fnmatch(each, path))
        else:
            found = [path]
        missing = not path or not found or any(each not in self.files for each in found)
        if missing:
            self.refuse(missing_file_message(named, self.files, self.folder), line, key)
            return []
        self.suite.read_with += [each for each in found if each not in self.suite.read_with]
        return found

    def text(self, path: str) -> str:
        return include(decode_text(self.files[path], path))

    def tests(self, path: str) -> list[PromptfooTest]:
        """Return the tests of a file, which is read once."""
        if path not in self.read_tests:
            self.read_tests[path] = list(_test_file(self, path))
        return self.read_tests[path]

    def written(self, prompt: Prompt, variables: Sequence[Mapping[str, Any]]) -> list[Prompt]:
        """Return a prompt with its content for each test, by their variables; one that failed is a problem."""
        if not prompt.program:
            return [prompt] * len(variables)
        providers = _listed(self.file.value, PROVIDERS)
        # Any target may answer a case, so the program learns the provider only if there is just one.
        only = {"provider": {"id": _provider(providers[0])}} if len(providers) == 1 else {}
        contexts = [{"vars": each, "config": {}, **only} for each in variables]
        line = self.line("prompts")
        try:
            texts = written_prompts(
                prompt.program, contexts, self.folder, self.files, self.file.run
            )
        except ValueError as error:
            self.refuse(str(error), line, "prompts")
            return []
        self.note(
            f"{prompt.program} was run and wrote its prompts; import the files again after it changed",
            line,
            "prompts",
        )
        return [replace(prompt, content=_content(include(text))) for text in texts]

    def value(self, path: str) -> Any:
        """Return what a file holds, which is read once: a document, or the text of any other file."""
        if path not in self.read_values:
            is_data = path.lower().endswith((".json", *YAML))
            text = self.text(path)
            self.read_values[path] = read_document(text, path).value if is_data else text.strip()
        value = self.read_values[path]
        return include(value) if isinstance(value, str) else value


def _read(file: ToolFile, files: Mapping[str, bytes]) -> list[ToolSuite]:
    suite = ToolSuite(file.path)
    config = _Config(file, files, suite, mapping(file.value.get("defaultTest")))
    if isinstance(file.value.get("defaultTest"), str):
        config.refuse(
            "names a file; write its content here", config.line("defaultTest"), "defaultTest"
        )
    name = suite_name(file.value.get("description"), file.path)
    prompts = _prompts(config)
    tests = list(islice(_tests(config), MAX_CASES + 1))
    if len(tests) > MAX_CASES:
        config.refuse(f"has more than {MAX_CASES:,} tests; give a part of them", key="tests")
        tests = []
    shared = objects(config.shared.get("assert"))
    at = _Assertions(config, {}, config.line("defaultTest"))
    evaluators = [each for each in at.evaluators(shared, is_required=True) if each]
    providers = [_provider(each) for each in _listed(file.value, PROVIDERS)]
    labels = [prompt.label for prompt in prompts]
    suite.head = {
        "name": name[:MAX_NAME],
        "metadata": {"promptfoo": {"providers": providers, "prompts": labels}},
        # An assertion that fails is required; no score by itself fails a test there.
        "verdicts": {"pass": 0, "borderline": 0},
        **({"evaluators": evaluators} if evaluators else {}),
    }
    for n in range(len(evaluators)):
        suite.lines["evaluators", n] = config.line("defaultTest", "assert", n)
    _add_cases(config, prompts, tests)
    counts = f"{_count(len(tests), 'test')} × {_count(len(prompts), 'prompt')}"
    suite.summarise(
        f"read as a promptfoo configuration: {counts} make {_count(len(suite.cases), 'case')}; every assertion "
        f"is required. Set up the providers as targets: {', '.join(dict.fromkeys(providers))}"
    )
    _note_rest(config)
    return [suite]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _listed(values: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
    value: Any = next((values[name] for name in names if values.get(name) is not None), [])
    return value if isinstance(value, list) else [value]


def _provider(value: Any) -> str:
    if isinstance(value, Mapping):
        # {id: …, label: …}, or one key with the settings under it.
        return as_text(value.get("label") or value.get("id") or next(iter(value), ""))
    return as_text(value)


USED = {
    "prompts",
    "tests",
    "scenarios",
    "defaultTest",
    "description",
    "assertionTemplates",
    *PROVIDERS,
}
# Settings of a run there, and of its output.
OF_A_RUN = {
    "outputPath",
    "sharing",
    "evaluateOptions",
    "commandLineOptions",
    "writeLatestResults",
    "$schema",
}


def _note_rest(config: _Config) -> None:
    for key in config.file.value:
        if key not in USED | OF_A_RUN:
            config.note(LEFT_OUT, config.line(key), key)
    for key in mapping(config.shared.get("options")):
        if key not in OPTIONS:
            config.note(LEFT_OUT, config.line("defaultTest", "options", key), f"options.{key}")


def _prompts(config: _Config) -> list[Prompt]:
    given = config.file.value.get("prompts")
    if isinstance(given, Mapping):
        given = [{"id": name, "label": label} for name, label in given.items()]
    prompts: list[Prompt] = []
    for n, item in enumerate(given if isinstance(given, list) else [given]):
        line = config.line("prompts", n)
        prompts += _prompt(config, item, line)
        if len(prompts) > MAX_PROMPTS:
            config.refuse(f"are more than {MAX_PROMPTS:,}; give a part of them", line, "prompts")
            return []
    fillable = []
    for prompt in prompts:
        code = _template_code(prompt)
        if not code:
            fillable.append(prompt)
            continue
        message = f"the prompt {prompt.label[:60]!r} uses {code}, and only variables can be filled in here"
        if len(prompts) == 1:
            config.refuse(f"{message}; write it with variables", config.line("prompts"), "prompts")
        else:
            config.note(f"{message}; it was left out", config.line("prompts"), "prompts")
    if prompts and not fillable and len(prompts) > 1:
        config.refuse(
            "no prompt is left; write one with variables alone", config.line("prompts"), "prompts"
        )
    if not prompts and not config.suite.problems:
        config.refuse("there are no prompts; list at least one", config.line("prompts"), "prompts")
    return fillable


def _template_code(prompt: Prompt) -> str:
    if prompt.program:
        return ""
    try:
        prompt.input({}, "", "")
    except UnfillableError as error:
        return str(error)
    return ""


def _prompt(config: _Config, item: Any, line: int) -> list[Prompt]:
    values = mapping(item)
    text = values.get("raw") or values.get("id") or values.get("prompt") if values else item
    label = as_text(values.get("label"))
    if not isinstance(text, str) or not text:
        config.refuse(
            "is no text; write the prompt, or file:// and the name of its file", line, "prompts"
        )
        return []
    suffix = PurePosixPath(text).suffix.lower()
    is_name = "\n" not in text and " " not in text and suffix in (*PROMPT_FILES, *PROMPT_PROGRAMS)
    if not text.startswith(FILE) and not is_name:
        return [Prompt(label or text, _content(text))]
    if suffix.partition(":")[0] in PROMPT_PROGRAMS:
        program = text.removeprefix(FILE)
        if is_function(program):
            found = config.paths(program.partition(":")[0], line, "prompts")
            return [Prompt(label or program, "", program)] if found else []
        message = "is a program neither in Python nor in JavaScript; write its prompts here"
        config.refuse(f"{program!r} {message}", line, "prompts")
        return []
    prompts: list[Prompt] = []
    for path in config.paths(text, line, "prompts"):
        parts = [part.strip() for part in SEPARATOR.split(config.text(path)) if part.strip()]
        for n, part in enumerate(parts, 1):
            usual = part if len(parts) > 1 else PurePosixPath(path).name
            prompts.append(
                Prompt(
                    (f"{label} {n}" if len(parts) > 1 else label) if label else usual,
                    _content(part),
                )
            )
    return prompts


PROMPT_FILES = (".txt", ".md", ".json", ".yaml", ".yml", ".j2")
PROMPT_PROGRAMS = (".py", ".js", ".mjs", ".cjs", ".ts", ".sh", ".exe", ".rb")


def _content(text: str) -> Any:
    """Return a prompt: turns where it is a JSON list of them, else the text."""
    if text.lstrip().startswith("["):
        try:
            turns = read_json(text)
        except ValueError:
            return text
        if turns and len(objects(turns)) == len(turns) and all("role" in turn for turn in turns):
            return turns
    return text


def _tests(config: _Config) -> Iterator[PromptfooTest]:
    yield from _test_list(config, config.file.value.get("tests"), "tests")
    for n, scenario in enumerate(_listed(config.file.value, ("scenarios",))):
        if isinstance(scenario, str):
            line = config.line("scenarios", n)
            config.refuse(
                f"{scenario!r} names a file of scenarios; list them here", line, "scenarios"
            )
            continue
        for row in objects(mapping(scenario).get("config")) or [{}]:
            for test in _test_list(config, mapping(scenario).get("tests"), "scenarios", n, "tests"):
                include_all(row)
                merged = {
                    **row,
                    **test.values,
                    "vars": {**mapping(row.get("vars")), **mapping(test.values.get("vars"))},
                }
                merged["assert"] = [*objects(row.get("assert")), *test.assertions]
                yield PromptfooTest(merged, test.line, test.file, test.lines)


def _test_list(config: _Config, value: Any, *place: str | int) -> Iterator[PromptfooTest]:
    for n, item in enumerate(
        value if isinstance(value, list) else [] if value is None else [value]
    ):
        at = (*place, n) if isinstance(value, list) else place
        line = config.line(*at)
        if isinstance(item, Mapping) and "path" not in item:
            own = objects(item.get("assert"))
            lines = tuple(config.line(*at, "assert", k) for k in range(len(own)))
            yield PromptfooTest(item, line, config.file.path, lines)
            continue
        named = as_text(mapping(item).get("path") if isinstance(item, Mapping) else item)
        suffix = PurePosixPath(named).suffix.lower()
        if suffix not in (".csv", ".tsv", ".json", *YAML, *LINES_SUFFIXES):
            message = "is no file of tests that can be read without running it; give CSV, JSON, YAML or JSON Lines"
            config.refuse(f"{named[:100]!r} {message}", line, str(place[0]))
            continue
        for path in config.paths(named, line, str(place[0])):
            yield from config.tests(path)


def _test_file(config: _Config, path: str) -> Iterator[PromptfooTest]:
    content, name = config.files[path], path.lower()
    if name.endswith((".csv", ".tsv")):
        table = read_table(content, file=path)
        for row in table.rows:
            if row.unread:
                raise UnreadableFileError([Problem(row.unread, path, row.line)])
            cells = dict(zip(table.columns, row.cells, strict=True))
            yield PromptfooTest(_test_from_cells(cells), row.line, path)
    elif name.endswith(LINES_SUFFIXES):
        for number, raw in numbered_lines(content):
            try:
                yield PromptfooTest(read_object(raw), number, path)
            except UnreadableLineError as error:
                raise UnreadableFileError([Problem(str(error), path, number)]) from error
    else:
        document = read_document(decode_text(content, path), path)
        for n, item in enumerate(
            document.value if isinstance(document.value, list) else [document.value]
        ):
            lines = tuple(
                document.line_at((n, "assert", k))
                for k in range(len(objects(mapping(item).get("assert"))))
            )
            yield PromptfooTest(mapping(item), document.line_at((n,)), path, lines)


def _test_from_cells(cells: Mapping[str, str]) -> dict[str, Any]:
    """Return the test of a row: columns are variables, those with two underscores its settings."""
    test: dict[str, Any] = {"vars": {}, "assert": [], "metadata": {}, "options": {}}
    for column, cell in cells.items():
        if not column.startswith("__"):
            test["vars"][column] = cell
        elif column.startswith("__expected") and cell.strip():
            test["assert"].append(_expected(cell.strip()))
        elif column.startswith("__metadata:"):
            test["metadata"][column.partition(":")[2]] = cell
        elif column in ("__prefix", "__suffix") and cell:
            test["options"][column.strip("_")] = cell
        elif column == "__description":
            test["description"] = cell
        elif column == "__threshold" and cell.strip():
            test["threshold"] = float(cell) if re.fullmatch(r"[\d.]+", cell.strip()) else cell
        elif column == "__metric" and test["assert"]:
            test["assert"][0]["metric"] = cell
    return test


def _expected(cell: str) -> dict[str, Any]:
    """Return the assertion of a cell, such as `icontains:hello`; any other text must be equal."""
    match = EXPECTED.match(cell)
    kind = EXPECTED_NAMES.get(match["type"], match["type"]) if match else ""
    known = normal_spelling(kind).removeprefix("not_") in TEXTS | JUDGED | PROGRAMS | set(
        LIMITS
    ) | {"is_json", "similar"}
    if not match or not known:
        return {"type": "equals", "value": cell}
    assertion: dict[str, Any] = {"type": kind}
    if match["value"]:
        assertion["value"] = match["value"].strip()
    if match["threshold"]:
        assertion["threshold"] = float(match["threshold"])
    return assertion


def _add_cases(config: _Config, prompts: Sequence[Prompt], tests: Sequence[PromptfooTest]) -> None:
    keys, labels = Keys(), [prompt.label for prompt in prompts]
    endings = prompt_endings(labels)
    shared_lines = [
        config.line("defaultTest", "assert", n)
        for n in range(len(objects(config.shared.get("assert"))))
    ]
    rows = list(_rows(config, tests, len(prompts)))
    written = [config.written(prompt, [variables for _, variables in rows]) for prompt in prompts]
    if any(len(each) < len(rows) for each in written):
        return
    seen: set[str] = set()
    for n, (test, variables) in enumerate(rows):
        case = _case(config, test, variables)
        key = keys.key(
            as_text(test.values.get("description")), variables, [test.values.get("assert")]
        )
        before, after = (as_text(_option(config, test, name)) for name in ("prefix", "suffix"))
        for prompt in (each[n] for each in written):
            whole = f"{key}{endings[prompt.label]}"
            if whole in seen:
                config.note(
                    "the same test is written again and was left out",
                    test.line,
                    file=test.file,
                    case=whole,
                )
                continue
            seen.add(whole)
            try:
                asked = prompt.input(variables, before, after)
            except UnfillableError as error:
                # Prompts without a program were checked before there were cases.
                message = (
                    f"{prompt.program} wrote {error}, and only variables can be filled in here"
                )
                config.refuse(message, test.line)
                return
            tags = prompt_tags(prompt.label, labels)
            lines = test.lines if "assertions" in case else (*shared_lines, *test.lines)
            config.suite.add(
                {"id": whole, **case, "input": asked, "tags": tags}, test.line, test.file, lines
            )


def _rows(
    config: _Config, tests: Sequence[PromptfooTest], prompts: int
) -> Iterator[tuple[PromptfooTest, dict[str, Any]]]:
    """Yield each test with each combination of its variables; more than there may be is a problem."""
    # Equal values make the same case again, and count too: lists multiply.
    count = 0
    for test in tests:
        for variables in _combinations(config, test):
            count += prompts
            if count > MAX_CASES:
                config.refuse(
                    f"the variables make more than {MAX_CASES:,} cases; give a part of them"
                )
                return
            yield test, variables


def _option(config: _Config, test: PromptfooTest, name: str) -> Any:
    own, shared = mapping(test.values.get("options")), mapping(config.shared.get("options"))
    return own.get(name, shared.get(name))


def _combinations(config: _Config, test: PromptfooTest) -> Iterator[dict[str, Any]]:
    """Yield the variables of a test: of a list, each of its values once."""
    given = {**mapping(config.shared.get("vars")), **mapping(test.values.get("vars"))}
    keeps_lists = _option(config, test, "disableVarExpansion") is True
    choices: list[list[Any]] = []
    for name, value in given.items():
        values = value if isinstance(value, list) and not keeps_lists else [value]
        choices.append([each for part in values for each in _var_values(config, test, name, part)])
    for chosen in product(*choices):
        include_values(len(given))
        variables = dict(zip(given, chosen, strict=True))
        yield {name: fill_all(value, variables) for name, value in variables.items()}


def _var_values(config: _Config, test: PromptfooTest, name: str, value: Any) -> list[Any]:
    if not isinstance(value, str) or not value.startswith(FILE):
        return [value]
    if PurePosixPath(value).suffix.lower() in PROMPT_PROGRAMS:
        config.refuse(
            f"{value!r} is a program, which is not run while importing; write its value",
            test.line,
            name,
        )
        return []
    return [config.text(path).strip() for path in config.paths(value, test.line, name)]


def _case(config: _Config, test: PromptfooTest, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return a case without its key and input."""
    values, title = test.values, as_text(test.values.get("description"))
    unknown = [name for name in OF_A_TEST if values.get(name)]
    unknown += [f"options.{name}" for name in mapping(values.get("options")) if name not in OPTIONS]
    for name in unknown:
        config.note(LEFT_OUT, test.line, name, test.file)
    case: dict[str, Any] = {
        "title": title[:300],
        "metadata": {
            **mapping(config.shared.get("metadata")),
            **mapping(values.get("metadata")),
            "vars": dict(variables),
        },
    }
    # There a threshold of 0 is none.
    threshold = values.get("threshold", config.shared.get("threshold")) or None
    shared = objects(config.shared.get("assert"))
    if _option(config, test, "disableDefaultAsserts") is True:
        shared = []
    is_alone = threshold is not None or len(shared) < len(objects(config.shared.get("assert")))
    is_changed = bool(_option(config, test, "transform"))
    if is_changed:
        message = "transform is a program that changes the answer before the assertions; it is not run, and they were left out"
        config.note(message, test.line, file=test.file)
    every = [*shared, *test.assertions]
    at = _Assertions(config, variables, test.line, test.file)
    read = at.evaluators(every, is_required=threshold is None)
    own = [each for each in read[len(shared) :] if each and not is_changed]
    whole = [each for each in read if each and not is_changed]
    if is_alone and whole:
        if threshold is not None:
            whole = [
                {
                    "name": THRESHOLD,
                    "type": "composite",
                    "min_score": threshold,
                    "evaluators": whole,
                }
            ]
        return {**case, "evaluators": whole}
    if own:
        return {**case, "assertions": own}
    if not shared:
        message = "there are no assertions left; promptfoo passes any answer; here a judge scores it, and no score fails it"
        config.note(message, test.line, file=test.file)
    return case


@dataclass(frozen=True, slots=True)
class _Assertions:
    """The assertions of one place, with the variables in their values; `depth` counts the sets around them."""

    config: _Config
    variables: Mapping[str, Any]
    line: int
    file: str = ""
    depth: int = 0

    def evaluators(
        self, assertions: Sequence[Mapping[str, Any]], *, is_required: bool
    ) -> list[dict[str, Any]]:
        """Return an evaluator for each assertion, an empty one for each that was left out."""
        templates = mapping(self.config.file.value.get("assertionTemplates"))
        self.config.assertions += len(assertions)
        if self.config.assertions > MAX_ASSERTIONS or self.depth > MAX_SETS:
            message = (
                f"the tests have more than {MAX_ASSERTIONS:,} assertions, or sets within {MAX_SETS} others; a template "
                "cannot hold itself"
            )
            raise UnreadableFileError([Problem(message, self.config.file.path, self.line)])
        given = [_resolved(templates, assertion) for assertion in assertions]
        names = assertion_names(fill_all(given, self.variables))
        read = []
        for name, assertion in zip(names, given, strict=True):
            evaluator, reason = self._evaluator(assertion, is_required=is_required)
            if not evaluator:
                kind = as_text(assertion.get("type")) or "?"
                message = f"the assertion {kind}: {reason}; it was left out"
                self.config.note(message, self.line, file=self.file)
            read.append({"name": name, **evaluator} if evaluator else {})
        return read

    def _evaluator(
        self, assertion: Mapping[str, Any], *, is_required: bool
    ) -> tuple[dict[str, Any], str]:
        """Return the evaluator of an assertion, or why there is none."""
        written = normal_spelling(as_text(assertion.get("type")))
        kind = written.removeprefix("not_")
        weight, least = assertion.get("weight"), assertion.get("threshold")
        is_required = is_required and weight != 0
        facts: dict[str, Any] = {} if weight is None else {"weight": weight}
        if kind != written:
            facts["negate"] = True
        if assertion.get("transform"):
            return {}, "its transform is a program that changes the answer, which is not run"
        if kind == SET:
            inner = objects(assertion.get("assert"))
            within = replace(self, depth=self.depth + 1)
            children = within.evaluators(inner, is_required=is_required and not least)
            if not all(children):
                return {}, "not every assertion in the set has a counterpart"
            gate = {"min_score": least} if is_required and least else {}
            return {**facts, **gate, "type": "composite", "evaluators": children}, ""
        value = fill_all(assertion.get("value"), self.variables)
        settings, reason = self._settings(kind, value, least)
        if not settings:
            return {}, reason
        if kind == "g_eval" and least is None:
            least = G_EVAL_THRESHOLD
        if is_required:
            is_graded = least is not None and kind not in LIMITS
            facts |= {"min_score": least} if is_graded else {"required": True}
        if (judge := assertion.get("provider")) or assertion.get("rubricPrompt"):
            asked = f"the judge {_provider(judge)}" if judge else "a prompt of its own"
            message = f"the assertion {kind} asks {asked}; here the judge of the suite is asked"
            self.config.note(message, self.line, file=self.file)
        return {**facts, **settings}, ""

    def _settings(self, kind: str, value: Any, least: Any) -> tuple[dict[str, Any], str]:
        """Return the type and settings of an evaluator, or why there are none."""
        if isinstance(value, str) and value.startswith(FILE):
            suffix = PurePosixPath(value).suffix.lower().partition(":")[0]
            if kind in PROGRAMS or suffix in PROMPT_PROGRAMS:
                return {}, "its program is a file; add it to the suite as a code_grader"
            paths = self.config.paths(value, self.line, "value")
            if not paths:
                return {}, "its file is missing"
            value = self.config.value(paths[0])
        if kind in LIMITS:
            settings = {"type": "execution_metrics", LIMITS[kind]: least}
            return (settings, "") if least is not None else ({}, "it has no threshold")
        if kind == "is_json" or (kind == "equals" and isinstance(value, Mapping | list)):
            schema = value if kind == "is_json" else {"const": value}
            settings = {"type": "json_schema", "json_schema": schema}
            return settings if schema else {"type": "is_json"}, ""
        if kind in PROGRAMS and isinstance(value, str):
            script = JAVASCRIPT if kind == "javascript" else PYTHON
            code = json.dumps(value, ensure_ascii=False)
            return {"type": "code_judge", "script": script.format(code=code)}, ""
        return _text_settings(kind, value, least)


def _resolved(templates: Mapping[str, Any], assertion: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an assertion, of a `$ref` the template with that name."""
    name = as_text(assertion.get("$ref")).rpartition("/")[2]
    own = {key: part for key, part in assertion.items() if key != "$ref"}
    return {**mapping(templates.get(name)), **own}


def _text_settings(kind: str, value: Any, least: Any) -> tuple[dict[str, Any], str]:
    """Return the type and settings of an assertion that has a text, or why there are none."""
    if kind not in TEXTS | JUDGED:
        return {}, "it has no counterpart here"
    if value is None or value in ([], {}):
        return {}, "it has no value"
    if kind in JUDGED:
        criteria = list(map(as_text, value if isinstance(value, list) else [value]))
        mode = "graded" if least is not None or kind == "g_eval" else "satisfied"
        return {"type": "rubric", "rubrics": criteria, "mode": mode}, ""
    if kind in LISTED and isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    return {"type": kind, "value": value if isinstance(value, list) else as_text(value)}, ""


FORMATS = (ToolFormat("promptfoo", "a promptfoo configuration", _is_suite, read_suites=_read),)
