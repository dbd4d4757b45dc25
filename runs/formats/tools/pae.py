"""personal_agent_eval (PAE): suites that select cases, single cases, and a zip of the outputs of runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from io import BytesIO
from pathlib import PurePosixPath
from typing import Any

from runs.formats.bundles import SkippedFiles, unzip
from runs.formats.tools._base import (
    NothingToReadError,
    ToolFile,
    ToolFormat,
    ToolResults,
    ToolSuite,
    archive_names,
    as_text,
    mapping,
    message_text,
    objects,
    read_values,
)
from runs.formats.yaml import decode_text, read_document
from runs.specs.problems import Problem, UnreadableFileError

TOOL = "PAE"
CASE_FILE = "test.yaml"
IN_WORKSPACE = "openclaw_workspace_file_present"
OUTPUT = re.compile(r"(?:\A|/)(run|raw_outputs/final_result|raw_outputs/judge)_(\d+)\.json\Z")
FINAL_RESULT = "raw_outputs/final_result_"
JUDGE = "hybrid_judge"
# The judge's overall score from 0 to 10 is the score, as there.
POLICY = {"final_score": "judge_overall", "scale": 10}
CHECKED = {
    "final_response_present",
    "tool_call_count",
    "file_contains",
    "file_exists",
    "file_present",
    "path_exists",
} | {
    *(
        "output_artifact_present",
        "artifact_contains",
        "status_is",
        "contains",
        "equals",
        "regex",
        "json_schema",
        "is_json",
    )
}
MILLISECONDS = 1_000


def _is_case(file: ToolFile) -> bool:
    return file.value.keys() >= {"case_id", "input"} and bool(
        file.value.keys() & {"runner", "expectations", "rubric", "deterministic_checks"}
    )


def _is_suite(file: ToolFile) -> bool:
    return file.value.keys() >= {"suite_id", "case_selection"}


def _read_case(file: ToolFile, _: Mapping[str, bytes]) -> list[ToolSuite]:
    suite = ToolSuite(file.path, {"name": as_text(file.value.get("case_id")), "policy": POLICY})
    _add(suite, file.value, file.path)
    if not suite.cases:
        raise UnreadableFileError(suite.notes)
    suite.summarise(
        "read as a case of PAE; give its folder with the suites to get their selections of cases"
    )
    return [suite]


def _read_suite(file: ToolFile, files: Mapping[str, bytes]) -> list[ToolSuite]:
    name = as_text(file.value.get("suite_id"))
    models = [
        as_text(model.get("label") or model.get("model_id"))
        for model in objects(file.value.get("models"))
    ]
    suite = ToolSuite(
        file.path,
        {
            "name": name,
            "title": as_text(file.value.get("title"))[:200],
            "policy": POLICY,
            "metadata": {**mapping(file.value.get("metadata")), "models": models},
        },
    )
    selection = mapping(file.value.get("case_selection"))
    wanted = [as_text(key) for key in selection.get("include_case_ids") or ()]
    known = _cases(PurePosixPath(file.path).parent.parent / "cases", files)
    for key in _selected(selection, known):
        path, values = known[key]
        suite.read_with.append(path)
        _add(suite, values, path)
    missing = [key for key in wanted if key not in known]
    if missing:
        suite.note(
            f"its cases {', '.join(missing)} are not here and were left out; give the folder with suites and cases"
        )
    if not suite.cases:
        raise NothingToReadError(suite.notes or [Problem("the suite selects no case", file.path)])
    suite.summarise(
        f"read as a suite of PAE: {len(suite.cases)} cases. Set up its models as targets: {', '.join(models)}; "
        "repetitions, the judge and its iterations are chosen for a run"
    )
    return [suite]


def _cases(
    folder: PurePosixPath, files: Mapping[str, bytes]
) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Return the cases below a folder by id, each with its path."""
    found: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for path in sorted(files):
        at = PurePosixPath(path)
        if at.name == CASE_FILE and at.is_relative_to(folder):
            values = mapping(read_document(decode_text(files[path], path), path).value)
            found.setdefault(as_text(values.get("case_id")), (path, values))
    return found


def _selected(
    selection: Mapping[str, Any], known: Mapping[str, tuple[str, Mapping[str, Any]]]
) -> Iterator[str]:
    """Yield the ids of the cases that a suite selects, by id or tag, in its order."""
    ids, tags = (
        list(map(as_text, selection.get(f"include_{name}") or ())) for name in ("case_ids", "tags")
    )
    without_ids, without_tags = (
        set(map(as_text, selection.get(f"exclude_{name}") or ())) for name in ("case_ids", "tags")
    )
    tagged = [
        key for key, (_, values) in known.items() if set(values.get("tags") or ()) & set(tags)
    ]
    for key in dict.fromkeys([*ids, *tagged]):
        if (
            key in known
            and key not in without_ids
            and not set(known[key][1].get("tags") or ()) & without_tags
        ):
            yield key


def _add(suite: ToolSuite, values: Mapping[str, Any], path: str) -> None:
    """Add a case; one whose turns are asked one after the other is left out."""
    key, asked = as_text(values.get("case_id")), mapping(values.get("input"))

    def note(message: str) -> None:
        suite.notes.append(Problem(message, path, case=key))

    if asked.get("turns"):
        note(
            "its turns are asked one after the other, each with the answer before it, which is not done here; left out"
        )
        return
    for name in ("attachments", "context", "source"):
        if asked.get(name):
            note(f"input.{name} has no counterpart here and is kept with the metadata")
    turns = [
        {"role": as_text(turn.get("role")), "content": message_text(turn.get("content"))}
        for turn in objects(asked.get("messages"))
    ]
    kept = {name: part for name, part in asked.items() if name != "messages"}
    case = {
        "id": key,
        "title": as_text(values.get("title"))[:300],
        "tags": values.get("tags") or [],
        "input": turns,
        "metadata": {**mapping(values.get("metadata")), **({"input": kept} if kept else {})},
        "evaluators": [_judge(values, note)],
    }
    suite.add(case, 0, path)


def _judge(values: Mapping[str, Any], note: Callable[[str], None]) -> dict[str, Any]:
    """Return the hybrid judge of a case: its checks, its expectations and its rubric as instructions."""
    expectations = mapping(values.get("expectations"))
    judge: dict[str, Any] = {"type": JUDGE}
    for name in ("hard", "soft"):
        listed = objects(expectations.get(f"{name}_expectations"))
        judge[f"{name}_expectations"] = [as_text(each.get("text")) for each in listed]
        if any("weight" in each for each in listed):
            note(f"the weights of {name} expectations have no counterpart here and were left out")
    checks = [_check(check, note) for check in objects(values.get("deterministic_checks"))]
    judge["checks"] = [check for check in checks if check]
    judge["instructions"] = _instructions(mapping(values.get("rubric")))
    return {name: part for name, part in judge.items() if part}


def _check(check: Mapping[str, Any], note: Callable[[str], None]) -> dict[str, Any]:
    """Return a check in our words, an empty one for what has no counterpart."""
    declared = dict(mapping(check.get("declarative")))
    kind = as_text(declared.get("kind"))
    label = {
        "name": as_text(check.get("check_id"))[:100],
        "dimensions": check.get("dimensions") or [],
    }
    if kind == IN_WORKSPACE:
        path, text = declared.get("relative_path"), declared.get("contains")
        settings = (
            {"type": "file_contains", "path": path, "value": text}
            if text
            else {"type": "file_exists", "path": path}
        )
        return {**label, **settings}
    if kind in CHECKED:
        return {**label, **declared}
    what = f"the kind {kind}" if kind else "a program, which is not imported"
    note(f"the check {label['name']} is of {what} and has no counterpart here; it was left out")
    return {}


def _instructions(rubric: Mapping[str, Any]) -> str:
    """Return a rubric as text: the anchors of its scale, its criteria, and how to score."""
    lines = [
        f"{score}: {text}"
        for score, text in mapping(mapping(rubric.get("scale")).get("anchors")).items()
    ]
    for criterion in objects(rubric.get("criteria")):
        good, bad = (as_text(criterion.get(f"what_{name}_looks_like")) for name in ("good", "bad"))
        lines.append(f"{as_text(criterion.get('name'))}. Good: {good} Bad: {bad}")
    lines.append(as_text(rubric.get("scoring_instructions")).strip())
    return "\n".join(filter(None, lines))


def _is_outputs(file: ToolFile) -> bool:
    return file.is_archive and any(FINAL_RESULT in name for name in archive_names(file))


def _read_outputs(file: ToolFile) -> ToolResults:
    archive = unzip(BytesIO(file.content), file.path, SkippedFiles())
    runs, results = dict[str, tuple[int, Mapping[str, Any]]](), dict[str, Mapping[str, Any]]()
    costs: dict[str, Decimal | None] = {}
    for path, content in sorted(archive.files.items()):
        if not (kind := OUTPUT.search(path)):
            continue
        try:
            values = mapping(read_values(content))
        except ValueError as error:
            problem = Problem(f"not readable as JSON: {error}", f"{file.path}/{path}")
            raise UnreadableFileError([problem]) from error
        if kind[1] == "run":
            identity = mapping(values.get("identity"))
            runs[as_text(identity.get("run_id"))] = int(kind[2]), values
        elif kind[1].endswith("final_result"):
            results[path] = values
        else:
            costs[path.replace("judge_", "final_result_")] = _cost(values)
    alone = [path for path, values in results.items() if as_text(values.get("run_id")) not in runs]
    notes = []
    if alone:
        notes.append(
            f"{len(alone)} results have no run in the zip, so their outputs and costs are missing"
        )
    rows = [
        _row(values, *runs.get(as_text(values.get("run_id")), (0, {})), costs.get(path))
        for path, values in results.items()
    ]
    suites = sorted({as_text(row["suite"]) for _, row in rows} - {""})
    if len(suites) > 1:
        # A file of results belongs to one suite.
        rows = [(line, {**row, "suite": ""}) for line, row in rows]
        notes.append(
            f"these are results of the suites {', '.join(suites)}, and become runs of one new suite; zip the "
            "outputs of one to bring them to it"
        )
    return ToolResults(rows, tuple(notes))


def _cost(judged: Mapping[str, Any]) -> Decimal | None:
    """Return what the attempts of a judge cost together, None where no price is known."""
    usages = [mapping(attempt.get("usage")) for attempt in objects(judged.get("raw_results"))]
    costs = [
        Decimal(str(usage["cost"]))
        for usage in usages
        if isinstance(usage.get("cost"), int | float)
    ]
    return sum(costs, Decimal(0)) if costs else None


def _row(
    final: Mapping[str, Any], repetition: int, run: Mapping[str, Any], judge_cost: Decimal | None
) -> tuple[int, dict[str, Any]]:
    """Return a line: the final evaluation, which a judge gives to runs that failed too, and what the run cost."""
    usage, error = mapping(run.get("usage")), mapping(run.get("error"))
    tokens, request = mapping(usage.get("normalized")), mapping(run.get("request"))
    chosen = mapping(mapping(request.get("metadata")).get("model_selection"))
    seconds = mapping(run.get("timing")).get("duration_seconds")
    events = objects(run.get("trace"))
    said = [event for event in events if event.get("event_type") == "final_output"]
    asked = objects(mapping(request.get("metadata")).get("resolved_messages"))
    failed = [f"the run failed: {as_text(error.get('message'))}"] if error else []
    warnings = final.get("warnings")
    return 0, {
        **final,
        "eval_id": as_text(final.get("case_id")),
        "suite": as_text(mapping(run.get("identity")).get("suite_id")),
        "target": as_text(chosen.get("label") or request.get("requested_model")),
        "repetition": repetition,
        "input": [
            {"role": as_text(turn.get("role")), "content": message_text(turn.get("content"))}
            for turn in asked
        ],
        "output": as_text(said[-1].get("content")) if said else None,
        "messages": _messages(events),
        "usage": {
            "input_tokens": tokens.get("input_tokens"),
            "output_tokens": tokens.get("output_tokens"),
        },
        "run_cost_usd": usage.get("cost_usd"),
        "evaluation_cost_usd": None if judge_cost is None else str(judge_cost),
        "latency_ms": seconds * MILLISECONDS if isinstance(seconds, int | float) else None,
        "timestamp": as_text(mapping(run.get("timing")).get("completed_at")),
        "warnings": [*(warnings if isinstance(warnings, list) else []), *failed],
    }


def _messages(events: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    for event in events:
        kind, call = event.get("event_type"), event.get("call_id")
        if kind == "message" and event.get("role"):
            turns.append(
                {"role": as_text(event["role"]), "content": message_text(event.get("content"))}
            )
        elif kind == "tool_call":
            made = {
                "id": call,
                "name": event.get("tool_name"),
                "arguments": event.get("parsed_arguments"),
            }
            turns.append({"role": "assistant", "content": "", "tool_calls": [made]})
        elif kind == "tool_result":
            turns.append(
                {"role": "tool", "content": as_text(event.get("output")), "tool_call_id": call}
            )
    return turns


def _is_run(file: ToolFile) -> bool:
    return file.value.keys() >= {"identity", "trace", "usage", "runner_metadata"}


FORMATS = (
    ToolFormat(TOOL, "a case of PAE", _is_case, read_suites=_read_case),
    ToolFormat(TOOL, "a suite of PAE", _is_suite, read_suites=_read_suite, levels_up=1),
    ToolFormat(TOOL, "the outputs of PAE", _is_outputs, read_results=_read_outputs),
    ToolFormat(
        TOOL,
        "a run of PAE",
        _is_run,
        refusal="it has no score; import a zip of the folder outputs, with its runs and evaluations",
    ),
)
