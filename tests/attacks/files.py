"""Mutate an example of every format of file that is read, then give known bad shapes in two sizes.

An example is one that is read as it stands. A mutated one is read too, or refused with a message that names the
file, a line, a case or a key; it takes at most MAX_CPU_S. A shape of four times the size may take GROWTH times the
processor and memory.
"""

from __future__ import annotations

import csv
import io
import json
import os
import random
import resource
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

from google.protobuf.message import Message
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evaluators.reading.yaml import write_yaml
from evaluators.scoring.types import DomainError
from runs.drafting.material import check_length, cut_documents, document_text
from runs.formats.bundles import read_uploads
from runs.formats.finding import read_suites
from runs.formats.recorded_outputs import read_outputs, unknown_keys
from runs.formats.results_reading import read_results
from runs.formats.reviews import read_reviews
from runs.formats.table_cases import TableReading, rejected_csv
from runs.formats.table_mapping import suggest
from runs.formats.tables import read_table
from runs.formats.yaml import read_document
from runs.specs.problems import UnreadableFileError
from runs.traces.otlp import read_json_request, read_protobuf
from runs.traces.spans import TooLargeRequestError, UnreadableRequestError
from tests.attacks.mutations import TEXTS, mutate, mutate_bytes, odd_value, write_json
from tests.attacks.site import MAX_SHOWN, AttackedSite, Finding, place_of
from tests.formats import test_agentv_meaning as agentv
from tests.formats import test_agentv_results as agentv_results
from tests.formats.test_generations import FILES as GENERATIONS
from tests.formats.tools import test_experiments as experiments
from tests.formats.tools import test_inspect_ai as inspect_ai
from tests.formats.tools import test_openai_evals as openai_evals
from tests.formats.tools import test_pae as pae
from tests.formats.tools import test_promptfoo as promptfoo
from tests.formats.tools.test_any_shape import SUITES
from tests.traces.test_hostile import nested_value
from tests.traces.wire import BEGIN, any_value, request, span

MAX_CPU_S = 2.0
GROWTH = 6
# What is not worth comparing: the grain of the measurement.
LEAST_S, LEAST_MB = 0.5, 60
MUTATIONS = 1_500
# Each value within a value is two messages of protobuf, which writes no more than a hundred.
MAX_DEPTH = 20
REFUSALS = (DomainError, UnreadableRequestError, TooLargeRequestError)
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Example:
    """A file that is read, with the files around it and what stands in it."""

    path: str
    content: bytes
    around: Mapping[str, bytes]
    value: Any = None

    @property
    def suffix(self) -> str:
        return Path(self.path).suffix

    def mutated(self, chance: random.Random) -> Example:
        """Change a value in it, or its bytes, or lose one of the files around it."""
        around = dict(self.around)
        if around and chance.random() < 0.1:
            del around[chance.choice(list(around))]
        if isinstance(self.value, Message):
            message = type(self.value).FromString(self.content)
            for _ in range(chance.choice((1, 1, 2, 5))):
                _change_message(message, chance)
            return replace(self, content=message.SerializeToString())
        if self.value is None or chance.random() < 0.25:
            return replace(self, content=mutate_bytes(self.content, chance), around=around)
        changed = mutate(self.value, chance)
        match self.suffix:
            case ".jsonl":
                lines = changed if isinstance(changed, list) else [changed]
                text = "\n".join(write_json(line, chance) for line in lines)
            case ".csv":
                text = _write_csv(changed)
            case ".yaml" if chance.random() < 0.5 and _is_storable(changed):
                text = write_yaml(changed)
            case _:
                text = write_json(changed, chance)
        content = text.encode("utf-8", "surrogatepass")
        return replace(self, content=content, around=around)


def example(
    path: str, content: bytes | str | Any, around: Mapping[str, Any] | None = None
) -> Example:
    """Return an example of a file whose value can be changed as well as its bytes."""
    raw = content if isinstance(content, bytes) else str(content).encode()
    read: Callable[[str], Any] | None = {
        ".json": json.loads,
        ".jsonl": lambda text: [json.loads(line) for line in text.splitlines() if line.strip()],
        ".yaml": lambda text: read_document(text).value,
        ".csv": lambda text: list(csv.reader(io.StringIO(text))),
    }.get(Path(path).suffix)
    files = {
        name: text if isinstance(text, bytes) else text.encode()
        for name, text in (around or {}).items()
    }
    files.pop(path, None)
    return Example(path, raw, files, read(raw.decode()) if read else None)


def _write_csv(rows: Any) -> str:
    text = io.StringIO()
    for row in rows if isinstance(rows, list) else [rows]:
        cells = row if isinstance(row, list) else [row]
        # The writer refuses NUL and lone surrogates; mutated bytes bring those.
        csv.writer(text).writerow(
            [str(cell).replace("\0", "").encode("utf-8", "ignore").decode() for cell in cells]
        )
    return text.getvalue()


def _is_storable(value: Any) -> bool:
    """Tell whether the writer of YAML takes a value: it refuses what no text of YAML can hold."""
    try:
        write_yaml(value)
    except Exception:  # noqa: BLE001
        return False
    return True


def _change_message(message: Message, chance: random.Random) -> None:
    """Change a field of one span, so that what is sent is still protobuf."""
    assert isinstance(message, ExportTraceServiceRequest)
    spans = [
        one for part in message.resource_spans for scope in part.scope_spans for one in scope.spans
    ]
    one = chance.choice(spans)
    storable = [text for text in TEXTS if text.isprintable()]
    match chance.randrange(8):
        case 0:
            one.trace_id = chance.choice((b"", b"\1", bytes(16), chance.randbytes(16)))
        case 1:
            one.parent_span_id = chance.choice([other.span_id for other in spans])
        case 2:
            one.span_id = chance.choice((b"", bytes(8), chance.choice(spans).span_id))
        case 3:
            one.end_time_unix_nano = chance.choice((0, 1, BEGIN - 1, 2**64 - 1))
        case 4:
            one.name = chance.choice(storable)
        case 5 if one.attributes:
            attribute = chance.choice(one.attributes)
            attribute.value.CopyFrom(any_value(_sendable(odd_value(chance))))
        case 6:
            one.attributes.add(key=chance.choice(storable), value=any_value(chance.randbytes(9)))
        case _:
            one.status.code = chance.choice((0, 1, 2, 99))
            one.status.message = chance.choice(storable)


def _sendable(value: Any, depth: int = 0) -> Any:
    """Return a value that a message can hold; what it cannot becomes a text, or ends."""
    match value:
        case list() | dict() if depth > MAX_DEPTH:
            return None
        case int() if not -(2**63) <= value < 2**63:
            return str(value)
        case str():
            return value.encode("utf-8", "ignore").decode()
        case list():
            return [_sendable(part, depth + 1) for part in value]
        case dict():
            return {_sendable(str(key)): _sendable(part, depth + 1) for key, part in value.items()}
    return value


def _read_suites(one: Example) -> None:
    read_suites(
        read_uploads(
            [
                (path, BytesIO(content))
                for path, content in {**one.around, one.path: one.content}.items()
            ]
        )
    )


def _read_zip(one: Example) -> None:
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as packed:
        for path, content in {**one.around, one.path: one.content}.items():
            packed.writestr(path, content)
    read_suites(read_uploads([("suites.zip", stream)]))


def _read_results(one: Example) -> None:
    read_results(one.content, file=one.path)


def _read_outputs(one: Example) -> None:
    unknown_keys(read_outputs(one.content, file=one.path), one.path)


def _read_reviews(one: Example) -> None:
    read_reviews(one.content, file=one.path)


def _read_table(one: Example) -> None:
    table = read_table(one.content, file=one.path)
    reading = TableReading(suggest(table))
    if not reading.mapping.problems():
        cases = reading.cases(table, {"A-1"}, {})
        "".join(rejected_csv(table, cases.rejected))


def _read_document(one: Example) -> None:
    source = document_text(one.content, one.path)
    check_length([source])
    cut_documents([source])


def _read_json_spans(one: Example) -> None:
    read_json_request(one.content)


def _read_protobuf_spans(one: Example) -> None:
    read_protobuf(one.content)


def _folder(pattern: str) -> Iterator[Example]:
    """Yield the files of the repository's examples, each with those beside it."""
    for path in sorted((ROOT / "examples").glob(pattern)):
        beside = [file for file in path.parent.rglob("*") if file.is_file() and file != path]
        around = {
            str(file.relative_to(path.parent)): file.read_bytes()
            for file in beside
            if file.suffix != ".jsonl"
        }
        yield example(path.name, path.read_bytes(), around)


def _tool(*names: str) -> list[Example]:
    found = []
    for name in names:
        value, files, path = SUITES[name]
        text = json.dumps(value) if path.endswith(".json") else write_yaml(value)
        found.append(example(path, text, files))
    return found


SPANS = request(
    span(1, name="agent", gen_ai__system="maker", gen_ai__usage__input_tokens=7),
    span(2, 1, name="chat", gen_ai__operation__name="chat", input__value="Refund?"),
    span(3, 1, name="find_order", error="lost", tool__parameters={"id": [1, 2.5, True]}),
    resource={"service.name": "desk"},
)
JSON_SPAN = {
    "traceId": f"{1:032x}",
    "spanId": f"{1:016x}",
    "parentSpanId": "",
    "name": "agent",
    "kind": 1,
    "startTimeUnixNano": str(BEGIN),
    "endTimeUnixNano": str(BEGIN + 10**8),
    "attributes": [
        {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "7"}},
        {"key": "input.value", "value": {"kvlistValue": {"values": [{"key": "q", "value": {"arrayValue": {"values": [{"stringValue": "Refund?"}]}}}]}}},
    ],
    "events": [{"name": "exception", "timeUnixNano": str(BEGIN), "attributes": []}],
    "status": {"code": 2, "message": "lost"},
}  # fmt: skip
JSON_SPANS = {
    "resourceSpans": [
        {
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "desk"}}]},
            "scopeSpans": [{"spans": [JSON_SPAN, {**JSON_SPAN, "spanId": f"{2:016x}", "parentSpanId": f"{1:016x}"}]}],
        }
    ]
}  # fmt: skip
RECORDED = {
    "id": "A-2",
    "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "x", "tool_calls": [{"tool": "t", "input": {"a": 1}, "output": "ok", "duration_ms": 3}]},
    ],
    "trace": [{"type": "tool", "name": "t", "input": {"q": 1}, "output": {"r": 2}, "duration_ms": 4.5}],
    "files": {"a/b.md": "text", "c.png": {"base64": "aGk="}},
    "usage": {"input_tokens": 3, "output_tokens": 9},
    "latency_ms": 120,
    "cost_usd": 0.01,
}  # fmt: skip
REVIEW = {
    "suite": "s",
    "run": 1,
    "case": "A",
    "repetition": 1,
    "reviewer": "bob",
    "verdict": "pass",
    "outcomes": ["met", "missed"],
    "metric_labels": {"tone": 4},
    "tags": ["a"],
    "note": "Kind.",
    "seconds": 3,
    "sampling_rate": 0.5,
    "created_at": "2026-03-14T09:26:53+00:00",
}
TABLE = (
    "id,question,answer,tags,metadata,expected outcomes,output\r\n"
    'A-1,"What ""is"" it?",x,"a, b","{""k"": 1}","- one\n- two","{""output"": ""x""}"\r\n'
    'A-2,"[{""role"": ""user"", ""content"": ""q""}]",y,,,,\r\n'
)
PAGE = (
    "<html><head><style>p{}</style><script>x()</script></head><body><h1>T</h1>"
    "<p>A &amp; B &#x41; &lt;</p><!-- c --><ul><li>1<li>2</ul><table><tr><td>x</td></tr></table></body></html>"
)


def _pae_results() -> bytes:
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w") as packed:
        packed.writestr(f"{pae.FOLDER}/final_result_1.json", json.dumps(pae.FINAL))
        packed.writestr(f"{pae.FOLDER}/judge_1.json", json.dumps(pae.JUDGE))
        packed.writestr("outputs/runs/s/p/m/report/run_1.json", json.dumps(pae.RUN))
    return stream.getvalue()


def families() -> dict[str, tuple[Callable[[Example], None], list[Example]]]:
    """Return by family what reads it, and its examples."""
    own = [*_folder("*/suite.yaml"), *_folder("seeds/*/*.yaml")]
    generations = [
        example(
            f"{name}.yaml",
            GENERATIONS[f"{name}.yaml"],
            {path: text for path, text in GENERATIONS.items() if "/" in path},
        )
        for name in ("first", "second", "third")
    ]
    agentv_suites = [
        example("suite.yaml", agentv.NEWEST),
        example("suite.yaml", agentv.SCENARIOS, {"m/one.yaml": agentv.MATRIX.encode()}),
        *generations,
    ]
    datasets = [example(name, text) for name, (text, *_) in experiments.DATASETS.items()]
    datasets += [
        example("samples.jsonl", inspect_ai.LINES),
        example("samples.csv", inspect_ai.TABLE),
    ]
    lines = json.dumps(agentv_results.NESTED)
    pae_json = [example("final_result_1.json", json.dumps(agentv_results.EVALUATION))]
    return {
        "suites: own": (_read_suites, own),
        "suites: AgentV": (_read_suites, agentv_suites),
        "suites: promptfoo": (_read_suites, _tool("promptfoo.yaml")),
        "suites: OpenAI Evals": (_read_suites, _tool("registry.yaml", "eval.json", "run.json")),
        "suites: PAE": (_read_suites, _tool("pae.yaml", "case.yaml")),
        "suites: datasets": (_read_suites, datasets),
        "suites: zip": (_read_zip, [*own[:4], *generations]),
        "results: own": (_read_results, [example("r.jsonl", lines), example("r.json", f"[{lines}]")]),
        "results: promptfoo": (_read_results, [example("r.json", json.dumps(promptfoo.DOCUMENT)), example("r.csv", promptfoo.TABLE)]),
        "results: Inspect": (_read_results, [example("r.json", inspect_ai.log("json").replace(b"NaN", b"null")), Example("r.eval", inspect_ai.log("eval"), {})]),
        "results: OpenAI Evals": (_read_results, [example("r.json", json.dumps({"object": "list", "data": openai_evals.OUTPUT}))]),
        "results: experiments": (_read_results, [example(name, text) for name, text in experiments.EXPERIMENTS.items()]),
        "results: PAE": (_read_results, [*pae_json, Example("outputs.zip", _pae_results(), {})]),
        "outputs": (_read_outputs, [example("o.jsonl", json.dumps(RECORDED)), *_folder("quick-check/outputs.jsonl")]),
        "reviews": (_read_reviews, [example("r.jsonl", json.dumps(REVIEW)), *_folder("*/reviews.csv")]),
        "tables": (_read_table, [example("t.csv", TABLE), *(example(name, text) for name, (text, *_) in experiments.DATASETS.items())]),
        "documents": (_read_document, [Example(f"d{suffix}", text.encode(), {}) for suffix, text in {".html": PAGE, ".md": "# A\n\n- x\n", ".csv": TABLE, ".txt": "Some text. " * 50}.items()]),
        "OTLP JSON": (_read_json_spans, [example("spans.json", json.dumps(JSON_SPANS))]),
        "OTLP protobuf": (_read_protobuf_spans, [Example("spans.bin", SPANS.SerializeToString(), {}, SPANS)]),
    }  # fmt: skip


def attack(site: AttackedSite, chance: random.Random, share: float) -> Iterator[Finding]:
    """Mutate every family, then let every shape grow."""
    for name, (read, examples) in families().items():
        yield from _attack_family(site, name, read, examples, chance, round(MUTATIONS * share))
    for name in chance.sample([*SHAPES], max(1, round(len(SHAPES) * share))):
        yield from _grow(site, name, SHAPES[name])


def _attack_family(
    site: AttackedSite,
    family: str,
    read: Callable[[Example], None],
    examples: list[Example],
    chance: random.Random,
    count: int,
) -> Iterator[Finding]:
    readable = []
    for one in examples:
        try:
            read(one)
            readable.append(one)
        except REFUSALS as refusal:
            yield Finding(f"Refused an example ({family})", one.path, f"{refusal}"[:MAX_SHOWN])
    for _ in range(count):
        one = chance.choice(readable).mutated(chance)
        about = f"{family}, {one.path} {one.content[:MAX_SHOWN]!r}"
        began = time.process_time()
        try:
            read(one)
            site.count(family, "read")
        except REFUSALS as refusal:
            site.count(family, "refused")
            if unclear := _unclear(refusal):
                yield Finding(f"Refused unclearly ({family})", about, unclear[:MAX_SHOWN])
        except Exception as error:  # noqa: BLE001
            site.count(family, "broken")
            yield Finding(f"Broke at {place_of(error)}", about, "neither read nor refused")
        took = time.process_time() - began
        if took > MAX_CPU_S:
            yield Finding(f"Took too long ({family})", about, f"{took:.1f} s of CPU")


def _unclear(refusal: Exception) -> str:
    """Return what a message lacks for the person who has to mend the file."""
    problems = refusal.problems if isinstance(refusal, UnreadableFileError) else ()
    for problem in problems:
        text = str(problem)
        if (
            not problem.message.strip()
            or "\0" in text
            or text != text.encode("utf-8", "replace").decode()
        ):
            return f"a message that cannot be shown: {text!r}"
        if not (
            problem.file or problem.line or problem.case or problem.key or "these files" in text
        ):
            return f"the message names no place: {text}"
    return "" if str(refusal).strip() else "a refusal without a message"


# -- shapes ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """A file that grows with n, how large n is at first, and what reads it."""

    n: int
    path: str
    make: Callable[[int], bytes | str]
    read: Callable[[Example], None]


def _lines(count: int, make: Callable[[int], Any]) -> str:
    return "\n".join(json.dumps(make(number)) for number in range(count))


def _suite(n: int, make: Callable[[int], str]) -> Shape:
    return Shape(n, "a.yaml", lambda n: f"name: a\n{make(n)}\n", _read_suites)


def _result(n: int, make: Callable[[int], Mapping[str, Any]]) -> Shape:
    return Shape(
        n, "r.jsonl", lambda n: json.dumps({"eval_id": "a", "score": 1, **make(n)}), _read_results
    )


def _zip(n: int, make: Callable[[int], tuple[str, bytes]]) -> bytes:
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as packed:
        for number in range(n):
            packed.writestr(*make(number))
    return stream.getvalue()


ONE = "tests: [{id: a, input: q}]"
M = 1_000_000
SHAPES = {
    "outputs: broken lines": Shape(100_000, "o.jsonl", lambda n: "x\n" * n, _read_outputs),
    "outputs: blank lines": Shape(2 * M, "o.jsonl", lambda n: "\n" * n + '{"id":1,"output":"x"}', _read_outputs),
    "outputs: one key again": Shape(20_000, "o.jsonl", lambda n: '{"id":1,"output":""}\n' * n, _read_outputs),
    "outputs: unknown keys": Shape(5_000, "o.jsonl", lambda n: json.dumps({"id": 1, "output": "", **{f"k{i}": 1 for i in range(n)}}), _read_outputs),
    "outputs: chain of steps": Shape(5_000, "o.jsonl", lambda n: json.dumps({"id": 1, "output": "", "trace": [{"type": "tool", "name": "t", "id": str(i), "parent_id": str(i - 1)} for i in range(n)]}), _read_outputs),
    "outputs: tool calls": Shape(4_000, "o.jsonl", lambda n: json.dumps({"id": 1, "messages": [{"role": "assistant", "content": "a", "tool_calls": [{"tool": "t", "input": {}}] * n}]}), _read_outputs),
    "results: lines": Shape(5_000, "r.jsonl", lambda n: _lines(n, lambda i: {"eval_id": str(i), "score": 1}), _read_results),
    "results: evaluators": _result(5_000, lambda n: {"evaluator_results": [{"name": f"e{i}", "score": 1} for i in range(n)]}),
    "results: same evaluators": _result(5_000, lambda n: {"evaluator_results": [{"name": "e", "score": 1}] * n}),
    "results: outcomes": _result(20_000, lambda n: {"expected_outcome_results": [{"text": "", "passed": True}] * n}),
    "results: trials": _result(5_000, lambda n: {"trials": [{"score": 1}] * n}),
    "results: commas": Shape(M, "r.csv", lambda n: "," * n, _read_results),
    "results: samples in a log": Shape(200, "r.eval", lambda n: inspect_ai.archive({**{f"samples/{i}_epoch_1.json": json.dumps({**inspect_ai.SAMPLES[0], "id": i}).encode() for i in range(n)}, "header.json": json.dumps(inspect_ai.HEAD).encode()}), _read_results),
    "tables: rows": Shape(5_000, "t.csv", lambda n: "id,input\n" + "".join(f"{i},q{i}\n" for i in range(n)), _read_table),
    "tables: rows without a key": Shape(5_000, "t.csv", lambda n: "input\n" + "q same\n" * n, _read_table),
    "tables: open quote": Shape(M, "t.csv", lambda n: 'id,input\n"' + "a,b\n" * n, _read_table),
    "tables: broken quotes": Shape(50_000, "t.csv", lambda n: "id,input\n" + '"a"b,c\n' * n, _read_table),
    "tables: quotes": Shape(M, "t.csv", lambda n: '"' * n, _read_table),
    "tables: outcomes": Shape(50_000, "t.csv", lambda n: 'id,input,expected outcomes\n1,q,"' + "- x\n" * n + '"\n', _read_table),
    "tables: latin letters": Shape(M, "t.csv", lambda n: b"id,input\n1," + b"\xe9" * n, _read_table),
    "tables: names": Shape(5_000, "t.json", lambda n: json.dumps([{"id": 1, **{f"k{j}": 1 for j in range(n)}}]), _read_table),
    "tables: empty lists": Shape(M, "t.json", lambda n: '[{"id":1,"x":[' + ",".join(["[]"] * n) + "]}]", _read_table),
    "reviews: bad rows": Shape(5_000, "r.csv", lambda n: "suite,run,case,reviewer,verdict\n" + "s,x,A,b,pass\n" * n, _read_reviews),
    "reviews: labels": Shape(20_000, "r.jsonl", lambda n: json.dumps({**REVIEW, "metric_labels": {f"m{i}": 1 for i in range(n)}}), _read_reviews),
    "suites: cases": _suite(1_000, lambda n: "tests:\n" + "".join(f"- {{id: c{i}, input: q}}\n" for i in range(n))),
    "suites: bad cases": _suite(3_000, lambda n: "tests:\n" + "- {id: c}\n" * n),
    "suites: evaluators": _suite(300, lambda n: "evaluators:\n" + "- {type: contains, value: x}\n" * n + ONE),
    "suites: misspelt keys": _suite(2_000, lambda n: "tests:\n- id: a\n  input: q\n" + "".join(f"  inptu{i}: 1\n" for i in range(n))),
    "suites: aliases": _suite(3_000, lambda n: f"x: &x [1,2,3,4,5]\ny: [{'*x,' * n}]\n{ONE}"),
    "suites: merges": _suite(500, lambda n: "x: &x {" + ",".join(f"k{i}: 1" for i in range(200)) + f"}}\ny: [{'{<<: *x},' * n}]\n{ONE}"),
    "suites: open brackets": _suite(M, lambda n: "y: " + "[" * n),
    "suites: question marks": _suite(50_000, lambda n: "? " * n),
    "suites: folded text": _suite(50_000, lambda n: "tests:\n- id: a\n  input: >\n" + "    x\n" * n),
    "suites: braces": _suite(50_000, lambda n: f"evaluators: [{{type: llm_judge, prompt: '{'{' * n}'}}]\n{ONE}"),
    "suites: variables": _suite(10_000, lambda n: f"evaluators: [{{type: llm_judge, prompt: '{'{{ output }}' * n}'}}]\n{ONE}"),
    "suites: open variables": _suite(50_000, lambda n: f"tests:\n- id: a\n  input: q\n  metadata: {{a: '{'${{ ' * n}'}}"),
    "suites: prompts by tests": Shape(10, "promptfooconfig.json", lambda n: json.dumps({"prompts": [f"p{i} {{{{a}}}}" for i in range(n)], "tests": [{"vars": {"a": f"v{j}"}} for j in range(40)]}), _read_suites),
    "suites: entries of a zip": Shape(3_000, "a.zip", lambda n: _zip(n, lambda i: (f".h/{i}", b"")), _read_suites),
    "suites: packed space": Shape(2, "a.zip", lambda n: _zip(n, lambda i: (f"a{i}.yaml", b" " * 2 * M)), _read_suites),
    "documents: open tags": Shape(200_000, "d.html", lambda n: "<a " * n, _read_document),
    "documents: open comments": Shape(200_000, "d.html", lambda n: "<!--" * n, _read_document),
    "documents: open scripts": Shape(100_000, "d.html", lambda n: "<script>" * n, _read_document),
    "documents: spaces": Shape(500_000, "d.html", lambda n: "a" + " " * n + "b", _read_document),
    "OTLP JSON: attributes": Shape(5_000, "s.json", lambda n: json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [{**JSON_SPAN, "attributes": [{"key": f"k{i}", "value": {"stringValue": "v"}} for i in range(n)]}]}]}]}), _read_json_spans),
    "OTLP protobuf: chain": Shape(2_000, "s.bin", lambda n: request(*(span(i + 1, i) for i in range(n))).SerializeToString(), _read_protobuf_spans),
    "OTLP protobuf: depth": Shape(40, "s.bin", nested_value, _read_protobuf_spans),
}  # fmt: skip


def _grow(site: AttackedSite, name: str, shape: Shape) -> Iterator[Finding]:
    """Read a shape at n and at 4n, each in a process of its own that starts from the same memory."""
    costs = []
    for n in (shape.n, 4 * shape.n):
        text = shape.make(n)
        example = Example(shape.path, text if isinstance(text, bytes) else text.encode(), {})
        _, _, before = _measure(lambda: None)
        said, seconds, peak = _measure(partial(shape.read, example))
        site.count("shapes", said.partition(":")[0])
        if said.startswith("broken"):
            yield Finding(f"Broke on a shape ({name})", f"n = {n:,}", said)
        costs.append((max(seconds, LEAST_S), max(peak - before, LEAST_MB)))
    (seconds, peak), (later_seconds, later_peak) = costs
    if later_seconds > GROWTH * seconds or later_peak > GROWTH * peak:
        grown = f"{seconds:.1f} → {later_seconds:.1f} s, {peak:.0f} → {later_peak:.0f} MB"
        yield Finding(f"Grew faster than its size ({name})", f"n = {shape.n:,}", grown)


def _measure(work: Callable[[], None]) -> tuple[str, float, float]:
    """Do something in a fork; return why it failed, its processor seconds, and its peak memory in MB."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CPU, (120, 125))
        said = "read"
        try:
            work()
        except REFUSALS:
            said = "refused"
        except BaseException as error:  # noqa: BLE001
            said = f"broken: {type(error).__name__}: {error!s:.200}"
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    _, status, used = os.wait4(child, 0)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    said = answer.decode() if answer else f"broken: the process ended with {status}"
    return said, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
