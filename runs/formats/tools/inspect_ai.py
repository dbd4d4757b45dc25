"""Inspect (inspect_ai): logs as results, datasets as cases.

A log is JSON, or a zip whose members are mostly compressed with zstandard. The first scorer decides; the others are
recorded with weight 0. Inspect itself knows scores but no verdicts, so those follow from the thresholds of the suite.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import PurePosixPath
from typing import Any

from runs.formats.bundles import DAMAGE, ZSTANDARD, open_zip
from runs.formats.shared_texts import include
from runs.formats.tools._base import (
    Row,
    ToolFile,
    ToolFormat,
    ToolResults,
    ToolSuite,
    archive_names,
    as_data,
    as_text,
    mapping,
    objects,
    read_values,
)
from runs.specs.problems import Problem, UnreadableFileError

TOOL = "Inspect"
HEADER, START = "header.json", "_journal/start.json"
SAMPLES = "samples/"
LOCAL_HEADER = 30
MAX_MEMBER_BYTES, MAX_LOG_BYTES = 50 * 1024 * 1024, 500 * 1024 * 1024
ATTACHMENT = "attachment://"
# What Inspect itself makes of the values of its scorers.
VALUES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
MILLISECONDS = 1_000


def _is_archive(file: ToolFile) -> bool:
    return file.is_archive and bool({HEADER, START} & set(archive_names(file)))


def _is_log(file: ToolFile) -> bool:
    return file.value.keys() >= {"version", "status", "eval"} and "task" in mapping(
        file.value["eval"]
    )


def _read_archive(file: ToolFile) -> ToolResults:
    names = archive_names(file)
    head = mapping(next(_members(file, [HEADER if HEADER in names else START])))
    place = _places(head)
    listed = [name for name in names if name.startswith(SAMPLES)]
    samples = sorted(listed, key=lambda name: place(_named_by(name)))
    return _results(file, head, len(samples), _members(file, samples))


def _read_log(file: ToolFile) -> ToolResults:
    place = _places(file.value)
    samples = sorted(objects(file.value.get("samples")), key=lambda each: place(_named(each)))
    return _results(file, file.value, len(samples), iter(samples))


def _places(head: Mapping[str, Any]) -> Callable[[tuple[str, int]], tuple[int, int]]:
    """Return what gives a sample its place in the dataset: a log has samples in the order in which they ended."""
    ids = mapping(mapping(head.get("eval")).get("dataset")).get("sample_ids")
    order = {str(key): n for n, key in enumerate(ids if isinstance(ids, list) else ())}
    return lambda named: (order.get(named[0], len(order)), named[1])


def _named(sample: Mapping[str, Any]) -> tuple[str, int]:
    """Return the id and the epoch of a sample."""
    epoch = sample.get("epoch")
    return str(sample.get("id")), epoch if isinstance(epoch, int) else 1


def _named_by(member: str) -> tuple[str, int]:
    """Return the id and the epoch by the name of a member, so that no sample is read before its turn."""
    key, _, epoch = member.removeprefix(SAMPLES).removesuffix(".json").rpartition("_epoch_")
    return key, int(epoch) if epoch.isdecimal() else 1


def _members(file: ToolFile, names: Sequence[str]) -> Iterator[Any]:
    """Yield the values of members; raises UnreadableFileError for a damaged or too large log."""
    left = MAX_LOG_BYTES
    try:
        with open_zip(BytesIO(file.content), ZSTANDARD) as packed:
            for name in names:
                content = _unpack(
                    file.content, packed, packed.getinfo(name), min(left, MAX_MEMBER_BYTES)
                )
                left -= len(content)
                yield read_values(content)
    except DAMAGE as error:
        message = (
            f"the log cannot be read: {error}; copy it again, or convert it with inspect log dump"
        )
        raise UnreadableFileError([Problem(message, file.path)]) from error


def _unpack(content: bytes, packed: zipfile.ZipFile, member: zipfile.ZipInfo, most: int) -> bytes:
    """Return the content of a member; raises ValueError, whatever size it claims, for more than `most` bytes."""
    if member.compress_type == ZSTANDARD:
        # Loaded here, because hardly any command reads such a log.
        import zstandard

        # zipfile may not know it, so the member is cut out by its local header. A view copies
        # nothing: a log has tens of thousands of members, and each may claim to be as long as the log.
        log = memoryview(content)
        head = log[member.header_offset : member.header_offset + LOCAL_HEADER]
        lengths = int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
        start = member.header_offset + LOCAL_HEADER + lengths
        part = log[start : start + member.compress_size]
        try:
            with zstandard.ZstdDecompressor(max_window_size=MAX_MEMBER_BYTES).stream_reader(
                part
            ) as stream:
                unpacked: bytes = stream.read(most + 1)
        except zstandard.ZstdError as error:
            raise ValueError(f"{member.filename}: {error}") from error
    else:
        with packed.open(member) as stream:
            unpacked = stream.read(most + 1)
    if len(unpacked) > most:
        raise ValueError(f"{member.filename} is too large")
    return unpacked


def _results(
    file: ToolFile, head: Mapping[str, Any], count: int, samples: Iterator[Any]
) -> ToolResults:
    if not count:
        message = "the log contains no samples; write it with log_samples, and give the log itself, not its header"
        raise UnreadableFileError([Problem(message, file.path)])
    return ToolResults(_rows(head, samples), tuple(_notes(head, count)))


def _notes(head: Mapping[str, Any], count: int) -> Iterator[str]:
    evaluation, results = mapping(head.get("eval")), mapping(head.get("results"))
    yield "Inspect gives scores and no verdicts, so these follow from the thresholds of the suite"
    status = as_text(head.get("status"))
    if status != "success":
        reason = as_text(mapping(head.get("error")).get("message"))
        yield f"the log ended with status {status}{f': {reason}' if reason else ''}; its samples so far were read"
    if head.get("invalidated") is True:
        yield "the log is marked as invalidated"
    total = results.get("total_samples")
    if isinstance(total, int) and total > count:
        yield f"the log contains {count} of {total} samples"
    reducers = {as_text(score.get("reducer")) for score in objects(results.get("scores"))} - {
        "",
        "mean",
    }
    if reducers:
        yield f"of the reducers {', '.join(sorted(reducers))} only the single epochs were imported"
    if len(objects(evaluation.get("scorers"))) > 1:
        yield f"the scorer {_headline(head)} decides; the others are recorded with weight 0"


def _headline(head: Mapping[str, Any]) -> str:
    """Return the scorer whose score is that of the log, "" if the log does not say."""
    results = mapping(head.get("results"))
    named = mapping(results.get("headline")).get("scorer")
    listed = [*objects(results.get("scores")), *objects(mapping(head.get("eval")).get("scorers"))]
    first = next((score.get("scorer") or score.get("name") for score in listed), "")
    return as_text(named or first)


def _rows(head: Mapping[str, Any], samples: Iterator[Any]) -> Iterator[Row]:
    evaluation, headline = mapping(head.get("eval")), _headline(head)
    model = as_text(evaluation.get("model"))
    for sample in samples:
        row = _row(mapping(sample), model, headline)
        yield 0, {"suite": as_text(evaluation.get("task")), "target": model, **row}


def _row(sample: Mapping[str, Any], model: str, headline: str) -> dict[str, Any]:
    kept = mapping(sample.get("attachments"))
    scores = mapping(sample.get("scores"))
    spent = mapping(sample.get("model_usage"))
    own = mapping(spent.get(model))
    judged = [mapping(usage) for name, usage in spent.items() if name != model]
    error, limit = mapping(sample.get("error")), mapping(sample.get("limit"))
    seconds = sample.get("working_time") or sample.get("total_time")
    evaluators = [
        _evaluator(
            name,
            mapping(score),
            is_decisive=name == (headline if headline in scores else next(iter(scores))),
        )
        for name, score in scores.items()
    ]
    decisive = next((each for each in evaluators if each["weight"]), {})
    if judged and decisive:
        decisive["usage"] = {
            key: sum(usage.get(key) or 0 for usage in judged)
            for key in ("input_tokens", "output_tokens")
        }
    completion = mapping(sample.get("output")).get("completion")
    targets = sample.get("target")
    key, repetition = _named(sample)
    row: dict[str, Any] = {
        "eval_id": key,
        "repetition": repetition,
        "input": _turns(sample.get("input"), kept),
        "expected_output": _target(targets),
        "metadata": {**mapping(sample.get("metadata")), **_targets(targets)},
        "output": _attached(as_text(completion), kept),
        "messages": _messages(sample.get("messages"), kept),
        "evaluator_results": evaluators,
        "usage": {
            "input_tokens": own.get("input_tokens"),
            "output_tokens": own.get("output_tokens"),
        },
        "latency_ms": seconds * MILLISECONDS if isinstance(seconds, int | float) else None,
        "run_cost_usd": own.get("total_cost"),
        "timestamp": as_text(sample.get("completed_at")),
        "warnings": [f"stopped by a limit: {as_text(limit.get('reason') or limit.get('type'))}"]
        if limit
        else [],
    }
    if error:
        return {
            **row,
            "status": "error",
            "error": as_text(error.get("message")) or "no reason",
            "error_stage": "target",
        }
    if decisive.get("score") is None:
        return {
            **row,
            "status": "error",
            "error": "the log has no score of this sample",
            "error_stage": "evaluator",
        }
    return {**row, "score": decisive["score"]}


def _evaluator(name: str, score: Mapping[str, Any], *, is_decisive: bool) -> dict[str, Any]:
    value, explanation = score.get("value"), as_text(score.get("explanation"))
    evaluator: dict[str, Any] = {
        "name": name,
        "type": "llm_judge" if name.startswith("model_graded") else name,
        "weight": 1 if is_decisive else 0,
        "reasoning": explanation,
    }
    if isinstance(value, Mapping):
        parts = [{"name": key, "type": "score", **_scored(part)} for key, part in value.items()]
        known = [part["score"] for part in parts if part["score"] is not None]
        mean = sum(known) / len(known) if known and len(known) == len(parts) else None
        return {**evaluator, "score": mean, "aggregator": {}, "evaluator_results": parts}
    scored = _scored(value)
    if scored["score"] is None:
        scored["reasoning"] = f"{scored['reasoning']} {explanation}".strip()
    return {**evaluator, **scored}


def _scored(value: Any) -> dict[str, Any]:
    """Return a score of 0 to 1; any other value is no score, with the value as the reason."""
    number = VALUES.get(value, VALUES.get(value.lower())) if isinstance(value, str) else value
    if isinstance(number, bool):
        number = float(number)
    if isinstance(number, int | float) and 0 <= number <= 1:
        return {"score": float(number)}
    return {"score": None, "reasoning": f"Inspect's value {as_text(value)} is not from 0 to 1."}


def _attached(text: str, kept: Mapping[str, Any]) -> str:
    """Return a text; Inspect stores long ones apart."""
    if not text.startswith(ATTACHMENT):
        return text
    return include(as_text(kept.get(text.removeprefix(ATTACHMENT), text)))


def _content(content: Any, kept: Mapping[str, Any]) -> str:
    """Return the text of a message; parts that are no text are named."""
    if not isinstance(content, list):
        return _attached(as_text(content), kept)
    texts = [
        _attached(as_text(part.get("text") or f"[{part.get('type')}]"), kept)
        for part in objects(content)
    ]
    return "\n".join(texts)


def _turns(value: Any, kept: Mapping[str, Any]) -> list[dict[str, Any]]:
    if isinstance(value, str):
        return [{"role": "user", "content": _attached(value, kept)}]
    return [
        {"role": as_text(turn.get("role")), "content": _content(turn.get("content"), kept)}
        for turn in objects(value)
    ]


def _messages(value: Any, kept: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the conversation with its tool calls, each with the tool's name where ours have it."""
    turns = []
    for turn in objects(value):
        calls = [
            {"id": call.get("id"), "name": call.get("function"), "arguments": call.get("arguments")}
            for call in objects(turn.get("tool_calls"))
        ]
        facts = {"role": as_text(turn.get("role")), "content": _content(turn.get("content"), kept)}
        more = {"tool_calls": calls} if calls else {}
        answered = {"tool_call_id": turn["tool_call_id"]} if turn.get("tool_call_id") else {}
        turns.append({**facts, **more, **answered})
    return turns


def _target(value: Any) -> str:
    return as_text(value[0]) if isinstance(value, list) and value else as_text(value)


def _targets(value: Any) -> dict[str, Any]:
    """Return the metadata that keeps several targets, of which only one is the expected output."""
    return {"targets": value} if isinstance(value, list) and len(value) > 1 else {}


OF_A_SAMPLE = {"input", "target", "id", "choices", "metadata", "sandbox", "files", "setup"}
NOT_USED = ("sandbox", "files", "setup")


def _is_dataset(file: ToolFile) -> bool:
    return (
        bool(file.head)
        and {"input", "target"} <= file.keys
        and all(row.keys() <= OF_A_SAMPLE for row in file.head)
    )


def _read_dataset(file: ToolFile, _: Mapping[str, bytes]) -> list[ToolSuite]:
    suite = ToolSuite(file.path, {"name": PurePosixPath(file.path).stem})
    suite.summarise(
        "read as a dataset of Inspect; it names no scorers, so the judge of the suite scores the cases"
    )
    for number, (line, row) in enumerate(file.rows(), 1):
        sample = {name: as_data(value) for name, value in row.items() if value not in (None, "")}
        key = as_text(sample.get("id", number))
        turns = _turns(sample.get("input"), {})
        choices = sample.get("choices")
        if isinstance(choices, list) and choices and turns:
            listed = "\n".join(
                f"{chr(ord('A') + n)}) {as_text(each)}" for n, each in enumerate(choices)
            )
            turns[-1] = {**turns[-1], "content": f"{turns[-1]['content']}\n\n{listed}"}
            suite.note("the choices were written below the question", line, key)
        targets = sample.get("target")
        if _targets(targets):
            suite.note(
                "the first target is the expected output; the others are kept with the metadata",
                line,
                key,
            )
        for name in NOT_USED:
            if sample.get(name):
                suite.note(
                    f"{name} has no counterpart here and is kept with the metadata", line, key
                )
        kept = {name: sample[name] for name in (*NOT_USED, "choices") if sample.get(name)}
        case = {
            "id": key,
            "input": turns,
            "expected_output": _target(targets),
            "metadata": {**mapping(sample.get("metadata")), **_targets(targets), **kept},
        }
        suite.add(case, line)
    return [suite]


FORMATS = (
    ToolFormat(TOOL, "an Inspect log", _is_archive, read_results=_read_archive),
    ToolFormat(TOOL, "an Inspect log in JSON", _is_log, read_results=_read_log),
    ToolFormat(TOOL, "a dataset of Inspect", _is_dataset, read_suites=_read_dataset),
)
