"""Results of promptfoo, in JSON, YAML, JSON Lines and CSV: each with its verdict and its assertions as reported."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runs.formats.tables import Table
from runs.formats.tools._base import (
    Row,
    ToolFile,
    ToolFormat,
    ToolResults,
    as_text,
    mapping,
    objects,
)
from runs.formats.tools.promptfoo import (
    THRESHOLD,
    Keys,
    assertion_names,
    fill_all,
    prompt_endings,
    prompt_tags,
    suite_name,
)

TOOL = "promptfoo"
OF_A_ROW = {"testIdx", "promptIdx", "success", "failureReason"}
# What `failureReason` says of a row that could not be graded.
ERRORED = 2
OUTPUT_COLUMN = re.compile(r"\A\[(?P<provider>[^\]]+)\] (?P<prompt>.+)\Z", re.S)
LOOKED_AT = 1_000
VERDICTS = {"PASS": "pass", "FAIL": "fail", "ERROR": ""}
FROM_CSV = (
    "the table has rounded scores and no single assertions; promptfoo's results in JSON have both, and the times, "
    "tokens and costs too"
)


def _rows_in(file: ToolFile) -> list[Mapping[str, Any]]:
    results = file.value.get("results")
    # Since version 3 the rows are a level deeper.
    return objects(results.get("results") if isinstance(results, Mapping) else results)


def _is_document(file: ToolFile) -> bool:
    return any(row.keys() >= {"success", "vars"} for row in _rows_in(file)[:1])


def _is_lines(file: ToolFile) -> bool:
    return bool(file.head) and file.head[0].keys() >= OF_A_ROW


def _read_document(file: ToolFile) -> ToolResults:
    description = mapping(file.value.get("config")).get("description")
    rows = [(0, row) for row in _rows_in(file)]
    return ToolResults(_lines(rows, suite_name(description, file.path)))


def _read_lines(file: ToolFile) -> ToolResults:
    return ToolResults(_lines(list(file.rows()), ""))


def _lines(rows: Sequence[Row], suite: str) -> Iterator[Row]:
    rows = sorted(rows, key=lambda row: (_number(row[1], "testIdx"), _number(row[1], "promptIdx")))
    labels = list(dict.fromkeys(_label(row) for _, row in rows))
    keys, endings = Keys(), prompt_endings(labels)
    for number, row in rows:
        test = mapping(row.get("testCase"))
        variables = mapping(row.get("vars")) or mapping(test.get("vars"))
        key = keys.key(as_text(test.get("description")), variables, [test.get("assert")])
        yield (
            number,
            {
                "suite": suite,
                "eval_id": key + endings[_label(row)],
                "title": as_text(test.get("description")),
                "tags": prompt_tags(_label(row), labels),
                "metadata": {**mapping(test.get("metadata")), "vars": dict(variables)},
                "input": as_text(mapping(row.get("prompt")).get("raw")),
                **_outcome(row, variables, test),
                **_figures(row),
            },
        )


def _number(row: Mapping[str, Any], name: str) -> int:
    value = row.get(name)
    return value if isinstance(value, int) else 0


def _label(row: Mapping[str, Any]) -> str:
    prompt = mapping(row.get("prompt"))
    return as_text(prompt.get("label")) or as_text(prompt.get("raw"))


def _outcome(
    row: Mapping[str, Any], variables: Mapping[str, Any], test: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the target, the answer, the verdict and the evaluators of a row."""
    provider, response = row.get("provider"), mapping(row.get("response"))
    target = mapping(provider).get("label") or mapping(provider).get("id") or provider
    answer = response.get("output")
    shared = {"target": as_text(target), "output": None if answer is None else as_text(answer)}
    if row.get("failureReason") == ERRORED:
        reason = as_text(row.get("error")) or "promptfoo gives no reason for this error"
        return {**shared, "status": "error", "error": reason, "error_stage": "target"}
    grading = mapping(row.get("gradingResult"))
    evaluators = _evaluators(objects(grading.get("componentResults")), variables)
    if test.get("threshold") and evaluators:
        whole = {"name": THRESHOLD, "type": "composite", "score": _share(row.get("score"))}
        evaluators = [{**whole, "aggregator": {}, "evaluator_results": evaluators}]
    verdict = "pass" if row.get("success") is True else "fail"
    return {
        **shared,
        "score": _share(row.get("score")),
        "verdict": verdict,
        "evaluator_results": evaluators,
    }


def _share(score: Any) -> Any:
    """Return a score of 0 to 1; a program there may give more, which counts as 1."""
    is_number = isinstance(score, int | float) and not isinstance(score, bool)
    return min(1.0, max(0.0, float(score))) if is_number else score


def _evaluators(
    components: Sequence[Mapping[str, Any]], variables: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the results of the assertions; those of a set follow it once more, and are left out there."""
    own: list[Mapping[str, Any]] = []
    skip = 0
    for component in components:
        if skip:
            skip -= 1
            continue
        own.append(component)
        if _set(component):
            skip = len(objects(component.get("componentResults")))
    assertions = [_assertion(component) for component in own]
    names = assertion_names(fill_all(list(assertions), variables))
    return [
        _evaluator(component, assertion, name, variables)
        for component, assertion, name in zip(own, assertions, names, strict=True)
    ]


def _set(component: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(mapping(component.get("metadata")).get("assertionSet"))


def _assertion(component: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(component.get("assertion")) or _set(component)


def _evaluator(
    component: Mapping[str, Any],
    assertion: Mapping[str, Any],
    name: str,
    variables: Mapping[str, Any],
) -> dict[str, Any]:
    kind = as_text(assertion.get("type"))
    is_negated = kind.startswith("not-")
    tokens = mapping(component.get("tokensUsed"))
    weight = assertion.get("weight")
    evaluator: dict[str, Any] = {
        "name": name,
        "type": kind.removeprefix("not-"),
        "score": _share(component.get("score")),
        "weight": 1 if weight is None else weight,
        "negate": is_negated,
        "reasoning": as_text(component.get("reason")),
        "usage": {"input_tokens": tokens.get("prompt"), "output_tokens": tokens.get("completion")},
    }
    if _set(component):
        inner = _evaluators(objects(component.get("componentResults")), variables)
        evaluator |= {"type": "composite", "aggregator": {}, "evaluator_results": inner}
    return evaluator


def _figures(row: Mapping[str, Any]) -> dict[str, Any]:
    tokens = mapping(row.get("tokenUsage")) or mapping(
        mapping(row.get("response")).get("tokenUsage")
    )
    is_known = row.get("failureReason") != ERRORED
    return {
        "latency_ms": row.get("latencyMs"),
        "run_cost_usd": row.get("cost") if is_known else None,
        "usage": {"input_tokens": tokens.get("prompt"), "output_tokens": tokens.get("completion")}
        if is_known
        else {},
    }


def _outputs(table: Table) -> list[tuple[int, str, str]]:
    """Return the column of each output with its provider and its prompt."""
    found = []
    for n, column in enumerate(table.columns):
        match = OUTPUT_COLUMN.match(column)
        if match and table.columns[n + 1 : n + 2] and table.columns[n + 1].startswith("Status"):
            prompt = re.sub(r" \(\d+\)\Z", "", match["prompt"])
            found.append((n, match["provider"], prompt))
    return found


def _is_table(file: ToolFile) -> bool:
    return file.table is not None and bool(_outputs(file.table))


def _read_table(file: ToolFile) -> ToolResults:
    return ToolResults(_table_lines(file), (FROM_CSV,))


def _table_lines(file: ToolFile) -> Iterator[Row]:
    table = file.table
    if table is None:
        return
    outputs = _outputs(table)
    labels = list(dict.fromkeys(prompt for _, _, prompt in outputs))
    keys, endings, first = Keys(), prompt_endings(labels), outputs[0][0]
    places = [at for at, _, _ in outputs] + [len(table.columns)]
    for row in table.rows:
        before = dict(zip(table.columns[:first], row.cells[:first], strict=True))
        title = before.pop("Description", "")
        key = keys.key(title, before)
        for (at, provider, prompt), end in zip(outputs, places[1:], strict=True):
            names = [re.sub(r" \(\d+\)\Z", "", name) for name in table.columns[at + 1 : end]]
            cells = dict(zip(names, row.cells[at + 1 : end], strict=True))
            yield (
                row.line,
                {
                    "eval_id": key + endings[prompt],
                    "title": title,
                    "tags": prompt_tags(prompt, labels),
                    "metadata": {"vars": before},
                    "input": fill_all(prompt, before),
                    "target": provider,
                    "output": row.cells[at],
                    **_verdict(cells),
                },
            )


def _verdict(cells: Mapping[str, str]) -> dict[str, Any]:
    verdict, reason = (
        VERDICTS.get(cells.get("Status", "").strip(), ""),
        cells.get("Grader Reason", ""),
    )
    if not verdict:
        return {
            "status": "error",
            "error": reason or "promptfoo gives no reason for this error",
            "error_stage": "target",
        }
    score = cells.get("Score", "")
    return {
        "score": _share(float(score)) if re.fullmatch(r"-?\d+(?:\.\d+)?", score) else None,
        "verdict": verdict,
        "reasoning": reason,
    }


def _is_junit(file: ToolFile) -> bool:
    return b"<testsuite" in file.content[:LOOKED_AT]


FORMATS = (
    ToolFormat(TOOL, "results of promptfoo", _is_document, read_results=_read_document),
    ToolFormat(TOOL, "results of promptfoo in JSON Lines", _is_lines, read_results=_read_lines),
    ToolFormat(TOOL, "results of promptfoo as a table", _is_table, read_results=_read_table),
    ToolFormat(
        TOOL,
        "a JUnit report",
        _is_junit,
        refusal="it has verdicts, but no answers and no scores; import the results that the tool writes in JSON",
    ),
)
