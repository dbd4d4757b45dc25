"""Inspect: logs in both forms are the same results, datasets are cases, and neither is taken for the other."""

from __future__ import annotations

import json
import struct
import zipfile
from io import BytesIO

import pytest
import zstandard

from runs.formats.finding import read_suites
from runs.formats.results_reading import read_results
from runs.formats.tools import inspect_ai, refuse_results
from runs.specs.problems import UnreadableFileError
from tests.formats.tools.support import found, given


def sample(key, epoch=1, *, values=None, **more):
    scores = {
        name: {"value": value, "explanation": "because"} for name, value in (values or {}).items()
    }
    return {
        "id": key,
        "epoch": epoch,
        "input": "attachment://q1",
        "target": ["Lima", "LIMA"],
        "attachments": {"q1": "What is the capital of Peru?"},
        "messages": [
            {"role": "user", "content": "attachment://q1"},
            {"role": "assistant", "content": "", "tool_calls": [{"id": "t", "function": "look", "arguments": {"a": 1}}]},
            {"role": "tool", "content": [{"type": "text", "text": "Lima"}, {"type": "image"}], "tool_call_id": "t"},
        ],
        "output": {"completion": "Lima"},
        "scores": scores,
        "model_usage": {
            "maker/model": {"input_tokens": 11, "output_tokens": 7},
            "maker/judge": {"input_tokens": 30, "output_tokens": 3},
        },
        "metadata": {"n": 1},
        "working_time": 0.25,
        "completed_at": "2026-05-03T12:00:00+00:00",
        **more,
    }  # fmt: skip


SAMPLES = [
    sample(4, values={"match": "I", "parts": {"short": 1, "kind": 0.5}}),
    sample("pe", 2, values={"match": "P", "parts": 7}),
    sample(
        "pe",
        1,
        values={"match": "C", "parts": float("nan")},
        limit={"type": "message", "reason": "6 messages"},
    ),
    sample("boom/1", error={"message": "the tool went away"}),
    sample("none"),
]
HEAD = {
    "version": 2,
    "status": "success",
    "eval": {
        "task": "capitals",
        "model": "maker/model",
        "dataset": {"sample_ids": ["pe", 4, "boom/1", "none"]},
        "scorers": [{"name": "match"}, {"name": "parts"}],
    },
    "results": {
        "total_samples": 6,
        "scores": [{"scorer": "match", "reducer": "mode"}],
        "headline": {"scorer": "match"},
    },
}


def archive(members):
    """Return a zip whose members are compressed with zstandard, which zipfile does not write."""
    stream, at = BytesIO(), {}
    with zipfile.ZipFile(stream, "w") as packed:
        for name, content in members.items():
            packed.writestr(name, zstandard.ZstdCompressor().compress(content))
        at = [info.header_offset for info in packed.infolist()]
        start = packed.start_dir
    content = bytearray(stream.getvalue())
    for offset in at:
        struct.pack_into("<H", content, offset + 8, 93)
    while content[start : start + 4] == b"PK\x01\x02":
        struct.pack_into("<H", content, start + 10, 93)
        start += 46 + sum(struct.unpack_from("<3H", content, start + 28))
    return bytes(content)


def log(form):
    if form == "json":
        return json.dumps({**HEAD, "samples": SAMPLES}).encode()
    members = {
        f"samples/{one['id']}_epoch_{one['epoch']}.json": json.dumps(one).encode()
        for one in SAMPLES
    }
    return archive(
        {"_journal/start.json": b"{}", **members, "header.json": json.dumps(HEAD).encode()}
    )


class Counted(bytes):
    """The bytes of a file that counts how many of them are copied."""

    copied = 0

    def __getitem__(self, part):
        found = super().__getitem__(part)
        if isinstance(part, slice):
            type(self).copied += len(found)
        return found


def test_a_member_is_unpacked_without_a_copy_of_the_log_around_it():
    content = Counted(log("eval"))
    Counted.copied = 0
    with zipfile.ZipFile(BytesIO(content)) as packed:
        for member in packed.infolist():
            # A member may claim to reach to the end of the log, as all others do.
            member.compress_size = len(content)
            assert inspect_ai._unpack(content, packed, member, 10_000)
    assert Counted.copied == 0


def test_a_log_without_a_readable_order_keeps_its_own():
    evaluation = {**HEAD["eval"], "dataset": {"sample_ids": 5}}
    content = json.dumps({**HEAD, "eval": evaluation, "samples": SAMPLES}).encode()
    keys = [entry.result.eval_id for entry in read_results(content, file="a.json").results]
    assert keys == ["4", "pe", "boom/1", "none", "pe"]


@pytest.mark.parametrize("form", ["json", "eval"])
def test_a_log_is_results_with_scores_errors_usage_and_conversation(form):
    read = read_results(log(form), file=f"a.{form}")
    lines = [entry.result for entry in read.results]
    assert [
        (line.eval_id, line.repetition, line.status, line.score, line.verdict) for line in lines
    ] == [
        ("pe", 1, "scored", 1.0, ""),
        ("pe", 2, "scored", 0.5, ""),
        ("4", 1, "scored", 0.0, ""),
        ("boom/1", 1, "error", None, ""),
        ("none", 1, "error", None, ""),
    ]
    first, bad = lines[0], lines[2]
    assert (first.suite, first.target, first.output) == ("capitals", "maker/model", "Lima")
    assert (first.usage.input_tokens, first.usage.output_tokens, first.usage.latency_ms) == (
        11,
        7,
        250,
    )
    assert first.warnings == ("stopped by a limit: 6 messages",)
    # The first scorer decides. What another model read and wrote belongs to it.
    assert [
        (one.name, one.score, one.weight, one.usage.input_tokens) for one in bad.evaluators
    ] == [
        ("match", 0.0, 1, 30),
        ("parts", 0.75, 0, None),
    ]
    assert [(one.name, one.score) for one in bad.evaluators[1].children] == [
        ("short", 1.0),
        ("kind", 0.5),
    ]
    assert lines[1].evaluators[1].score is None
    assert lines[1].evaluators[1].reasoning.startswith("Inspect's value 7 is not from 0 to 1.")
    assert (lines[3].error, lines[4].error) == (
        "the tool went away",
        "the log has no score of this sample",
    )
    entry = read.results[0]
    assert entry.input == ({"role": "user", "content": "What is the capital of Peru?"},)
    assert (entry.expected_output, entry.metadata["targets"]) == ("Lima", ["Lima", "LIMA"])
    assert entry.messages[1]["tool_calls"][0]["name"] == "look"
    assert entry.messages[2]["content"] == "Lima\n[image]"
    notes = " ".join(map(str, read.notes))
    for part in ("no verdicts", "5 of 6 samples", "reducers mode", "scorer match decides"):
        assert part in notes


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (archive({"header.json": json.dumps(HEAD).encode()}), "contains no samples"),
        (archive({"header.json": b"{}", "samples/1.json": bytes(60_000_000)}), "samples/1.json is too large"),
        (archive({"header.json": b"{}", "samples/1.json": b"[" * 100_000}), "cannot be read"),
        (log("eval")[:700] + bytes(20) + log("eval")[720:], "cannot be read"),
    ],
)  # fmt: skip
def test_a_damaged_or_swollen_log_is_refused(content, reason):
    with pytest.raises(UnreadableFileError) as refusal:
        read_results(content, file="a.eval")
    assert reason in str(refusal.value)


@pytest.mark.parametrize("form", ["json", "eval"])
def test_a_log_given_as_cases_is_refused_by_name(form):
    for refuse in (
        lambda: read_suites([given({f"a.{form}": log(form)})]),
        lambda: refuse_results(log(form), "a"),
    ):
        with pytest.raises(
            UnreadableFileError,
            match=r"an Inspect log.*no cases; import it as the results of a run",
        ):
            refuse()


LINES = """\
{"input": "Which fruit?", "target": "B", "choices": ["Stone", "Pear"], "metadata": {"n": 1}, "sandbox": "docker"}
{"id": "pe", "input": [{"role": "system", "content": "Brief."}, {"role": "user", "content": "Peru?"}], "target": ["Lima", "LIMA"]}
"""
TABLE = 'id,input,target,choices,metadata\n,Which fruit?,B,"[""Stone"", ""Pear""]","{""n"": 1}"\npe,Peru?,Lima,,\n'


def test_a_dataset_is_cases_in_every_form():
    [suite], notes = found({"fruit.jsonl": LINES})
    one, two = suite.cases
    assert (suite.slug, one.key, two.key) == ("fruit", "1", "pe")
    assert one.input[0]["content"] == "Which fruit?\n\nA) Stone\nB) Pear"
    assert (one.expected_output, one.metadata["n"], one.metadata["sandbox"]) == ("B", 1, "docker")
    assert [turn["role"] for turn in two.input] == ["system", "user"]
    assert (two.expected_output, two.metadata["targets"]) == ("Lima", ["Lima", "LIMA"])
    assert any("line 1, case 1: sandbox has no counterpart" in note for note in notes)
    [table], _ = found({"fruit.csv": TABLE})
    assert [(case.key, case.expected_output) for case in table.cases] == [
        ("1", "B"),
        ("pe", "Lima"),
    ]
    assert table.cases[0].input == one.input
    [listed], _ = found(
        {"fruit.json": json.dumps([json.loads(line) for line in LINES.splitlines()])}
    )
    assert listed.cases == suite.cases
