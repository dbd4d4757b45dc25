"""The command `evaluate`: a run in this process, its options, gates and exit codes."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection

from evaluators.models import AuditEntry
from evaluators.sandbox.processes import process_name
from runs.cli import watching
from runs.execution.run_worker import work_on_run
from runs.models.database import database_now
from runs.models.runs import LEASE, Run
from runs.running.services import start_run
from tests.cli.command_lines import evaluate
from tests.support.factories import make_case, make_model, make_run, make_suite, make_target
from tests.support.model_server import ModelServer, status
from tests.support.trees import CHECK, JUDGED, tree

pytestmark = pytest.mark.django_db(transaction=True)


def recorded(*texts: str):
    suite = make_suite(slug="refunds", tree=tree(CHECK))
    for number, text in enumerate(texts):
        make_case(suite=suite, key=f"C-{number}", recorded_output={"output": text})
    return suite, make_target(name="agent 1.5")


def test_a_run_is_executed_in_this_process_and_passes(capsys, tmp_path):
    recorded("a refund", "your refund")
    file = tmp_path / "summary.json"

    assert evaluate("refunds", "--target", "agent 1.5", "--summary", str(file)) == 0

    run = Run.objects.get()
    assert (run.status, run.done_count, run.pass_count) == ("completed", 2, 2)
    assert (run.owner, run.owner_id) == ("command_line", process_name()[-64:])
    assert run.heartbeat_at is not None
    assert not run.run_workers.exists()
    output = capsys.readouterr()
    assert "Suite refunds #1 against agent 1.5: http://127.0.0.1:8000/suites/refunds/runs/1/" in (
        output.err
    )
    assert "Mean score   passed, 100.0% ≥ 80% (2 of 2 results scored)" in output.out
    assert "Errors       0 of 2" in output.out
    assert output.out.rstrip().endswith("Passed: both gates met.")
    written = json.loads(file.read_text())
    assert (written["exit_code"], written["status"], written["done"]) == (0, "completed", 2)


def test_a_run_has_the_longest_time_of_its_option_or_of_the_site(settings):
    recorded("a refund")
    settings.MAX_RUN_MINUTES = 7
    evaluate("refunds", "--target", "agent 1.5", "--max-minutes", "90")
    evaluate("refunds", "--target", "agent 1.5")
    assert list(Run.objects.order_by("pk").values_list("max_minutes", flat=True)) == [90, 7]


def test_a_failed_gate_is_exit_code_1(capsys):
    recorded("a refund", "nothing")
    assert evaluate("refunds", "--target", "agent 1.5") == 1
    assert "Pass rate    failed, 50.0% < 100% (1 of 2 results passed)" in capsys.readouterr().out


def test_errors_alone_do_not_fail_a_gate(capsys):
    suite, _ = recorded("a refund")
    make_case(suite=suite, key="without an output")
    assert evaluate("refunds", "--target", "agent 1.5") == 3
    output = capsys.readouterr()
    assert "only because of errors in 1 of 2 results" in output.out
    assert "Rerun its errors at http://" in output.err


def test_every_choice_reaches_the_run(model_server: ModelServer):
    facts = {"base_url": model_server.base_url, "input_price_usd_per_mtok": 1}
    facts["output_price_usd_per_mtok"] = 1
    suite = make_suite(slug="judged", tree=tree(JUDGED), judge=make_model(slug="usual", **facts))
    make_case(suite=suite, recorded_output={"output": "fine"})
    make_model(slug="other", **facts)
    make_target(name="agent")

    options = {"--judge": "other", "--repetitions": "3", "--concurrency": "2", "--budget": "$5"}
    arguments = [part for pair in options.items() for part in pair]
    assert evaluate("judged", "--target", "agent", *arguments) == 0

    run = Run.objects.get()
    assert (run.judge_name, run.repetitions, run.concurrency, run.budget_usd) == ("other", 3, 2, 5)
    assert {chat.body["model"] for chat in model_server.chats} == {"other"}
    assert len(model_server.chats) == 3


def test_a_spent_budget_is_not_evaluated(model_server: ModelServer, capsys):
    prices = {"input_price_usd_per_mtok": 1000, "output_price_usd_per_mtok": 5000}
    judge = make_model(slug="judge", base_url=model_server.base_url, **prices)
    suite = make_suite(slug="judged", tree=tree(JUDGED), judge=judge)
    for number in range(6):
        make_case(suite=suite, key=f"C-{number}", recorded_output={"output": "fine"})
    make_target(name="agent")

    arguments = ("--budget", "0.5", "--concurrency", "1")
    assert evaluate("judged", "--target", "agent", *arguments) == 3

    assert Run.objects.get().status == "budget_reached"
    assert (
        "Not evaluated: $0.4 of $0.5 is spent, and one more result may cost $0.2."
        in capsys.readouterr().out
    )


def test_a_target_that_always_fails_the_same_way_ends_the_run(model_server: ModelServer, capsys):
    model_server.behave(then=status(401, "no such key"))
    agent = make_model(slug="agent", base_url=model_server.base_url)
    suite = make_suite(slug="refunds", tree=tree(CHECK))
    for number in range(20):
        make_case(suite=suite, key=f"C-{number}")
    make_target(name="agent", kind="chat", model=agent)

    assert evaluate("refunds", "--target", "agent") == 3

    assert Run.objects.get().status == "failed"
    assert "Failed" in capsys.readouterr().out


UNKNOWN = [
    (("nothing", "--target", "agent 1.5"), "There is no suite 'nothing'. There is: refunds."),
    (
        ("refund", "--target", "agent 1.5"),
        "There is no suite 'refund'. Did you mean refunds? There is: refunds.",
    ),
    (("refunds", "--target", "agent"), "There is no target 'agent'. There is: agent 1.5."),
    (
        ("refunds", "--target", "agent 1.5", "--judge", "x"),
        "There is no language model 'x', and no other language model either. Add one: evalsite add_model.",
    ),
    (
        ("refunds", "--target", "agent 1.5", "--repetitions", "0"),
        "Repetitions is 0; it goes from 1 to 100.",
    ),
    (
        ("refunds", "--target", "agent 1.5", "--budget", "much"),
        "--budget is 'much', which is not an amount; write US dollars, such as 5 or 0.50.",
    ),
    (("refunds", "--target", "agent 1.5", "--budget", "0"), "The budget must be more than $0."),
    (
        ("refunds", "--target", "agent 1.5", "--summary", "/nowhere/at/all"),
        "--summary /nowhere/at/all cannot be written: No such file or directory. Name a file in a "
        "folder that exists and that you may write to.",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), UNKNOWN)
def test_invalid_starts_are_refused_with_a_remedy(arguments, message):
    recorded("a refund")
    with pytest.raises(CommandError) as refusal:
        evaluate(*arguments)
    assert (str(refusal.value), refusal.value.returncode) == (message, 3)
    assert not Run.objects.exists()


def test_a_suite_that_needs_a_judge_says_so():
    make_case(suite=make_suite(slug="judged", tree=tree(JUDGED)), recorded_output={"output": "x"})
    make_target(name="agent")
    with pytest.raises(CommandError, match=r"none is chosen\. Name a language model") as refusal:
        evaluate("judged", "--target", "agent")
    assert refusal.value.returncode == 3


def test_a_database_without_tables_is_not_a_failed_gate():
    def refuse(execute, sql, params, many, context):
        return execute("SELECT * FROM no_such_table", None, many, context)

    with connection.execute_wrapper(refuse), pytest.raises(CommandError) as refusal:
        evaluate("refunds", "--target", "agent")
    assert refusal.value.returncode == 3
    assert "evalsite prepare" in str(refusal.value)


def test_runs_of_dead_command_lines_are_ended_first():
    suite, target = recorded("a refund")
    left = make_run(
        suite=suite,
        target=target,
        status="running",
        owner="command_line",
        owner_id="elsewhere//7/8",
        heartbeat_at=database_now() - 2 * LEASE - timedelta(seconds=1),
        finished_at=None,
        execution_count=1,
    )
    assert evaluate("refunds", "--target", "agent 1.5") == 0
    left.refresh_from_db()
    assert (left.status, left.status_reason) == (
        "stopped",
        "The command line that executed this run has ended.",
    )


def test_a_crashed_worker_starts_again(monkeypatch):
    recorded("a refund")
    usual, calls = work_on_run, []

    def break_once(run_id, *, owner_id):
        calls.append(run_id)
        if len(calls) == 1:
            raise RuntimeError("for a test")
        usual(run_id, owner_id=owner_id)

    monkeypatch.setattr(watching, "work_on_run", break_once)
    assert evaluate("refunds", "--target", "agent 1.5") == 0
    assert len(calls) == 2


def test_a_broken_connection_does_not_end_the_command(monkeypatch):
    recorded("a refund")
    usual, breaks = watching.reap, [OperationalError("stale")]

    def reap(*, now):
        if breaks:
            raise breaks.pop()
        return usual(now=now)

    worked = work_on_run
    idle = [True]

    def work(run_id, *, owner_id):
        return None if idle and idle.pop() else worked(run_id, owner_id=owner_id)

    monkeypatch.setattr(watching, "reap", reap)
    monkeypatch.setattr(watching, "work_on_run", work)
    assert evaluate("refunds", "--target", "agent 1.5") == 0
    assert not breaks


def test_a_worker_takes_the_next_run_after_releasing_one():
    suite, target = recorded("a refund")
    first, second = (
        start_run(suite=suite, target=target, started_by=None, owner_id=process_name())
        for _ in range(2)
    )
    with watching.LocalWorker(first) as run_workers:
        run_workers.release()
    with watching.LocalWorker(second) as run_workers:
        assert run_workers.wait(60)
    second.refresh_from_db()
    assert (second.status, second.done_count) == ("completed", 1)


def test_the_start_is_audited():
    recorded("a refund")
    evaluate("refunds", "--target", "agent 1.5")
    [entry] = AuditEntry.objects.all()
    assert (entry.actor_name, entry.action) == ("command line", "start")
    assert entry.object_name == "refunds #1"


def test_a_file_of_cases_is_run_by_a_profile(tmp_path, capsys):
    cases = tmp_path / "capitals.jsonl"
    case = {"id": "A", "input": "Norway?", "expected_output": "Oslo", "output": "Oslo."}
    cases.write_text(json.dumps(case))
    beside = cases.with_suffix(".yaml")
    beside.write_text("evaluators: [{type: expected_output, match: contains}]")

    assert evaluate(str(cases), "--profile", "tasks", "--target", "recorded") == 0

    run = Run.objects.get()
    assert (run.suite.slug, run.suite.scale, run.pass_count) == ("capitals", 100, 1)
    assert evaluate(str(cases), "--profile", "tasks", "--target", "recorded") == 0
    assert "unchanged, still at version 1" in capsys.readouterr().err


def test_a_file_is_evaluated_under_another_name(tmp_path, capsys):
    recorded("a refund")
    file = tmp_path / "refunds.yaml"
    file.write_text(
        "name: refunds\nevaluators: [{type: contains, value: x}]\n"
        "tests: [{id: other, input: q, output: x}]\n"
    )
    with pytest.raises(CommandError, match="already a suite 'refunds', and it shares no case"):
        call_command("evaluate", str(file), "--target", "recorded")

    assert evaluate(str(file), "--slug", "mine", "--target", "recorded") == 0

    assert Run.objects.get().suite.slug == "mine"
    with pytest.raises(CommandError, match="--slug is only for files, and refunds is a suite"):
        call_command("evaluate", "refunds", "--slug", "mine", "--target", "recorded")


def test_a_profile_is_refused_for_a_stored_suite_and_if_unknown(
    tmp_path,
):
    recorded("a refund")
    (tmp_path / "cases.jsonl").write_text('{"id": "A", "input": "hi"}')
    for suite, profile, output in (
        ("refunds", "tasks", "refunds is a suite of this site"),
        (str(tmp_path / "cases.jsonl"), "task", "verdicts, metrics, tasks, hybrid"),
    ):
        with pytest.raises(CommandError, match=output) as refusal:
            call_command("evaluate", suite, "--profile", profile, "--target", "agent 1.5")
        assert refusal.value.returncode == 3
    assert not Run.objects.exists()
