"""Suite files, read and written: YAML, JSON Lines, and a zip with the files a suite names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import PurePosixPath
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from evaluators.kinds import read_config, shortest_spelling
from evaluators.kinds._prompts import reference_path
from evaluators.kinds._refusals import InvalidConfigError, UnknownKindError, normal_spelling
from evaluators.kinds.hybrid_judge.opinions import TwoFinalScoresError, check_final_score
from evaluators.reading.yaml import Path, write_yaml
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import Aggregator, EvaluatorSpec
from runs.formats.agentv_prompts import FilledDocument, with_variables
from runs.formats.bundles import comment_for
from runs.formats.generations import PASSING_SCORE, Generation, find_generation
from runs.formats.lines import (
    CASES_KEYS,
    LINES_SUFFIXES,
    YAML_SUFFIXES,
    Form,
    read_lined,
    wrong_content_problem,
)
from runs.formats.prompt_programs import RunProgram, run_no_program
from runs.formats.reading import Fields, Reading
from runs.formats.scenarios import with_scenarios
from runs.formats.shared_texts import MAX_CASES, limit_shared_texts
from runs.formats.suite_cases import (
    BLOCKS,
    Defaults,
    parent_folder,
    read_cases,
    read_shared_input,
    refuse_trials,
    with_cases,
)
from runs.formats.suite_evaluators import (
    check_composite,
    default_children,
    make_root,
    model_places,
    read_aggregator,
    read_evaluators,
    read_policy,
    written_policy,
)
from runs.formats.yaml import YamlDocument, decode_text, describe_value, read_document
from runs.specs.problems import Problem, UnreadableFileError
from runs.specs.profiles import Profile, UnknownProfileError, get_profile
from runs.specs.suites import (
    LISTS,
    MAX_MINUTES,
    MAX_SUITE_TAG_LENGTH,
    TEXTS,
    CaseSpec,
    SuiteFields,
    SuiteWithCases,
)


def written(content: SuiteWithCases) -> Iterator[bytes]:
    """Yield the suite file as YAML, case by case, so that large suites start to arrive at once."""
    yield write_yaml(suite_head(content)).encode()
    yield b"tests:\n"
    for case in content.cases:
        yield write_yaml([case_values(case)]).encode()


def suite_head(content: SuiteWithCases) -> dict[str, Any]:
    """Return the keys of a suite file that come before its cases."""
    policy, verdicts = written_policy(content.policy)
    suite = {
        "name": content.slug,
        **content.model_dump(mode="json", include=set(SuiteFields.model_fields)),
        "metadata": dict(content.metadata),
        "policy": policy,
        "verdicts": verdicts,
        "aggregator": _aggregator(content.evaluators),
        "evaluators": [_evaluator(child) for child in content.evaluators.children],
    }
    return _given(suite)


def case_values(case: CaseSpec) -> dict[str, Any]:
    """Return a case's values in a suite file."""
    own = case.evaluators
    listed = [_evaluator(child) for child in own.children] if own else []
    is_one_question = len(case.input) == 1 and _is_question(case.input[0])
    written_case = _given(
        {
            "id": case.key,
            "title": case.title,
            "tags": list(case.tags),
            "criteria": case.criteria,
            "expected_output": case.expected_output,
            "expected_outcomes": list(case.expected_outcomes),
            "metadata": dict(case.metadata),
            "assertions": listed if case.evaluators_append else [],
            "evaluators": [] if case.evaluators_append else listed,
            "aggregator": _aggregator(own) if own and not case.evaluators_append else {},
        }
    )
    turns = [_turn(turn) for turn in case.input]
    asked = case.input[0]["content"] if is_one_question else turns
    written_case["input"] = asked or turns
    if case.recorded_output is not None:
        written_case["output"] = dict(case.recorded_output)
    order = ("id", "title", "tags", "input")
    return {key: written_case[key] for key in (*order, *written_case) if key in written_case}


def own_values(own: EvaluatorSpec) -> dict[str, Any]:
    """Return a case's own evaluators as in a suite file."""
    listed = [_evaluator(child) for child in own.children]
    return {**_given({"aggregator": _aggregator(own)}), "evaluators": listed}


def _is_question(turn: Mapping[str, Any]) -> bool:
    return turn["role"] == "user" and turn.keys() == {"role", "content"}


def _turn(turn: Mapping[str, Any]) -> dict[str, Any]:
    """Return a turn as in a file: with the names of its files instead of their text."""
    content = list(turn[BLOCKS]) if BLOCKS in turn else turn["content"]
    rest = {key: value for key, value in turn.items() if key not in ("role", "content", BLOCKS)}
    return {"role": turn["role"], "content": content, **rest}


def _evaluator(node: EvaluatorSpec) -> dict[str, Any]:
    spelling, settings = node.kind, dict[str, Any]()
    if not node.is_composite:
        spelling, settings = _settings(node)
    facts = {
        "name": node.name,
        "type": spelling,
        "weight": _number(node.weight) if node.weight != 1 else None,
        "required": True if node.required else None,
        "min_score": node.required_below,
        "negate": True if node.negate else None,
        "pass_mark": node.pass_mark,
    }
    common = {key: value for key, value in facts.items() if value is not None}
    if not node.is_composite:
        return {**common, **settings}
    children = [_evaluator(child) for child in node.children]
    return {**common, **_given({"aggregator": _aggregator(node)}), "evaluators": children}


def _settings(node: EvaluatorSpec) -> tuple[str, dict[str, Any]]:
    """Return the type and the settings that differ from defaults; all settings if the kind has changed since."""
    try:
        config = read_config(node.kind, node.config)
    except (UnknownKindError, InvalidConfigError):
        return node.kind, _given(node.config)
    return shortest_spelling(node.kind, config.model_dump(mode="json", exclude_defaults=True))


def _aggregator(node: EvaluatorSpec) -> dict[str, Any]:
    """Return the options of a composite, including those of a script or judge that aggregates."""
    options: dict[str, Any] = dict(node.as_json()["config"].get("aggregator") or {})
    return {} if options == Aggregator().as_json() else options


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in ("", [], {}, None)}


def _number(value: float) -> float | int:
    return int(value) if value.is_integer() else value


SUITE_SUFFIXES = (".yaml", ".yml")
MAX_SLUG_LENGTH = 80
MAX_TITLE_LENGTH = 200
ALIASES = {
    "tests": ("cases", "evalcases", "eval_cases"),
    "evaluators": ("assertions", "assert"),
}


def read_suite(
    content: bytes,
    *,
    file: str = "suite.yaml",
    files: Mapping[str, bytes] | None = None,
    profile: Profile | None = None,
    run: RunProgram = run_no_program,
) -> SuiteWithCases:
    """Return the suite of a file; a chosen profile fills in what the file does not set.

    `file` is the path of the suite file and `files` are the files around it by path; prompts it
    names are looked up there, and `run` runs programs that write prompts. Raises UnreadableFileError with every
    problem.
    """
    return parse_suite(read_document(decode_text(content, file), file), files or {}, profile, run)


def parse_suite(
    document: YamlDocument,
    files: Mapping[str, bytes],
    profile: Profile | None = None,
    run: RunProgram = run_no_program,
) -> SuiteWithCases:
    """Return the suite of a parsed file; raises UnreadableFileError like read_suite."""
    document, named = with_cases(document, files)
    with limit_shared_texts(document.file):
        document, combined = with_scenarios(document, files)
        generation = find_generation(document.value, document.file)
        is_later = generation is Generation.LATER
        filled = with_variables(document, files, run) if is_later else FilledDocument(document)
    document = filled.document
    reading = Reading(document, files, parent_folder(document.file), generation=generation)
    suite = Fields(reading, (), aliases=ALIASES, value=document.value)
    content = _suite(reading, suite, _stem(document.file), profile)
    if reading.problems:
        raise UnreadableFileError(reading.in_order())
    places = model_places(document, content.cases)
    return content.replace(
        read_with=(*named, *combined, *filled.read_with),
        warnings=(*filled.notes, *content.warnings),
        model_places=places,
    )


def write_suite(content: SuiteWithCases) -> bytes:
    """Return the suite file that reads back as this suite; its files are written separately."""
    return b"".join(written(content))


def write_suite_parts(content: SuiteWithCases) -> Iterator[bytes]:
    """Yield the same file part by part, so that nobody waits for the last case of thousands."""
    return written(content)


def make_slug(name: str) -> str:
    """Return a name for addresses, of lower-case letters, digits and hyphens; a slug stays as it is."""
    if len(name) <= MAX_SLUG_LENGTH and re.fullmatch(r"[a-z0-9_]+(-+[a-z0-9_]+)*", name):
        return name
    return re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-")[:MAX_SLUG_LENGTH].rstrip("-")


def _stem(file: str) -> str:
    """Return the name of a file without its endings, such as `.eval.yaml`."""
    return re.sub(r"(?<=.)\.evals?\Z", "", PurePosixPath(file).stem, flags=re.IGNORECASE)


def _suite(reading: Reading, suite: Fields, stem: str, chosen: Profile | None) -> SuiteWithCases:
    beside = {k: part for k, part in suite.rest().items() if normal_spelling(k) not in CASES_KEYS}
    reading.check_environment(beside, ())
    # Where both are given, `dataset` is not the name and is kept with the metadata.
    name = suite.text("name") or suite.text("dataset") or stem
    title = suite.text("title") or name
    slug = make_slug(name)
    if not slug:
        message = "has no letter or digit to make an address from; give the suite another name"
        suite.refuse("name", f"{name!r} {message}")
    if len(title) > MAX_TITLE_LENGTH:
        suite.refuse("title", f"the title is longer than {MAX_TITLE_LENGTH} characters; shorten it")
    children, rest = _evaluators(reading, suite)
    aggregator_key, options = suite.mapping("aggregator")
    aggregator = read_aggregator(reading, (aggregator_key,), options) if options else None
    profile = _profile(suite, chosen)
    usual = profile.evaluators if profile else default_children()
    root = make_root(children or usual, aggregator)
    check_composite(reading, (aggregator_key or "evaluators",), root)
    defaults = Defaults(root, not (children or profile), read_shared_input(suite))
    cases_key, items = _cases(suite)
    cases = read_cases(reading, (cases_key,), items, defaults)
    policy = read_policy(reading, suite, _usual_policy(reading, profile))
    trees: dict[Path, EvaluatorSpec] = {(aggregator_key or "evaluators",): root}
    trees |= {(cases_key, n): case.evaluators for n, case in enumerate(cases) if case.evaluators}
    _check_final_scores(reading, policy, trees)
    own = reading.kept.pop("", {})
    return SuiteWithCases(
        slug=slug,
        **{name: suite.text(name) for name in TEXTS} | {"title": title},
        **{name: suite.texts(name, longest=MAX_SUITE_TAG_LENGTH) for name in LISTS},
        max_minutes=_minutes(suite),
        policy=policy,
        evaluators=root,
        cases=cases,
        metadata=suite.metadata(rest, {"evaluators": own} if own else {}),
        files=dict(sorted(reading.used_files.items())),
        warnings=reading.warnings_in_order(),
    )


def _minutes(suite: Fields) -> int | None:
    """Return the longest time of a run, None for that of the site."""
    value = suite.number("max_minutes")
    if value is None or (value.is_integer() and 1 <= value <= MAX_MINUTES):
        return None if value is None else int(value)
    message = f"is {value:g}, but a run takes a whole number of minutes from 1 to {MAX_MINUTES}"
    suite.refuse("max_minutes", message)
    return None


def _check_final_scores(
    reading: Reading, policy: PolicySpec, trees: Mapping[Path, EvaluatorSpec]
) -> None:
    """Note trees, by their place in the file, that would give results a second final score."""
    for place, tree in trees.items():
        try:
            check_final_score(tree, policy)
        except TwoFinalScoresError as error:
            reading.refuse(place, str(error))


def _usual_policy(reading: Reading, profile: Profile | None) -> PolicySpec:
    """Return the policy for what a file does not set; a later file of AgentV passes by its threshold."""
    policy = profile.policy if profile else PolicySpec()
    if reading.passing_score == PASSING_SCORE:
        return policy
    borderline = min(policy.borderline_threshold, reading.passing_score)
    return policy.replace(pass_threshold=reading.passing_score, borderline_threshold=borderline)


def _profile(suite: Fields, chosen: Profile | None) -> Profile | None:
    """Return the profile that fills in the policy and evaluators the suite does not set.

    A profile that the file names takes precedence over the chosen one.
    """
    key, _ = suite.peek("profile")
    name = suite.text("profile")
    try:
        own = get_profile(name) if name else None
    except UnknownProfileError as error:
        suite.refuse("profile", str(error))
        return None
    if own and chosen and own != chosen:
        message = f"the file starts from {own.name}, which overrides the chosen {chosen.name}"
        suite.warn(key, f"{message}; remove the line to start from {chosen.name}")
    return own or chosen


def _cases(suite: Fields) -> tuple[str, list[Any]]:
    """Return the list of cases with its key; a problem is noted if there is none."""
    key, value = suite.take("tests")
    if isinstance(value, str):
        message = (
            "names no cases; list them here, or name a file of them that ends in .yaml or .jsonl"
        )
        suite.refuse(key, f"{value[:100]!r} {message}")
        return key, []
    if value is not None and not isinstance(value, list):
        suite.refuse(key, f"expected a list of cases, but found {describe_value(value)}")
        return key, []
    if not value:
        message = "the suite has no cases; list them under tests"
        if line := _line_of_nested_cases(suite.reading.document):
            message += f" at the start of a line: those on line {line} belong to what they are indented under"
        suite.refuse(key, message)
    if len(value or []) > MAX_CASES:
        suite.refuse(key, f"has more than {MAX_CASES:,} cases; split them into several suites")
        return key, []
    return key, value or []


def _line_of_nested_cases(document: YamlDocument) -> int:
    """Return the line of the first `tests` within another value, 0 without one."""
    nested = (path for path in document.lines if len(path) > 1)
    is_cases = (path for path in nested if normal_spelling(str(path[-1])) in CASES_KEYS)
    return next(map(document.line_at, is_cases), 0)


def _evaluators(
    reading: Reading, suite: Fields
) -> tuple[tuple[EvaluatorSpec, ...], dict[str, Any]]:
    """Return the suite's evaluators and the remaining keys of its `execution` block."""
    execution_key, block = suite.mapping("execution")
    aliases = {"evaluators": ALIASES["evaluators"]}
    execution = Fields(reading, (execution_key,), aliases=aliases, value=block)
    nodes: tuple[EvaluatorSpec, ...] = ()
    for fields in (suite, execution) if reading.generation is Generation.LATER else ():
        threshold_key, _ = fields.peek("threshold")
        threshold = fields.number("threshold")
        if threshold is not None and not 0 < threshold <= 1:
            fields.refuse(threshold_key, f"{threshold:g} is not a score above 0 and up to 1")
        elif threshold is not None:
            reading.passing_score = threshold
    for fields in (suite, execution):
        key, items = fields.items("evaluators")
        if items and nodes:
            message = "evaluators are listed at the top and under execution; keep one list"
            fields.refuse(key, message)
        nodes += read_evaluators(reading, fields.place(key), items, beside=nodes)
    key, rubrics = suite.items("rubrics")
    if rubrics:
        items = [{"type": "rubric", "rubrics": rubrics}]
        nodes += read_evaluators(reading, (key,), items, beside=nodes)
    execution.flag("skip_defaults")
    for fields in (suite, execution):
        refuse_trials(fields)
    rest = execution.keep_rest()
    return nodes, {"execution": rest} if rest else {}


CASE_LINES_SUFFIXES = LINES_SUFFIXES
CASES = "tests"
# The lines are read as one list; problems show the key within its line.
WITHIN_LIST = re.compile(rf"\A{CASES}(\[\d+\]\.?)?")


def read_case_lines(
    content: bytes,
    *,
    file: str = "suite.jsonl",
    files: Mapping[str, bytes] | None = None,
    profile: Profile | None = None,
    run: RunProgram = run_no_program,
) -> SuiteWithCases:
    """Return the suite of a file of cases and of the YAML next to it, if there is one.

    `files` are the files around it by path. The YAML has name, description, evaluators, judge and policy, as
    in suite files; a chosen profile fills in what it does not set. Raises UnreadableFileError with every
    problem, each with its file and line.
    """
    lines = read_lined(content, file, CASES)
    beside = sidecar_path(file, files or {})
    head = _head(files or {}, beside, file) if beside else YamlDocument({})
    if not lines.cases:
        raise UnreadableFileError(
            lines.problems
            or [Problem("the file contains no cases; write one per line, with id and input", file)]
        )
    document = YamlDocument(
        value={**head.value, CASES: lines.cases},
        file=beside or file,
        lines={**head.lines, **lines.lines},
        written={**head.written, **lines.written},
        elsewhere={(CASES,): file},
    )
    try:
        suite = parse_suite(document, files or {}, profile, run)
    except UnreadableFileError as error:
        lines.problems += [_within_line(problem, file) for problem in error.problems]
    else:
        warnings = tuple(_within_line(problem, file) for problem in suite.warnings)
        suite = suite.replace(warnings=warnings)
        if not lines.problems:
            return suite
    only = wrong_content_problem(content, file, Form.CASES)
    raise UnreadableFileError([only] if only else lines.problems)


def write_case_lines(content: SuiteWithCases) -> tuple[bytes, bytes]:
    """Return the lines and the YAML next to them that read back as this suite."""
    lines = (
        json.dumps(case_values(case), ensure_ascii=False, allow_nan=False) for case in content.cases
    )
    return "".join(f"{line}\n" for line in lines).encode(), write_yaml(suite_head(content)).encode()


def sidecar_path(file: str, files: Mapping[str, bytes]) -> str:
    """Return the path of the YAML next to a file of cases, "" if there is none."""
    stem = PurePosixPath(file).with_suffix("")
    return next((f"{stem}{suffix}" for suffix in YAML_SUFFIXES if f"{stem}{suffix}" in files), "")


def _head(files: Mapping[str, bytes], path: str, cases: str) -> YamlDocument:
    document = read_document(decode_text(files[path], path), path)
    if not isinstance(document.value, dict):
        raise UnreadableFileError(
            [
                Problem(
                    "the file is not a mapping of keys; begin it with name: and the name of the suite",
                    path,
                    1,
                )
            ]
        )
    head = dict(document.value)
    for key, value in document.value.items():
        if normal_spelling(key) not in CASES_KEYS:
            continue
        if not isinstance(value, str) or reference_path(value, parent_folder(path)) != cases:
            message = "the cases are in the JSON Lines next to this file; remove them here"
            raise UnreadableFileError([Problem(message, path, document.line_at((key,)), key=key)])
        # It names the same file of cases.
        del head[key]
    return replace(document, value=head)


def _within_line(problem: Problem, file: str) -> Problem:
    if problem.file != file:
        return problem
    return replace(problem, key=WITHIN_LIST.sub("", problem.key))


# A fixed time, so that the same suite always makes the same zip.
WRITTEN_AT = (1980, 1, 1, 0, 0, 0)
READABLE = 0o644 << 16


@dataclass(frozen=True, slots=True)
class PackedSuite:
    """A file to download: its name, and its content in parts."""

    name: str
    parts: Iterator[bytes]


def pack_suite(content: SuiteWithCases, name: str, *, always_zip: bool = False) -> PackedSuite:
    """Return the suite as `<name>.yaml`, or as `<name>.zip` if it has files or `always_zip` is set.

    The first part is written at once, so that an error is raised here.
    """
    is_zip = bool(content.files) or always_zip
    parts = _zip_parts(content) if is_zip else write_suite_parts(content)
    begun = chain([next(parts)], parts)
    return PackedSuite(f"{name}.{'zip' if is_zip else 'yaml'}", begun)


def _zip_parts(content: SuiteWithCases) -> Iterator[bytes]:
    """Yield the parts of a zip as they are written, starting with the suite file."""
    written = _Parts()
    with ZipFile(written, "w", ZIP_DEFLATED) as zipped:
        zipped.comment = comment_for(suite_file_name(content))
        with zipped.open(_member(suite_file_name(content)), "w") as stream:
            for part in write_suite_parts(content):
                stream.write(part)
                yield written.take()
        for path, part in content.files.items():
            zipped.writestr(_member(path), part)
            yield written.take()
    yield written.take()


def suite_file_name(content: SuiteWithCases) -> str:
    """Return a name for the suite file that differs from all its files and from other suites' names."""
    names = (f"{content.slug}{n or ''}.yaml" for n in range(len(content.files) + 1))
    return next(name for name in names if name not in content.files)


def _member(path: str) -> ZipInfo:
    member = ZipInfo(path, WRITTEN_AT)
    member.compress_type = ZIP_DEFLATED
    member.external_attr = READABLE
    return member


class _Parts:
    """A file-like object whose content is taken while it is written; it cannot seek."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, part: bytes) -> int:
        """Keep a part until it is taken."""
        self._parts.append(bytes(part))
        return len(part)

    def flush(self) -> None:
        """Do nothing: the caller takes the parts when it wants."""

    def close(self) -> None:
        """Do nothing: parts can still be taken."""

    def take(self) -> bytes:
        """Return what was written since the last call."""
        parts, self._parts = self._parts, []
        return b"".join(parts)
