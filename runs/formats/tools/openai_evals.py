"""OpenAI Evals: the registry of the open-source tool, and evals, items and results of the hosted one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import islice
from pathlib import PurePosixPath
from posixpath import normpath
from typing import Any

from runs.formats.lines import UnreadableLineError, numbered_lines, read_object, with_plain_numbers
from runs.formats.shared_texts import MAX_CASES, VALUE, include, include_values
from runs.formats.suite_files import make_slug
from runs.formats.tools._base import (
    NothingToReadError,
    Row,
    ToolFile,
    ToolFormat,
    ToolResults,
    ToolSuite,
    as_text,
    as_turns,
    mapping,
    message_text,
    objects,
    read_values,
)
from runs.formats.yaml import decode_text, read_document
from runs.specs.problems import Problem, UnreadableFileError

TOOL = "OpenAI Evals"
MATCH, INCLUDES, CLASSIFY = (
    "basic.match:Match",
    "basic.includes:Includes",
    "modelgraded.classify:ModelBasedClassify",
)
CLASS = "evals."
LINES = ".jsonl"
VARIABLE = re.compile(r"\{\{\s*(item|sample)\.([\w.]+)\s*\}\}")
BRACES = re.compile(r"\{(\w+)\}")
# Variables of model graded prompts, and what they are called here.
NAMES = {"completion": "output", "input": "input", "ideal": "expected_output"}
ANSWER = "{{ sample.output_text }}"
# Whose formulas are published. How OpenAI splits words is not, so its scores can differ.
SIMILARITIES = ("bleu", "rouge_1", "rouge_2", "rouge_l")
CHECKS = {"eq": "equals", "ne": "not-equals", "like": "contains", "ilike": "icontains"}
REQUIRED: Mapping[str, Any] = {"pass": 0, "borderline": 0}
SCRIPT = """#!/usr/bin/env python3
# A python grader of OpenAI Evals.
import json, sys

{source}

given = json.load(sys.stdin)
score = float(grade({{"output_text": given["output"] or ""}}, (given["metadata"] or {{}}).get("item", {{}})))
print(json.dumps({{"score": min(1.0, max(0.0, score))}}))
"""


def _is_registry(file: ToolFile) -> bool:
    entries = [mapping(entry) for entry in file.value.values()]
    return bool(entries) and any(as_text(entry.get("class")).startswith(CLASS) for entry in entries)


def _read_registry(file: ToolFile, files: Mapping[str, bytes]) -> list[ToolSuite]:
    document, suites, notes = file.document, list[ToolSuite](), list[Problem]()
    folder = PurePosixPath(file.path).parent.parent
    # Read once, however many evals name them.
    read_specs = cache(partial(_model_graded_specs, folder, files))
    for name, entry in file.value.items():
        alias = mapping(file.value.get(as_text(mapping(entry).get("id"))))
        if not alias:
            continue
        line = document.line_at((name,)) if document else 0
        try:
            suites.append(_registered(file, files, name, {**alias, **mapping(entry)}, read_specs))
        except ValueError as error:
            notes.append(Problem(f"the eval {name} was left out: {error}", file.path, line))
    if not suites:
        raise NothingToReadError(
            notes or [Problem("the file names no eval by an alias with id", file.path)]
        )
    suites[0].notes += notes
    return suites


def _registered(
    file: ToolFile,
    files: Mapping[str, bytes],
    name: str,
    entry: Mapping[str, Any],
    read_specs: Callable[[], Mapping[str, Any]],
) -> ToolSuite:
    """Return the suite of one eval; raises ValueError with the reason where it has no counterpart."""
    args, kind = mapping(entry.get("args")), as_text(entry.get("class")).rpartition("elsuite.")[2]
    for unusual in ("metaeval", "multicomp_n"):
        if args.get(unusual):
            raise ValueError(f"{unusual} has no counterpart here")
    folder = PurePosixPath(file.path).parent.parent
    data = normpath(str(folder / "data" / as_text(args.get("samples_jsonl"))))
    if not data.endswith(LINES) or data not in files:
        raise ValueError(
            f"its data {as_text(args.get('samples_jsonl')) or '(samples_jsonl)'} are not here; give the folder that "
            "contains evals and data"
        )
    suite = ToolSuite(file.path, {"name": name, "description": as_text(entry.get("description"))})
    suite.read_with.append(data)
    # Any number of evals may read the same data.
    include_values(len(files[data]) // VALUE)
    grader, reason = _grader(kind, args, read_specs)
    if reason:
        suite.note(
            f"{name}: {reason}; the judge of the suite scores its cases by their expected output"
        )
    for n, (line, row) in enumerate(_objects(files[data], data)):
        if "input" not in row:
            raise ValueError(f"line {line} of its data has no input")
        suite.add(
            {"id": str(n), **_case(row), **_evaluated(grader(row) if grader else None)}, line, data
        )
    suite.summarise(f"read as the eval {name} of OpenAI Evals: {len(suite.cases)} cases")
    return suite


def _evaluated(evaluator: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"evaluators": [evaluator]} if evaluator else {}


def _objects(content: bytes, file: str) -> Iterator[Row]:
    for number, raw in numbered_lines(content):
        try:
            yield number, with_plain_numbers(read_object(raw))
        except UnreadableLineError as error:
            raise UnreadableFileError([Problem(str(error), file, number)]) from error


def _ideals(row: Mapping[str, Any]) -> list[str]:
    ideal = row.get("ideal")
    return [
        as_text(each)
        for each in (ideal if isinstance(ideal, list) else [ideal])
        if each is not None
    ]


def _case(row: Mapping[str, Any]) -> dict[str, Any]:
    ideals = _ideals(row)
    rest = {
        key: part
        for key, part in row.items()
        if key not in ("input", "ideal", "messages", "completion")
    }
    case: dict[str, Any] = {
        "input": as_turns(row.get("input", row.get("messages"))),
        "expected_output": ideals[0] if ideals else "",
        "metadata": {**rest, **({"ideal": ideals} if len(ideals) > 1 else {})},
    }
    return {**case, "output": as_text(row["completion"])} if "completion" in row else case


Grader = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]


def _grader(
    kind: str, args: Mapping[str, Any], read_specs: Callable[[], Mapping[str, Any]]
) -> tuple[Grader | None, str]:
    """Return what scores each row, or why nothing here does."""
    if kind == MATCH:
        return _begins, ""
    if kind == INCLUDES:
        prefix = "i" if args.get("ignore_case") else ""
        return (
            lambda row: (
                {"type": f"{prefix}contains_any", "value": _ideals(row)}
                if any(_ideals(row))
                else None
            ),
            "",
        )
    if kind == CLASSIFY:
        judge, reason = _judge(args, read_specs())
        return (lambda _: judge) if judge else None, reason
    return None, f"its class {kind} has no counterpart here"


def _begins(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the check that an answer begins with one of the ideal ones."""
    ideals = [ideal for ideal in _ideals(row) if ideal]
    if len(ideals) == 1:
        return {"type": "starts_with", "value": ideals[0]}
    return (
        {"type": "regex", "value": rf"\A(?:{'|'.join(map(re.escape, ideals))})"} if ideals else None
    )


def _model_graded_specs(folder: PurePosixPath, files: Mapping[str, bytes]) -> Mapping[str, Any]:
    """Return the specs of all files for them, by name; the first of a name counts."""
    beside = PurePosixPath(normpath(str(folder / "modelgraded")))
    specs: dict[str, Any] = {}
    for path in files:
        if PurePosixPath(path).parent == beside:
            document = read_document(decode_text(files[path], path), path)
            for name, spec in mapping(document.value).items():
                specs.setdefault(name, spec)
    return specs


def _judge(args: Mapping[str, Any], specs: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the judge of a model graded eval, or why there is none."""
    name = as_text(args.get("modelgraded_spec"))
    spec = mapping(specs.get(name))
    if not spec:
        return {}, f"its modelgraded_spec {name} is not here"
    scores = spec.get("choice_scores")
    if not isinstance(scores, Mapping) or spec.get("format_type") == "out_message":
        return {}, f"the modelgraded_spec {name} gives no scores that a judge could give here"
    own = {**mapping(spec.get("args")), **mapping(args.get("modelgraded_spec_args"))}
    prompt = BRACES.sub(lambda match: _renamed(match[1], own), as_text(spec.get("prompt")))
    listed = ", ".join(f"{choice}: {score:g}" for choice, score in scores.items())
    return {"type": "llm_judge", "prompt": f"{prompt}\n\nThe score of each choice: {listed}."}, ""


def _renamed(name: str, own: Mapping[str, Any]) -> str:
    if name in own:
        return as_text(own[name])
    return f"{{{{{NAMES[name]}}}}}" if name in NAMES else f"{{{name}}}"


WITHOUT_IDEAL = ({"input"}, {"input", "completion", "choice"})
PAIR = {"input1", "input2"}


def _is_data(file: ToolFile) -> bool:
    is_asked = bool(file.keys & {"input", "messages"}) and bool(file.head)
    return is_asked and (
        "ideal" in file.keys or all(row.keys() in WITHOUT_IDEAL for row in file.head)
    )


def _read_data(file: ToolFile, _: Mapping[str, bytes]) -> list[ToolSuite]:
    suite = ToolSuite(file.path, {"name": PurePosixPath(file.path).stem})
    for n, (line, row) in enumerate(file.rows()):
        suite.add({"id": str(n), **_case(row)}, line)
    suite.summarise(
        "read as data of OpenAI Evals; they name no grader, so the judge of the suite scores the cases. Give the "
        "registry with evals and data to take the graders too"
    )
    return [suite]


def _is_items(file: ToolFile) -> bool:
    return bool(file.head) and all(
        "item" in row and row.keys() <= {"item", "sample"} for row in file.head
    )


def _is_eval(file: ToolFile) -> bool:
    return file.value.get("object") == "eval" and "testing_criteria" in file.value


def _read_items(file: ToolFile, _: Mapping[str, bytes]) -> list[ToolSuite]:
    suite = ToolSuite(file.path, {"name": PurePosixPath(file.path).stem})
    suite.summarise(
        "read as items of OpenAI Evals; without their eval no graders come along, and an item is its own input"
    )
    for n, (line, row) in enumerate(file.rows()):
        suite.add({"id": str(n), **_item_case(mapping(row["item"]), [])}, line)
    return [suite]


def _item_case(item: Mapping[str, Any], template: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    turns = [
        {
            "role": as_text(turn.get("role")),
            "content": _filled(message_text(turn.get("content")), item),
        }
        for turn in template
    ]
    return {"input": turns or as_text(item), "metadata": {"item": dict(item)}}


def _filled(text: str, item: Mapping[str, Any]) -> str:
    """Return a template with the values of an item; what the model said stays a variable."""

    def put(match: re.Match[str]) -> str:
        value: Any = item
        for part in match[2].split(".") if match[1] == "item" else ():
            value = mapping(value).get(part)
        return include(as_text(value)) if match[1] == "item" else match[0]

    return VARIABLE.sub(put, text)


def _read_eval(file: ToolFile, files: Mapping[str, bytes]) -> list[ToolSuite]:
    name = as_text(file.value.get("name")) or PurePosixPath(file.path).stem
    suite = ToolSuite(
        file.path, {"name": name[:200], "metadata": dict(mapping(file.value.get("metadata")))}
    )
    items, template = _beside(file, files, suite)
    if not items:
        message = (
            "the eval contains criteria and no items; put the JSON Lines of its items beside it, and the run with the "
            "template of its input"
        )
        suite.problems.append(Problem(message, file.path))
    if items and not template:
        suite.note(
            "no run with a template of the input stands beside the eval, so an item is its own input"
        )
    criteria = objects(file.value.get("testing_criteria"))
    # A case has one expected output: that of the first criterion which compares with one.
    reference = next(filter(None, map(_reference, criteria)), "")
    for criterion in criteria:
        named = f"the criterion {as_text(criterion.get('name'))}"
        if reason := _criterion(criterion, {}, reference)[1]:
            suite.note(f"{named}: {reason}; it was left out")
        elif metric := _reference(criterion) and as_text(criterion.get("evaluation_metric")):
            suite.note(
                f"{named} is changed: {metric} is computed by its published formula, and how OpenAI splits words is not "
                "published, so scores can differ"
            )
    for n, (line, item) in enumerate(items):
        evaluators = [_criterion(criterion, item, reference)[0] for criterion in criteria]
        own = [evaluator for evaluator in evaluators if evaluator]
        case = {"id": str(n), **_item_case(item, template), **({"evaluators": own} if own else {})}
        if reference:
            case["expected_output"] = _filled(reference, item)
        suite.add(case, line, suite.read_with[0])
    suite.head["verdicts"] = dict(REQUIRED)
    suite.summarise(
        f"read as an eval of OpenAI: {len(items)} items; every criterion must pass, as there"
    )
    return [suite]


def _beside(
    file: ToolFile, files: Mapping[str, bytes], suite: ToolSuite
) -> tuple[list[tuple[int, Mapping[str, Any]]], list[Mapping[str, Any]]]:
    """Return the items in the JSON Lines beside an eval, and the template of the input in its run."""
    folder, items, template = (
        PurePosixPath(file.path).parent,
        list[tuple[int, Mapping[str, Any]]](),
        list[Mapping[str, Any]](),
    )
    for path in sorted(files):
        if PurePosixPath(path).parent != folder or path == file.path:
            continue
        if path.endswith(LINES) and not items:
            rows = list(islice(_objects(files[path], path), MAX_CASES + 1))
            if rows and all("item" in row for _, row in rows):
                items = [(line, mapping(row["item"])) for line, row in rows]
                suite.read_with.insert(0, path)
        elif path.endswith(".json") and not template:
            template = _template(files[path], as_text(file.value.get("id")))
            suite.read_with += [path] if template else []
    return items, template


def _template(content: bytes, eval_id: str) -> list[Mapping[str, Any]]:
    try:
        run = mapping(read_values(content))
    except ValueError:
        return []
    if run.get("object") != "eval.run" or run.get("eval_id") != eval_id:
        return []
    return objects(mapping(mapping(run.get("data_source")).get("input_messages")).get("template"))


def _reference(criterion: Mapping[str, Any]) -> str:
    """Return the template of the text that a criterion compares the answer with by a known measure, else ""."""
    is_known = criterion.get("evaluation_metric") in SIMILARITIES
    is_similarity = criterion.get("type") == "text_similarity" and is_known
    return as_text(criterion.get("reference")).strip() if is_similarity else ""


def _criterion(
    criterion: Mapping[str, Any], item: Mapping[str, Any], reference: str
) -> tuple[dict[str, Any], str]:
    """Return the evaluator of a criterion, or why there is none; `reference` is the template of the expected output."""
    kind = as_text(criterion.get("type"))
    evaluator: dict[str, Any] = {"name": _name(criterion), "required": True}
    if kind == "string_check" and criterion.get("operation") in CHECKS:
        if as_text(criterion.get("input")).strip() != ANSWER:
            return {}, f"it checks more than {ANSWER}"
        value = _filled(as_text(criterion.get("reference")), item)
        return {**evaluator, "type": CHECKS[as_text(criterion["operation"])], "value": value}, ""
    least = criterion.get("pass_threshold")
    if own := _reference(criterion):
        if as_text(criterion.get("input")).strip() != ANSWER:
            return {}, f"it compares more than {ANSWER}"
        if own != reference:
            return {}, f"a case has one expected output, here {reference}"
        gate = {"min_score": least} if least is not None else {"required": True}
        measure = {"type": "text_similarity", "measure": criterion["evaluation_metric"]}
        return {"name": _name(criterion), **gate, **measure}, ""
    if kind == "python":
        gate = {"min_score": least} if least is not None else {"required": True}
        script = SCRIPT.format(source=as_text(criterion.get("source")).strip())
        return {"name": _name(criterion), **gate, "type": "code_judge", "script": script}, ""
    if kind not in ("score_model", "label_model"):
        metric = as_text(criterion.get("evaluation_metric"))
        return {}, f"{kind} {metric} has no counterpart here".replace("  ", " ")
    messages = [message_text(turn.get("content")) for turn in objects(criterion.get("input"))]
    prompt = _filled("\n\n".join(messages), item).replace(ANSWER, "{{output}}")
    if VARIABLE.search(prompt):
        return {}, f"its prompt shows more of the sample than {ANSWER}"
    if kind == "label_model":
        passing = ", ".join(map(as_text, criterion.get("passing_labels") or ()))
        labels = ", ".join(map(as_text, criterion.get("labels") or ()))
        prompt += (
            f"\n\nThe labels are: {labels}. The score is 1 for {passing}, and 0 for any other."
        )
        return {**evaluator, "type": "llm_judge", "prompt": prompt}, ""
    low, high = _range(criterion)
    prompt += (
        f"\n\nThe score is 0 for what these instructions would score {low:g}, and 1 for {high:g}."
    )
    gate = {"required": True} if least is None else {"min_score": (least - low) / (high - low)}
    return {"name": _name(criterion), **gate, "type": "llm_judge", "prompt": prompt}, ""


def _range(criterion: Mapping[str, Any]) -> tuple[float, float]:
    given = criterion.get("range")
    if isinstance(given, list) and len(given) == 2 and given[0] != given[1]:
        return given[0], given[1]
    return 0.0, 1.0


def _name(criterion: Mapping[str, Any]) -> str:
    return as_text(criterion.get("name")).replace("/", "-")[:100] or as_text(criterion.get("type"))


ITEM, RUN = "eval.run.output_item", "eval.run"


def _items(file: ToolFile) -> list[Mapping[str, Any]]:
    listed = objects(file.value.get("data")) or [file.value, *file.head]
    return [item for item in listed if item.get("object") == ITEM]


def _read_output_items(file: ToolFile) -> ToolResults:
    items = objects(file.value.get("data")) or [row for _, row in file.rows()]
    note = (
        "the items say which criteria passed; scores outside 0 to 1 are on scales that the file does not contain, so these "
        "criteria score 1 or 0, and so does the result"
    )
    return ToolResults(((0, _result(item)) for item in items), (note,))


def _result(item: Mapping[str, Any]) -> dict[str, Any]:
    sample = mapping(item.get("sample"))
    usage, error = mapping(sample.get("usage")), mapping(sample.get("error"))
    said = objects(sample.get("output"))
    status = as_text(item.get("status"))
    row: dict[str, Any] = {
        "suite": make_slug(as_text(item.get("eval_id"))),
        "eval_id": as_text(item.get("datasource_item_id")),
        "target": as_text(sample.get("model")),
        "input": as_turns(sample.get("input")) or as_text(item.get("datasource_item")),
        "metadata": {"item": item.get("datasource_item")},
        "output": message_text(said[-1].get("content")) if said else None,
        "usage": {
            "input_tokens": usage.get("prompt_tokens"),
            "output_tokens": usage.get("completion_tokens"),
        },
        "evaluator_results": [_graded(result) for result in objects(item.get("results"))],
    }
    if status not in ("pass", "fail"):
        reason = as_text(error.get("message")) or f"the status is {status}"
        return {
            **row,
            "status": "error",
            "error": reason,
            "error_stage": "evaluator" if said else "target",
        }
    return {**row, "verdict": status, "score": float(status == "pass")}


def _graded(result: Mapping[str, Any]) -> dict[str, Any]:
    score, passed = result.get("score"), result.get("passed") is True
    is_share = isinstance(score, int | float) and 0 <= score <= 1
    return {
        "name": as_text(result.get("name")),
        "type": {"score_model": "llm_judge", "label_model": "llm_judge"}.get(
            as_text(result.get("type")), as_text(result.get("type"))
        ),
        "score": score if is_share else float(passed),
        "reasoning": ("Passed" if passed else "Failed")
        + ("." if is_share else f" with the score {as_text(score)}."),
    }


FORMATS = (
    ToolFormat(
        TOOL, "a registry of OpenAI Evals", _is_registry, read_suites=_read_registry, levels_up=1
    ),
    ToolFormat(TOOL, "data of OpenAI Evals", _is_data, read_suites=_read_data),
    ToolFormat(
        TOOL,
        "pairs of inputs of OpenAI Evals",
        lambda file: file.keys >= PAIR,
        refusal="a case has one input; write each as a case of its own",
    ),
    ToolFormat(TOOL, "items of OpenAI Evals", _is_items, read_suites=_read_items),
    ToolFormat(TOOL, "an eval of OpenAI", _is_eval, read_suites=_read_eval),
    ToolFormat(
        TOOL,
        "output items of a run of OpenAI Evals",
        lambda file: bool(_items(file)),
        read_results=_read_output_items,
    ),
    ToolFormat(
        TOOL,
        "a run of OpenAI Evals",
        lambda file: file.value.get("object") == RUN,
        refusal="it contains counts, but no answers and no verdicts; import the output items of the run",
    ),
)
