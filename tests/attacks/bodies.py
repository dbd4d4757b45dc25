"""Every call of the API that takes a body, with bodies that are almost right and with what is no body at all."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from django.contrib.auth.models import User
from django.db.models import F

from evaluators.models import LanguageModel
from runs.models.jobs import ModelJob
from runs.models.results import Result
from runs.models.runs import Run
from runs.running.retrying import retry_results, stop_run
from runs.running.services import start_run
from tests.api.site import schema
from tests.attacks.site import JSON, MARKER, AttackedSite, Finding, shorten
from tests.attacks.values import LONG_TEXTS, MANY, SHORT
from tests.reviews.aligning import PRICES, make_alignment, make_decided_suite
from tests.support.factories import make_case, make_suite, make_target
from tests.support.trees import CHECK, tree

SUITE_FILE: Mapping[str, Any] = {
    "name": "capitals",
    "evaluators": [{"name": "right", "type": "expected_output", "match": "contains"}],
    "tests": [{"id": "france", "input": "Capital of France?", "expected_output": "Paris"}],
}
CASE = {
    "input": "What is the capital of Italy?",
    "title": "Italy",
    "tags": ["capitals"],
    "expected_output": "Rome",
    "expected_outcomes": ["Names the city"],
    "criteria": "Be brief.",
    "metadata": {"region": {"name": "south", "rank": [1, 2]}},
}
MODEL = {
    "name": "Nova",
    "base_url": "http://127.0.0.1:9/v1",
    "model_id": "nova",
    "parameters": {"temperature": 0.5},
    "concurrency": 2,
    "requests_per_minute": 60,
    "timeout_s": 30,
    "input_price_usd_per_mtok": "1.5",
    "output_price_usd_per_mtok": "2",
    "api_key": "sk-attack",
}
RUN = {
    "suite": "support",
    "targets": ["agent"],
    "repetitions": 2,
    "concurrency": 2,
    "judge": "juno",
    "cases": ["C-1"],
    "budget_usd": "5",
    "max_minutes": 10,
    "note": "Nightly",
}
AGAIN = {"outputs_of": ["support:1"], "judge": "juno", "budget_usd": "5", "note": "Judged again"}
MEASURE = {"results": 1, "times": 2, "budget_usd": "5"}
ALIGN = {"evaluator": "tone", "writer": "mock", "candidates": 2, "budget_usd": "5"}
DRAFT = {"source": "description", "description": "A shop for tents.", "model": "juno", "count": 2}
TARGET = {"name": "pipeline 2", "kind": "pushed", "description": "Ours"}
SCORE = {
    "case": "P-1",
    "repetition": 1,
    "source": "people",
    "name": "style",
    "value": 3,
    "range": [1, 5],
    "reason": "Fine.",
}
RETRY = {"which": "failed", "keep_output": True, "evaluators": ["tone"], "budget_usd": "5"}
TAKE = {"candidate": 1, "replace": True}
STORE = {"cases": [1], "leave_out": ["tags"]}
DRAFTING = {"from": "a description", "count": 2, "parts": [{"label": "", "text": ""}]}
DRAFTED = {
    "rows": [{**CASE, "title": "Gift", "part": 0}, {"title": "Same", "input": "When?", "part": 0}],
    "batches": [],
    "problem": "",
}
REVIEW = {"verdict": "pass", "note": "Right.", "tags": ["checked"]}
SHARE = {"kind": "run", "run": "support:1", "title": "For the lead", "days": 7}
SPAN = {"traceId": "1" * 32, "spanId": "2" * 16, "name": "agent", "startTimeUnixNano": "1"}
TRACES = {"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": [SPAN]}]}]}
# A body that each call accepts.
BODIES: Mapping[tuple[str, str], Any] = {
    ("post", "/api/case-proposals/{proposal}/store"): STORE,
    ("post", "/api/models"): MODEL,
    ("put", "/api/models/{slug}"): MODEL | {"name": "Juno"},
    ("post", "/api/results/{result}/attempt"): {"attempt": 1, "reason": "The judge was down."},
    ("post", "/api/results/{result}/review"): REVIEW,
    ("post", "/api/runs"): RUN,
    ("post", "/api/runs/estimate"): {key: RUN[key] for key in ("suite", "targets", "repetitions")},
    ("post", "/api/runs/judge-again"): AGAIN,
    ("post", "/api/runs/judge-again/estimate"): {"outputs_of": ["support:1"], "judge": "juno"},
    ("post", "/api/runs/{run}/measure-judge"): MEASURE,
    ("post", "/api/runs/{run}/measure-judge/estimate"): MEASURE,
    ("post", "/api/runs/{run}/outputs"): {
        "outputs": [{"case": "P-1", "repetition": 1, "output": "Rome", "cost_usd": "0.1"}]
    },
    ("post", "/api/runs/{run}/resume"): {"budget_usd": "5"},
    ("post", "/api/runs/{run}/retry"): RETRY,
    ("post", "/api/runs/{run}/scores"): {"scores": [SCORE]},
    ("post", "/api/shares"): SHARE,
    ("post", "/api/suite-check"): SUITE_FILE,
    ("post", "/api/suites"): SUITE_FILE,
    ("put", "/api/suites/{slug}"): {**SUITE_FILE, "name": "support"},
    ("post", "/api/suites/{slug}/alignments"): ALIGN,
    ("post", "/api/suites/{slug}/alignments/estimate"): ALIGN,
    ("post", "/api/suites/{slug}/alignments/{alignment}/resume"): {"budget_usd": "5"},
    ("post", "/api/suites/{slug}/alignments/{alignment}/take"): TAKE,
    ("put", "/api/suites/{slug}/baseline"): {"run": "support:2"},
    ("post", "/api/suites/{slug}/cases"): {"cases": [{**CASE, "key": "C-9"}], "note": "More"},
    ("put", "/api/suites/{slug}/cases/{key}"): CASE,
    ("post", "/api/suites/{slug}/draft-cases"): DRAFT,
    ("post", "/api/suites/{slug}/draft-cases/estimate"): DRAFT,
    ("post", "/api/targets"): TARGET,
    ("put", "/api/targets/{target}"): {"name": "renamed", "kind": "pushed"},
    ("post", "/v1/traces"): TRACES,
}
# Runs in the state that a call needs; all others take any.
RUNS = {"/outputs": "pushed:1", "/scores": "pushed:1", "/resume": "pushed:2", "/retry": "aligned:1"}
# Files and traces may hold what a later version of their format knows; a file's is a warning.
FORWARD_COMPATIBLE = {"/api/suite-check", "/api/suites", "/api/suites/{slug}", "/v1/traces"}
WRONG_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, -0.0, 1.5, 2**31, 2**63, -(2**63), 10**299, 1e308, [], {}, [[]]),
    *([None], ["x"] * MANY, [*range(MANY)], {"a": 1}, {"": None}, {"\0": 1}, {"\ud800": 1}),
    *(
        {"x" * 100_000: 1},
        {str(number): number for number in range(MANY)},
        [{}],
        [{"a": 1}] * 5_000,
    ),
    *({"a": {"b": {"c": [1, {"d": None}]}}}, {"$ref": "#"}, {"name": MARKER}),
)
FOREIGN_KEYS = ("zz", "__proto__", "id", "owner", "is_staff", "x" * 50_000, "\0", "")
RAW_BODIES = (
    *(b"", b"null", b"[]", b"1", b'"x"', b"{", b"{}", b"\xff\xfe", b"\xef\xbb\xbf{}", b"a=1"),
    *(b"[" * 190 + b"]" * 190, b"[" * 100_000, b'{"a":' * 100_000, b'{"a":1,"a":2}', b'{"a":NaN}'),
    *(b'{"a":1e999}', b'{"a":' + b"9" * 5_000 + b"}", b'{"a":"\\ud800"}', b'{"a":"\0"}'),
    *(b"[" + b"1," * 600_000 + b"1]", b'{"' + b"k" * 1_000_000 + b'":1}', b" " * 1_000_000 + b"{}"),
    json.dumps({f"k{number}": [] for number in range(200_000)}).encode(),
    *(b"- a\n- b", b"a: &a [1,1]\nb: [*a,*a]", b"PK\x03\x04xxxx"),
)
CONTENT_TYPES = (
    *(JSON, JSON, JSON, "application/yaml", "application/zip", "application/x-protobuf"),
    *("text/plain", "multipart/form-data; boundary=x", "application/json; charset=utf-16"),
    "application/json; charset=zzz",
)
VALUES_A_PLACE = 25


def attack(site: AttackedSite, chance: random.Random, share: float) -> Iterator[Finding]:
    """Change each place of each body in turn; what is not changed, the site accepts."""
    place = fill(site)
    assert BODIES.keys() == {
        (method, path)
        for path, calls in schema()["paths"].items()
        for method, call in calls.items()
        if "requestBody" in call
    }
    for (method, path), base in BODIES.items():
        slug = "juno" if "/models/" in path else "aligned" if "/alignments" in path else "support"
        run = next((RUNS[call] for call in RUNS if path.endswith(call)), "support:1")
        address = path.format(**place, slug=slug, run=run)
        with site.ask(
            site.client("admin"), method.upper(), address, as_json(base), content_type=JSON
        ) as answer:
            yield from answer.findings
            if answer.status >= 400:
                yield answer.find("Refused a right body", answer.body.decode())
        for body, about, must_refuse in mutations(base, path, chance):
            if chance.random() < share:
                is_raw = isinstance(body, bytes)
                content_type = chance.choice(CONTENT_TYPES) if is_raw else JSON
                with site.ask(
                    site.client("admin"),
                    method.upper(),
                    address,
                    body if is_raw else as_json(body),
                    content_type=content_type,
                    about=about,
                ) as answer:
                    yield from answer.findings
                    if must_refuse and answer.status < 400:
                        yield answer.find(f"Accepted {must_refuse}", answer.status)


@cache
def fill(site: AttackedSite) -> Mapping[str, Any]:
    """Add what some calls need: runs that wait or were stopped, a judge that people correct, drafts, an older attempt."""
    suite = make_suite(slug="pushed", tree=tree(CHECK))
    make_case(suite=suite, key="P-1")
    target = make_target(kind="pushed")
    start_run(suite=suite, target=target, started_by=None)
    stop_run(start_run(suite=suite, target=target, started_by=None), stopped_by=None)
    aligned, run = make_decided_suite(slug="aligned")
    LanguageModel.objects.update(**PRICES)  # without which a budget is refused
    admin = User.objects.get(username="a-admin")
    drafts = ModelJob.objects.create(
        suite=suite,
        purpose="drafting",
        model_name="Mock",
        planned_calls=1,
        asked_by=admin,
        state="done",
        request=DRAFTING,
        outcome=DRAFTED,
    )
    retried = run.results.latest("pk")
    retry_results(run, asked_by=admin, result_ids=[retried.pk])
    # As a worker ends it, with the same verdict.
    Result.objects.filter(pk=retried.pk).update(status="scored", verdict="fail", score=0.1)
    counted = {name: F(name) + 1 for name in ("done_count", "fail_count", "score_count")}
    Run.objects.filter(pk=run.pk).update(status="completed", **counted)
    return {
        "key": "C-1",
        "target": make_target(name="pipeline", kind="pushed").pk,
        "result": retried.pk,
        "alignment": make_alignment(aligned, run, state="stopped").pk,
        "proposal": drafts.pk,
    }


def mutations(base: Any, path: str, chance: random.Random) -> Iterator[tuple[Any, str, str]]:
    """Yield bodies, as bytes or as what JSON is made of, what is said of each, and why it must be refused, if it must."""
    for raw in RAW_BODIES:
        yield raw, shorten(raw), ""
    for place in places(base):
        values = chance.sample([*WRONG_VALUES, *SHORT], k=VALUES_A_PLACE)
        for value in (*values, chance.choice(LONG_TEXTS)):
            yield replaced(base, place, value), f"{[*place]}={shorten(value)}", ""
    is_strict = path not in FORWARD_COMPATIBLE
    for key in FOREIGN_KEYS:
        yield {**base, key: 1}, f"+{shorten(key)}", "a key it does not know" * is_strict
    for key in base:
        yield {name: base[name] for name in base if name != key}, f"without {key}", ""
        doubled = f'{as_json(base).decode()[:-1]}, "{key}": null}}'
        yield doubled.encode(), f"{key} twice", "a key twice"


def places(value: Any, above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the way to each value inside of a body, the body itself first."""
    yield above
    if isinstance(value, dict):
        for key, each in value.items():
            yield from places(each, (*above, key))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*above, 0))


def replaced(body: Any, place: tuple[str | int, ...], value: Any) -> Any:
    """Return a body with another value at a place."""
    if not place:
        return value
    first, *rest = place
    changed = dict(body) if isinstance(body, dict) else [*body]
    changed[first] = replaced(changed[first], tuple(rest), value)
    return changed


def as_json(body: Any) -> bytes:
    return json.dumps(body).encode()
