"""What a dry run of each kind shows, held against what a run of the same evaluators sends and starts."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from html import unescape
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from evaluators.kinds import all_kinds
from evaluators.model_calls.models import encrypt
from runs import tasks
from runs.engine.plan import OUTCOMES_PATH
from runs.evaluator_trials.services import TriedOutput, try_evaluator
from runs.execution import run_worker
from runs.execution.active_runs import ActiveRuns
from runs.execution.run_worker import work_on_run
from runs.models.runs import Run
from runs.running.services import start_run
from runs.suites.drafts import get_draft
from tests.support.agent_server import AgentServer, Asked, says
from tests.support.factories import make_case, make_model, make_suite, make_target
from tests.support.members import make_client
from tests.support.model_server import ModelServer, body, good
from tests.support.trees import CHECK, JUDGED, LEAF, tree

pytestmark = pytest.mark.django_db(transaction=True)

OPINION = {"reasoning": "Kind.", "hits": [], "misses": [], "score": 80}
VOTE = {"reasons": "Kind.", "score": 80, "bracket": "Excellent"}
CRITERIA = {
    "reasoning": "Both.",
    "criteria": [
        {"id": f"c{number}", "evidence": "5 days", "satisfied": True} for number in (1, 2)
    ],
}
OUTCOMES = {
    "outcomes": [{"number": number, "justification": "so", "passed": True} for number in (1, 2)]
}
# Both say what they were given by environment and standard input, but for folders, new each time.
GIVEN = """\
#!/usr/bin/env python3
import json, os, sys
told = {name: text for name, text in os.environ.items() if name.startswith("EVAL_")}
for place in ("EVAL_WORKSPACE", "EVAL_OUTPUT_FILE"):
    told.pop(place, None)
given = json.dumps([told, sys.stdin.read()], sort_keys=True)
"""
PROGRAM = GIVEN + 'print(json.dumps({"score": 1, "reasoning": given}))\n'
PEER = GIVEN + 'print(json.dumps({"output": json.dumps({"reasoning": given, "score": 80})}))\n'


@dataclass(frozen=True)
class Row:
    """An evaluator, and whom it asks: the model, an agent at an address, a program or nobody.

    `follows` is what the page says where more is asked that depends on replies; `children` stand
    under a composite.
    """

    kind: str
    asks: str
    config: dict[str, Any] = field(default_factory=dict)
    children: tuple[dict[str, Any], ...] = ()
    says: str = ""


ROWS = {
    "agent_at_an_address": Row("agent_judge", "agent", {"agent": "desk", "criteria": "Kind?"}),
    "agent_that_chats": Row("agent_judge", "model", {"agent": "chatty", "criteria": "Kind?"}),
    "agent_that_is_a_program": Row("agent_judge", "program", {"agent": "peer", "criteria": "Ok?"}),
    "checks": Row("composite", "nobody", children=(CHECK,)),
    "weighing": Row(
        "composite", "model", {"aggregator": {"type": "llm_judge", "prompt": "Weigh."}}, (CHECK,)
    ),
    "adding_up": Row(
        "composite", "program", {"aggregator": {"type": "code_judge", "script": PROGRAM}}, (CHECK,)
    ),
    "panel": Row(
        "deliberation",
        "model",
        {"judges": 2, "rounds": 1, "criteria": "Kind?"},
        says="of up to 4: more calls depend on the replies",
    ),
    "panel_of_agents_alone": Row(
        "deliberation", "agent", {"agents": ["desk", "desk"], "rounds": 1, "criteria": "Kind?"}
    ),
    "limits": Row("execution_metrics", "nobody", {"max_tool_calls": 3}),
    "same": Row("expected_output", "nobody"),
    "same_meaning": Row("expected_output", "model", {"match": "semantic"}),
    "fields": Row("field_accuracy", "nobody", {"fields": ["day"]}),
    "hybrid": Row(
        "hybrid_judge",
        "model",
        {"checks": [{"type": "contains", "value": "refund"}], "hard_expectations": ["Is kind"]},
    ),
    "right": Row(
        "llm_judge",
        "model",
        {"prompt": "Is {{output}} right for {{input}}?", "samples": 3},
        says="3 times the same question",
    ),
    "routing": Row("metrics_judge", "model", {"metrics": ["tool_routing"]}),
    "criteria": Row("rubric", "model", {"rubrics": ["Names the days", "Is kind"]}),
    "alike": Row("text_similarity", "nobody", {"measure": "chrf"}),
    "plain": Row("readability", "nobody", {"formula": "lix", "maximum": 40}),
    "in_english": Row("language", "nobody", {"expected": ["en"]}),
    "same_values": Row("json_diff", "nobody"),
    "same_rows": Row(
        "sql_equivalence", "nobody", {"database": "CREATE TABLE t (a);", "query": "SELECT a FROM t"}
    ),
    "refused": Row("refusal", "nobody"),
    "refused_to_a_reader": Row("refusal", "model", {"by": "judge"}),
    "near": Row("embedding_similarity", "model", {"model": "juno"}),
    "grounded": Row("faithfulness", "model", {"samples": 2}, says="2 times the same question"),
    "found": Row("context_recall", "model"),
    "ranked": Row("context_precision", "model"),
    "relevant": Row("answer_relevance", "model"),
    "clean": Row("toxicity", "model", {"categories": ["insult"]}),
    "own": Row("script", "program", {"script": PROGRAM, "protocol": "stdin"}),
    "words": Row("text_check", "nobody", {"operator": "contains", "value": "5 days"}),
    "calls": Row("tool_trajectory", "nobody", {"mode": "any_order", "minimums": {"look_up": 1}}),
}
REPLIES = {
    "criteria": CRITERIA,
    "refused_to_a_reader": {"reasoning": "", "evidence": "", "behaviour": "complies"},
    **{
        name: {"reasoning": "", "statements": [{"statement": "So", "evidence": "", verdict: True}]}
        for name, verdict in (
            ("grounded", "supported"),
            ("found", "found"),
            ("relevant", "relevant"),
        )
    },
    "ranked": {"reasoning": "", "passages": [{"number": 1, "evidence": "", "useful": True}]},
    "clean": {"reasoning": "", "categories": [{"number": 1, "evidence": "", "severity": 0}]},
}
# The product asks for the expected outcomes itself, beside the tree; the whole tree's dry run shows it.
# A pairwise evaluator needs a baseline, and has its test with one (tests/running/test_pairwise_runs.py).
BESIDE = {"outcomes", "pairwise"}


def test_the_table_has_every_kind() -> None:
    assert {row.kind for row in ROWS.values()} | BESIDE == set(all_kinds())


@pytest.fixture(autouse=True)
def _as_in_a_worker(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    """Let programs run, and keep the marks around quoted texts the same: else they are random."""
    settings.SCRIPTS = True
    monkeypatch.setattr(run_worker, "_active_runs", ActiveRuns())
    monkeypatch.setattr("evaluators.model_calls.judge.secrets.token_hex", lambda size: "5eal" * 4)
    monkeypatch.setattr("evalsite.celery.app.send_task", lambda *a, **k: 0)


def node(name: str, row: Row) -> dict[str, Any]:
    return {
        **LEAF,
        "name": name,
        "kind": row.kind,
        "config": row.config,
        "children": list(row.children),
    }


def carried_out(evaluators: dict[str, Any], server: ModelServer, **facts: Any) -> Run:
    """Carry out a run of one case over its recorded output."""
    judge = make_model(slug="juno", base_url=server.base_url, send_trace_headers=True)
    make_target(name="chatty", kind="chat", model=judge, config={"system_prompt": "You review."})
    suite = make_suite(slug="support", tree=evaluators, judge=judge)
    make_case(
        suite=suite,
        key="C-1",
        input=[{"role": "user", "content": "Where is my <b>money</b>?"}],
        expected_output='{"day": "Monday"}',
        criteria="Names the day.",
        recorded_output={
            "output": '{"day": "Your refund takes 5 days — “soon”."}',
            "trace": [{"type": "tool", "name": "look_up", "input": {"id": 7}, "output": "5"}],
        },
        **facts,
    )
    run = start_run(suite=suite, target=make_target(), started_by=None)
    work_on_run(run.pk)
    run.refresh_from_db()
    assert run.status == "completed"
    return run


def dry_run(name: str, run: Run, asked_by: User) -> tuple[dict[str, Any], str]:
    """Return what the dry run of an evaluator found, and its page as it is read."""
    draft = get_draft(run.suite, asked_by)
    root = draft.content["evaluators"]
    [node_id] = [one["id"] for one in (root, *root["children"]) if one["name"] == name]
    result = run.results.get()
    on = TriedOutput(case=result.case, result=result)
    trial = try_evaluator(draft, node_id, on, asked_by=asked_by, once=uuid4(), is_dry=True)
    tasks.try_evaluator(trial_id=trial.pk)
    place = reverse("runs:evaluator-trial", args=["support", node_id, trial.pk])
    page = unescape(make_client(asked_by).get(place).content.decode())
    trial.refresh_from_db()
    return trial.outcome, page


def shown(found: dict[str, Any], asks: str) -> list[Any]:
    """Return what a dry run would give to whom the evaluator asks, each as often as it would."""
    if asks == "program":
        return [
            json.dumps([dict(script["environment"]), script["stdin"]], sort_keys=True)
            for script in found["scripts"]
        ]
    bodies = [one["body"] for one in found["requests"] for _ in range(one["times"])]
    if asks == "agent":
        return [json.dumps(json.loads(one)["body"]) for one in bodies]
    return sorted(bodies)


def texts_of(found: dict[str, Any], row: Row) -> list[str]:
    """Return what of it is to be read on the page."""
    bodies = [json.loads(one["body"]) for one in found["requests"]]
    messages = [turn["content"] for one in bodies for turn in one.get("messages", ())]
    return [*messages, *(one["stdin"] for one in found["scripts"]), row.says]


def given(name: str, asks: str, run: Run, server: ModelServer, agent: AgentServer) -> list[Any]:
    """Return what a run gave to whom the evaluator asks."""
    if asks == "program":
        return [run.results.get().scores.get(path=name).reasoning]
    if asks == "agent":
        return [one.body.decode() for one in agent.asked if f"C-1/{name}" in one.body.decode()]
    sent = [one for one in server.chats if one.trace("Evaluator") == name]
    return sorted(json.dumps(one.body) for one in sent)


def reviews(asked: Asked) -> Any:
    """Answer with a vote if one is asked for, else with an opinion."""
    is_vote = "several judges who vote" in asked.body.decode()
    return says({"output": json.dumps(VOTE if is_vote else OPINION)})(asked)


def test_a_dry_run_of_each_kind_shows_what_a_run_gives_byte_for_byte(
    editor: User, model_server: ModelServer, agent_server: AgentServer
) -> None:
    header = {"name": "Authorization", "secret": True}
    make_target(
        name="desk",
        kind="http",
        config={
            "url": agent_server.url,
            "output_path": "output",
            "headers": [header],
            "body": {"task": "{{input}}", "session": "{{case_id}}"},
        },
        encrypted_secrets={"authorization": encrypt("Bearer t0p-s3cret-value")},
    )
    make_target(name="peer", kind="command", config={"command": PEER})
    agent_server.behave(then=reviews)
    for name, reply in REPLIES.items():
        model_server.on_evaluator(name, good(reply))
    vectors = [{"index": n, "embedding": [1, n]} for n in range(2)]
    model_server.on_evaluator("near", body(json.dumps({"data": vectors})))
    run = carried_out(tree(*(node(name, row) for name, row in ROWS.items())), model_server)
    unscored = run.results.get().scores.filter(state="unscored")
    assert dict(unscored.values_list("path", "reasoning")) == {}
    asked_by_run = len(model_server.requests), len(agent_server.asked)

    for name, row in ROWS.items():
        found, page = dry_run(name, run, editor)
        assert (name, shown(found, row.asks)) == (
            name,
            given(name, row.asks, run, model_server, agent_server),
        )
        assert [text for text in texts_of(found, row) if text not in page] == [], name
        assert ("This output needs no calls" in page) == (row.asks == "nobody"), name
        assert ("This is exactly what trying it would send." in page) == (
            row.asks in ("model", "agent")
        ), name
        assert ("This is exactly what trying it would start." in page) == (row.asks == "program")
        assert "have none here" not in page
        assert "s3cret" not in page
    assert (len(model_server.requests), len(agent_server.asked)) == asked_by_run


def test_what_a_run_asks_besides_and_what_a_dry_run_cannot_know_is_said(
    editor: User, model_server: ModelServer
) -> None:
    script = {"type": "script", "script": PROGRAM, "name": "looked at"}
    weighing = {"aggregator": {"type": "llm_judge"}}
    model_server.on_evaluator(OUTCOMES_PATH, good(OUTCOMES))
    run = carried_out(
        tree(
            node("hybrid", Row("hybrid_judge", "model", {"checks": [script]})),
            node("whole", Row("composite", "model", weighing, (JUDGED, CHECK))),
        ),
        model_server,
        expected_outcomes=["Names the days", "Is kind"],
    )
    sent = model_server.chats

    found, page = dry_run("all", run, editor)

    beside = [one["body"] for one in found["requests"] if one["path"] == OUTCOMES_PATH]
    assert beside == [
        json.dumps(one.body) for one in sent if one.trace("Evaluator") == OUTCOMES_PATH
    ]
    assert model_server.chats == sent
    for said in (
        "This is exactly what trying it would send and start.",
        "A run also asks a judge about the expected outcomes; trying it does not.",
        "evaluators that a dry run does not ask have none",
        "a dry run starts no script",
        "Expected outcomes",
        "only in runs",
    ):
        assert said in page, said
    _, page = dry_run("whole", run, editor)
    assert "evaluators that a dry run does not ask have none" in page
    assert "A run also asks a judge" not in page
