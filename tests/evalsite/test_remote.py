"""import, evaluate, compare and export against a site elsewhere: what they print, write and answer."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from django.core.management import call_command
from django.urls import resolve

from evalsite.access.roles import Scope
from evalsite.cli import BY_API, OF_THIS_MACHINE, REMOTE, main, own_commands
from evalsite.client import Case, Evalsite, EvalsiteError
from evalsite.remote import agents, commands
from runs.execution.run_worker import work_on_run
from runs.models.runs import Run
from runs.models.suites import Suite, Target
from runs.results.report import run_report
from runs.results.runs import conclude
from tests.api.site import token_of
from tests.cli.test_evaluate_metrics import reply as metrics_reply
from tests.cli.test_export import FILE, JUDGED
from tests.evalsite.test_client import ADDRESS, Site
from tests.support.agent_server import AgentServer, says
from tests.support.factories import make_model, make_suite, make_target, make_user
from tests.support.model_server import ModelServer, good

pytestmark = pytest.mark.django_db(transaction=True)
AGENT = """
import json, sys
case = json.load(sys.stdin)
print({"france": "Paris", "spain": "It is Madrid."}.get(case["id"], "No idea"))
"""
CAPITALS = """
name: capitals
evaluators: [{name: right, type: expected_output, match: contains}]
tests:
  - {id: france, input: Capital of France?, expected_output: Paris}
  - {id: spain, input: Capital of Spain?, expected_output: Madrid}
  - {id: italy, input: Capital of Italy?, expected_output: Rome}
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let commands reach this process's site, whose workers score while a command waits."""

    def sleep(seconds: float) -> None:
        for run in Run.objects.filter(results__awaits_output=False).distinct():
            work_on_run(run.pk)

    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "capitals.yaml").write_text(CAPITALS)
    token = token_of(make_user(role="editor"), scopes=[Scope.RUN, Scope.EDIT])
    site = partial(Evalsite, token=token, transport=Site(), sleep=sleep)
    monkeypatch.setattr(commands, "Evalsite", site)
    # Ctrl-C arrives, also where a shell lets what it starts in the background ignore it.
    set_handler = signal.signal
    handler = set_handler(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setenv("EVALSITE_SERVER", ADDRESS)
    monkeypatch.chdir(tmp_path)
    yield
    set_handler(signal.SIGINT, handler)


def call(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(["evalsite", *words])
    return int(str(end.value.code))


def evaluate(*words: str) -> int:
    return call("evaluate", "capitals.yaml", *words)


WITH_COMMAND = ("--agent", f"{sys.executable} agent.py")


def test_a_command_here_is_evaluated_as_on_the_site_itself(capsys: Any) -> None:
    files = {option: Path(f"here{option}") for option in ("--out", "--summary", "--cases")}
    given = [str(part) for pair in files.items() for part in pair]
    assert evaluate(*WITH_COMMAND, "--target", "mine", *given, "--junit", "here.xml") == 1

    run = Run.objects.get()
    shown = capsys.readouterr()
    assert shown.out == f"\n{run_report(run, conclude(run).sentence)}\n"
    assert "capitals: new, at version 1. Imported with 3 cases." in shown.err
    assert f"capitals #1 against mine: {ADDRESS}/suites/capitals/runs/1/" in shown.err
    assert (run.pass_count, run.fail_count, run.target_name) == (2, 1, "mine")
    assert 'failures="1"' in Path("here.xml").read_text()
    call_command("results", "capitals#1", "--out", "local.jsonl")
    assert files["--out"].read_text() == Path("local.jsonl").read_text()
    assert f'"url": "{ADDRESS}/suites/capitals/runs/1/"' in files["--summary"].read_text()
    assert len(files["--cases"].read_text().splitlines()) == 3

    assert evaluate(*WITH_COMMAND, "--case", "france", "--repetitions", "2") == 0
    assert Run.objects.latest("pk").execution_count == 2
    assert "unchanged, still at version 1" in capsys.readouterr().err

    # What was pushed is judged again without asking for it again, and nothing is judged anew but what must be.
    assert call("evaluate", "capitals", "--outputs-of", "capitals#1", "--case", "france") == 0
    again = Run.objects.latest("pk")
    assert (again.source_run, again.status, again.execution_count) == (run, "completed", 1)
    assert again.results.get().output.text == run.results.get(case__key="france").output.text
    assert "1 of 1 score is kept at no cost; no judge call." in capsys.readouterr().err


def test_an_address_here_outputs_in_a_file_and_a_target_of_the_site(
    agent_server: AgentServer, capsys: Any
) -> None:
    agent_server.behave(then=says({"output": "Paris"}))
    given = ("--set", 'body={"q": "{{input}}"}', "--set", "output_path=$.output")
    assert evaluate("--agent", agent_server.url, *given, "--case", "france") == 0
    assert [asked.json for asked in agent_server.asked] == [{"q": "Capital of France?"}]

    Path("outputs.jsonl").write_text('{"id": "france", "output": "Paris", "mood": 1}\n')
    assert evaluate("--outputs", "outputs.jsonl", "--concurrency", "3") == 3
    run = Run.objects.latest("pk")
    assert (run.target_name, run.pass_count, run.error_count) == ("outputs", 1, 2)
    assert run.concurrency == 3
    assert "2 results without an output in the file." in capsys.readouterr().err

    assert evaluate("--target", "nobody") == 3
    assert "/targets/0: There is no target 'nobody'." in capsys.readouterr().err


def test_models_and_several_targets_are_asked_by_the_site(
    model_server: ModelServer, capsys: Any
) -> None:
    model_server.behave(then=good({"output": "Paris"}))
    for slug in ("one", "two"):
        make_model(slug=slug, base_url=model_server.base_url)
    assert evaluate("--model", "one", "--case", "france") == 0
    make_target(name="polite", kind="chat", config={"system_prompt": "Be polite."})
    with_model = ("--model", "two", "--case", "france")
    assert evaluate("--target", "polite", *with_model) == 0
    Target.objects.filter(name="polite").update(config={"system_prompt": "Be brief."})
    assert evaluate("--target", "polite", "--target", "one", *with_model) == 0
    runs = Run.objects.order_by("pk")
    named = [(run.target_name, run.target.model.slug) for run in runs if run.target.model]
    copies = [("polite with two", "two"), ("one with two", "two")]
    assert named == [("one", "one"), copies[0], *copies]
    assert len(set(runs.values_list("campaign", flat=True))) == 2
    prompts = {chat.body["messages"][0]["content"] for chat in model_server.chats}
    assert prompts == {"Capital of France?", "Be polite.", "Be brief."}
    shown = capsys.readouterr().out
    assert f"Leaderboard: {ADDRESS}/campaigns/{runs[3].campaign_id}/" in shown
    assert shown.count("Passed: both gates met.") == 4
    assert {chat.body["model"] for chat in model_server.chats} == {"one", "two"}

    copy = Target.objects.get(name="polite with two")
    with pytest.raises(EvalsiteError, match=f"Another member has just changed targets/{copy.pk}"):
        commands.Evalsite(ADDRESS).replace(f"targets/{copy.pk}", {"name": "as it was"}, {})
    copy.refresh_from_db()
    assert copy.config["system_prompt"] == "Be brief."

    make_target(name="none", kind="pushed")
    assert evaluate("--target", "none", *with_model) == 3
    assert "none is of kind pushed and uses no language model" in capsys.readouterr().err
    Target.objects.filter(name="one with two").update(model=None)
    assert evaluate("--target", "one", *with_model) == 3
    assert "already another target named one with two" in capsys.readouterr().err


def test_the_metrics_of_one_run_are_chosen_as_there_and_its_judge_asked_again(
    model_server: ModelServer, capsys: Any
) -> None:
    make_model(slug="judge", base_url=model_server.base_url)
    model_server.behave(then=good(metrics_reply({"input": {}}, {"tool_routing": 5})))
    work = {"name": "work", "type": "metrics_judge"}
    work |= {"metrics": ["tool_routing", "response_delivery"]}
    suite = {"name": "travel", "judge": "judge", "evaluators": [work]}
    suite |= {"tests": [{"id": "A", "input": "Book it."}]}
    Path("travel.yaml").write_text(json.dumps(suite))
    Path("outputs.jsonl").write_text('{"id": "A", "output": "Booked."}\n')
    given = ("--outputs", "outputs.jsonl", "--metric", "tool_routing")
    assert call("evaluate", "travel.yaml", *given, "--summary", "all.json") == 0
    [change] = json.loads(Path("all.json").read_text())["changed"]
    assert (change["name"], change["new"]) == ("metric.response_delivery", None)

    # The question is the same, so the score is kept, unless judges are to be asked all the same.
    again = ("evaluate", "travel", "--outputs-of", "travel#1", "--metric", "tool_routing")
    for option, calls, text in (
        ((), 0, "1 of 1 score is kept at no cost; no judge call."),
        (("--ask-again",), 1, "1 judge call"),
    ):
        capsys.readouterr()
        assert call(*again, *option) == 0
        assert text in capsys.readouterr().err
        assert Run.objects.latest("pk").model_calls.count() == calls


def test_ctrl_c_stops_the_run_and_run_goes_on_with_the_rest(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    asked: list[str] = []

    async def agent(case: Case) -> Any:
        asked.append(case.key)
        if len(asked) == 2:
            # A signal wakes the thread that waits for the answers.
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            await asyncio.sleep(3600)
        return {"output": "Paris", "latency_ms": 7}

    monkeypatch.setattr(agents, "agent_here", lambda *_: agent)
    assert evaluate(*WITH_COMMAND, "--concurrency", "1") == 3
    shown = capsys.readouterr()
    assert "Continue it: evalsite evaluate capitals.yaml --run capitals:1 --agent …" in shown.err
    assert "Not evaluated: Cancelled by" in shown.out
    assert Run.objects.get().status == "stopped"

    assert evaluate(*WITH_COMMAND, "--run", "capitals#1") == 1
    assert asked == ["france", "spain", "spain", "italy"]
    run = Run.objects.get()
    assert (run.status, run.pass_count, run.fail_count) == ("completed", 1, 2)
    assert evaluate(*WITH_COMMAND, "--run", "capitals#1") == 3
    assert "did not end early; there is nothing to resume" in capsys.readouterr().err


def test_where_the_site_takes_no_answers_it_is_said_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def refuse(*_: object) -> None:
        raise EvalsiteError("The site answered 503.")

    with monkeypatch.context() as broken:
        broken.setattr(Evalsite, "push", refuse)
        assert evaluate(*WITH_COMMAND) == 3
    shown = capsys.readouterr().err
    assert "Continue it: evalsite evaluate capitals.yaml --run capitals:1 --agent …" in shown
    assert shown.endswith("The site answered 503.\n")
    assert evaluate(*WITH_COMMAND, "--run", "capitals#1") == 1


def test_an_error_after_the_line_of_progress_has_its_own_line(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def lose_the_site(*_: object, **__: object) -> None:
        raise EvalsiteError("The site is gone.")

    monkeypatch.setattr(Evalsite, "wait", lose_the_site)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert evaluate(*WITH_COMMAND, "--case", "france") == 3
    shown = capsys.readouterr().err
    assert "1 of 1 answer" in shown
    assert shown.endswith("\nThe site is gone.\n")


@pytest.mark.parametrize("text", [FILE, FILE + JUDGED])
def test_what_is_imported_and_exported_is_the_same_as_there(
    text: str, tmp_path: Path, capsys: Any
) -> None:
    make_model(slug="juno")
    Path("prompts").mkdir()
    Path("prompts/tone.md").write_text("Kind?")
    Path("shop.yaml").write_text(text)
    assert call("import", "shop.yaml", "--judge", "juno") == 0
    assert "shop: new, at version 1." in capsys.readouterr().out
    assert Suite.objects.get().judge.slug == "juno"
    outs = ["shop.zip", "shop/"] if JUDGED in text else ["a.yaml", "b.jsonl", "c.zip", "d/"]
    for out in outs:
        assert call("export", "shop", "--out", f"far-{out}") == 0
        call_command("export", "shop", "--out", f"near-{out}")
    far = {
        path.name.removeprefix("far-"): path
        for path in tmp_path.rglob("*")
        if path.is_file() and "far-" in str(path)
    }
    assert far
    for path in far.values():
        near = Path(str(path).replace("far-", "near-"))
        assert near.read_bytes().replace(b"near-", b"far-") == path.read_bytes(), path
    other = text.replace("id: A", "id: X").replace("id: B", "id: Y")
    Path("other.yaml").write_text(other)
    assert call("import", "other.yaml") == 3
    assert "it shares no case with this file" in capsys.readouterr().err
    assert call("import", "other.yaml", "--slug", "shop") == 0
    assert Suite.objects.get().version == 2

    Path("two").mkdir()
    Path("two/1.yaml").write_text(CAPITALS)
    Path("two/2.yaml").write_text(CAPITALS.replace("capitals", "towns"))
    assert call("evaluate", "two/", *WITH_COMMAND) == 3
    assert "two contains 2 suites, and a run needs one." in capsys.readouterr().err
    assert Suite.objects.count() == 1
    Path("two/2.yaml").write_text(CAPITALS.replace("capitals", "towns") + "judge: nobody\n")
    assert call("import", "two/") == 3
    assert "capitals: new, at version 1." in capsys.readouterr().out


def test_a_table_of_cases_is_imported_as_there(capsys: Any) -> None:
    assert call("import", "capitals.yaml") == 0
    table = "nr,wording,Soll\nspain,Capital of Spain now?,Madrid\nnorway,Capital of Norway?,Oslo\nfiji,,Suva\n"
    Path("more.csv").write_text(table)
    given = ("more.csv", "--suite", "capitals", "--map", "input=wording", "--map", "expected=Soll")
    assert call("import", "more.csv") == 3
    assert "or with evalsite import FILE --suite SUITE" in capsys.readouterr().err
    assert call("import", given[0], "--suite", "nobody", *given[3:]) == 3
    assert f"There is no suite 'nobody' at {ADDRESS}." in capsys.readouterr().err
    Path("named.yaml").write_text(CAPITALS.replace("id: spain,", "id: spain, title: Iberia,"))
    call("import", "named.yaml")
    capsys.readouterr()
    assert call("import", *given) == 3
    assert (
        "more.csv, line 4, wording: is empty; write what the case asks" in capsys.readouterr().err
    )
    assert call("import", *given, "--map", "soul=nr") == 2
    assert "'soul' is not one of ignored, key" in capsys.readouterr().err
    assert Suite.objects.get().version == 2

    assert call("import", *given, "--leave-out-rejected") == 0
    far = capsys.readouterr()
    assert far.err == "Note: more.csv, line 4, wording: is empty; write what the case asks\n"
    assert far.out.startswith("capitals: version 3. 1 added, 1 changed, 0 unchanged, 1 rejected.")
    suite = Suite.objects.get()
    assert suite.versions.get(number=3).note == "2 cases from more.csv"
    spain = suite.cases.get(key="spain", is_current=True)
    assert (spain.title, spain.input[0]["content"]) == ("Iberia", "Capital of Spain now?")

    skipping = (*given, "--leave-out-rejected", "--existing", "skip")
    assert call("import", *skipping) == 0
    far = capsys.readouterr()
    call_command("import", *skipping)
    assert far == capsys.readouterr()
    assert "0 unchanged, 2 skipped, 1 rejected. From more.csv" in far.out
    make_suite(slug="empty")
    assert call("import", *given[:1], "--suite", "empty", *given[3:], "--leave-out-rejected") == 0
    assert "empty: version 2. 2 added" in capsys.readouterr().out


def test_a_comparison_is_the_same_as_there(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    answers = {"france": "Paris", "spain": "It is Madrid."}

    async def agent(case: Case) -> Any:
        text = answers.get(case.key, "No idea")
        return {"output": text, "latency_ms": 40 if answers else 50}

    # No figure comes from the clock of this machine.
    monkeypatch.setattr(agents, "agent_here", lambda *_: agent)
    assert evaluate(*WITH_COMMAND) == 1
    answers.clear()
    assert evaluate(*WITH_COMMAND) == 1
    words = ("capitals#1", "capitals:latest", "--max-pass-rate-drop", "0.1")
    capsys.readouterr()
    assert call("compare", *words, "--json", "far.json", "--markdown", "far.md") == 1
    far = capsys.readouterr().out
    with pytest.raises(SystemExit):
        call_command("compare", *words, "--json", "near.json", "--markdown", "near.md")
    assert far == capsys.readouterr().out
    for name in ("json", "md"):
        near = Path(f"near.{name}").read_text()
        assert Path(f"far.{name}").read_text() == near.replace("http://127.0.0.1:8000", ADDRESS)
    assert call("compare", "capitals#1", "capitals:baseline") == 3
    assert "There is no run 'capitals:baseline'." in capsys.readouterr().err
    assert call("compare", "capitals#1", "capitals#2", "--min-cases", "many") == 3


def test_the_way_round_for_a_site_elsewhere_is_an_address_of_the_api():
    for sentence in BY_API.values():
        [address] = re.findall(r"POST (\S+)\.", sentence)
        assert resolve(address.replace("SUITE", "capitals")).url_name


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            ("list", "runs"),
            2,
            "list works only on the machine of the site, not with EVALSITE_SERVER",
        ),
        (
            ("draft", "cases", "capitals", "--server", "x"),
            2,
            "drafts cases on its Cases page, or by POST /api/suites/SUITE/draft-cases.",
        ),
        (("up", "--server", "x"), 2, "up works only on the machine of the site, not with --server"),
        (("import", "a.csv", "--suite", "capitals"), 3, "a.csv: No such file or directory."),
        (("import", "a.csv", "b.csv", "--suite", "capitals"), 2, "name exactly one"),
        (("import", "a.csv", "--suite", "a", "--slug", "b"), 2, "--slug is for suite files"),
        (("import", "capitals.yaml", "--map", "input=a"), 2, "--map is for tables"),
        (("import", "--outputs=a.jsonl", "a.yaml"), 2, "evalsite evaluate SUITE --outputs FILE"),
        (("import", "a.yaml", "--note", "n"), 2, "The site itself says what a version changes"),
        (("evaluate", "capitals", *WITH_COMMAND, "--model", "m"), 2, "contradict each other"),
        (
            ("evaluate", "capitals", *WITH_COMMAND, "--target", "a", "--target", "b"),
            2,
            "--agent answers for one target",
        ),
        (("evaluate", "capitals", "--target", "a", "--target", "a"), 2, "'a' is repeated"),
        (
            ("evaluate", "capitals", "--target", "a", "--target", "b", "--out", "x.jsonl"),
            2,
            "files are of one run",
        ),
        (("evaluate", "capitals.yaml", "--target", "a", "--model", "m"), 3, "no target 'a'"),
        (
            ("evaluate", "capitals.yaml", *WITH_COMMAND, "--metric", "luck"),
            3,
            "--metric: capitals has no metrics judge.",
        ),
        (("evaluate", "capitals"), 2, "say what answers"),
        (
            ("evaluate", "capitals", *WITH_COMMAND, "--ask-again"),
            2,
            "--ask-again are for stored outputs",
        ),
        (("evaluate", "capitals", *WITH_COMMAND, "--concurrency", "0"), 2, "write 1 or more"),
        (
            ("evaluate", "capitals", *WITH_COMMAND, "--run", "capitals:1", "--judge", "j"),
            2,
            "--judge is of a new run; capitals:1 keeps what it was started with.",
        ),
        (("evaluate", "a", "--run", "a:1", "--max-minutes", "5"), 2, "--max-minutes is of a new"),
        (("evaluate", "a", "--run", "a:1", "--tag", "x"), 2, "--tag is of a new run"),
        (("evaluate", "a", "--run", "a:1", "--concurrency", "4"), 2, "--concurrency is of a new"),
        (("evaluate", "capitals", "--set", "a=1", "--target", "t"), 2, "is a setting of --agent"),
        (("evaluate", "capitals", *WITH_COMMAND, "--set", "x=1"), 3, "command has no such setting"),
        (("evaluate", "capitals", *WITH_COMMAND, "--set", "timeout_s=0"), 3, "timeout_s: Input"),
        (("evaluate", "no.yaml", *WITH_COMMAND), 3, "no.yaml"),
        (("export", "nobody"), 3, f"There is no suite 'nobody' at {ADDRESS}."),
        (
            ("export", "nobody", "--version", "7"),
            3,
            f"There is no suite 'nobody' with a version 7 at {ADDRESS}.",
        ),
        (("export", "no\udcffbody"), 3, "udcff' is not text in UTF-8."),
    ],
)
def test_what_cannot_be_done_says_why(
    words: tuple[str, ...], code: int, message: str, capsys: Any
) -> None:
    assert call(*words) == code
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"json": []}, "it is not a JSON object"),
        ({"json": None}, "not subscriptable"),
        ({"json": {}}, "KeyError: 'results'"),
        (
            {"headers": {"Content-Encoding": "gzip"}, "stream": httpx2.ByteStream(b"no gzip")},
            "cannot be reached: Error -3",
        ),
    ],
)
def test_what_is_no_answer_of_a_site_is_not_a_gate_that_failed(
    answer: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    transport = httpx2.MockTransport(lambda request: httpx2.Response(200, **answer))
    site = partial(Evalsite, token="evs_x", transport=transport, sleep=lambda seconds: None)
    monkeypatch.setattr(commands, "Evalsite", site)
    assert call("evaluate", "capitals", "--agent", "python agent.py") == 3
    assert reason in capsys.readouterr().err.splitlines()[-1]


def test_every_command_that_works_elsewhere_is_one_of_ours() -> None:
    assert set(REMOTE) == set(commands.RUN) == set(commands.PARSERS) == set(commands.EPILOGS)
    assert {*REMOTE, *OF_THIS_MACHINE} <= set(own_commands())
