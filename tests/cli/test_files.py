"""The files that `evaluate` leaves, read back by what reads them: JSON and a real XML parser."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from django.core.management import CommandError

from runs.models.runs import Run
from tests.cli.command_lines import evaluate
from tests.services.site import Site
from tests.support.factories import make_case, make_model, make_suite, make_target
from tests.support.model_server import ModelServer
from tests.support.trees import CHECK, tree

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).resolve().parents[2]
MANAGE = [sys.executable, ROOT / "manage.py"]
HOSTILE = "<b>\x1b[31m & “money” ]]>\u2028 \ufffe \U0001f600"


def recorded(*texts):
    suite = make_suite(slug="refunds", tree=tree(CHECK))
    for number, text in enumerate(texts):
        output = None if text is None else {"output": text, "latency_ms": 40}
        make_case(suite=suite, key=f"C-{number} {HOSTILE[:3]}", recorded_output=output)
    make_target(name=f"agent {HOSTILE}")
    return f"agent {HOSTILE}"


def read(path):
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.mark.parametrize("option", ["--out", "--summary"])
def test_a_hyphen_is_standard_output_and_moves_the_table_to_standard_error(
    option, capfd, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    target = recorded("a refund")
    assert evaluate("refunds", "--target", target, option, "-") == 0
    output = capfd.readouterr()
    assert json.loads(output.out)["target"]
    assert "Passed: both gates met." in output.err
    assert not list(tmp_path.iterdir())


def test_only_one_file_can_go_to_standard_output():
    target = recorded("a refund")
    with pytest.raises(CommandError, match="--out and --junit name the same file, -"):
        evaluate("refunds", "--target", target, "--out", "-", "--junit", "-")


def test_all_files_describe_the_same_run(tmp_path):
    target = recorded(f"a refund {HOSTILE}", f"nothing {HOSTILE}", None)
    out, summary, junit = (tmp_path / name for name in ("r.jsonl", "s.json", "j.xml"))
    files = ("--out", out, "--summary", summary, "--junit", junit)

    assert evaluate("refunds", "--target", target, "--repetitions", 2, *files) == 1

    lines = read(out)
    verdicts = [(line["repetition"], line["verdict"], line["score"]) for line in lines]
    assert verdicts == [
        *((n, "pass", 1.0) for n in (1, 2)),
        *((n, "fail", 0.0) for n in (1, 2)),
        *((n, None, None) for n in (1, 2)),
    ]
    assert lines[0]["output"] == f"a refund {HOSTILE}"
    assert {line["status"] for line in lines[4:]} == {"error"}
    document = json.loads(summary.read_text())
    assert (document["exit_code"], document["results"], document["counts"]["error"]) == (1, 6, 2)
    [suite] = ElementTree.parse(junit).getroot()
    counts = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "6", "failures": "2", "errors": "2", "skipped": "0"}
    properties = {one.get("name"): one.get("value") for one in suite.find("properties")}
    assert properties["status"] == "completed"
    assert properties["cases_gate"] == "failed 33.3%"
    assert next(case.get("time") for case in suite.iter("testcase")) == "0.040"


def test_a_run_against_a_model_server_prints_its_costs(tmp_path, model_server: ModelServer):
    prices = {"input_price_usd_per_mtok": 1000, "output_price_usd_per_mtok": 5000}
    make_model(slug="judge", base_url=model_server.base_url, **prices)
    make_model(slug="agent", base_url=model_server.base_url, **prices)
    folder = tmp_path / "evals"
    folder.mkdir()
    (folder / "suite.yaml").write_text(
        "name: kindness\nevaluators:\n"
        "  - {name: kind, type: llm_judge, prompt: Is it kind?, weight: 2}\n"
        "  - name: both\n    type: composite\n    aggregator: {type: minimum}\n"
        "    evaluators:\n"
        "      - {name: short, type: max_length, value: 9000}\n"
        "      - {name: clear, type: llm_judge, prompt: Is it clear?}\n"
        "tests:\n  - {id: a, input: hello}\n  - {id: b, input: good bye}\n"
    )
    out, junit = tmp_path / "r.jsonl", tmp_path / "j.xml"
    arguments = ("--model", "agent", "--judge", "judge", "--out", out, "--junit", junit)
    code = evaluate(folder / "suite.yaml", *arguments)
    lines = read(out)
    assert code == (0 if all(line["verdict"] == "pass" for line in lines) else 1)
    assert [line["eval_id"] for line in lines] == ["a", "b"]
    for line in lines:
        kind, both = line["evaluator_results"]
        assert (kind["type"], kind["weight"]) == ("llm_judge", 2.0)
        assert kind["usage"] == {"input_tokens": 100, "output_tokens": 20}
        assert [one["name"] for one in both["evaluator_results"]] == ["short", "clear"]
        assert both["score"] == min(one["score"] for one in both["evaluator_results"])
        assert (line["run_cost_usd"], line["evaluation_cost_usd"]) == (0.2, 0.4)
    assert len(list(ElementTree.parse(junit).getroot().iter("testcase"))) == 2


def test_files_that_cannot_be_written_are_refused_before_the_run(tmp_path):
    target = recorded("a refund")
    locked = tmp_path / "locked"
    locked.mkdir()
    for option in ("--out", "--summary", "--junit"):
        with pytest.raises(CommandError, match=f"{option} .*cannot be written") as refusal:
            evaluate("refunds", "--target", target, option, locked)
        assert refusal.value.returncode == 3
    with pytest.raises(CommandError, match="--out and --junit name the same file"):
        evaluate("refunds", "--target", target, "--out", tmp_path / "x", "--junit", tmp_path / "x")
    assert not Run.objects.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["locked"]


def test_a_refused_run_leaves_no_file(tmp_path):
    recorded("a refund")
    with pytest.raises(CommandError):
        evaluate("refunds", "--target", "nobody", "--out", tmp_path / "r.jsonl")
    assert not list(tmp_path.iterdir())


class Machine:
    """A site of its own with one suite file, and the command in processes of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.suite = folder / "s.yaml"
        self.suite.write_text(
            "name: s\nevaluators: [{type: contains, value: refund}]\n"
            "tests: [{id: a, input: x, output: a refund}]\n"
        )
        data = folder / "data"
        data.mkdir()
        self.env = {**os.environ, "EVALSITE_DATA_DIR": str(data), "DATABASE_URL": ""}
        Site(data).migrate()

    def begin(self, *arguments, **streams) -> subprocess.Popen[str]:
        command = [*MANAGE, "evaluate", self.suite, "--target", "recorded", *arguments]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
        return subprocess.Popen(command, env=self.env, cwd=ROOT, text=True, **streams)


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


@pytest.mark.slow
@pytest.mark.processes
def test_a_closed_pipe_does_not_change_the_exit_code(machine):
    """As in `evaluate … | head -0`: nobody reads standard output."""
    reader, writer = os.pipe()
    os.close(reader)
    command = machine.begin("--out", machine.folder / "r.jsonl", stdout=writer)
    os.close(writer)
    _, output = command.communicate()
    assert (command.returncode, "BrokenPipe" in output) == (0, False), output
    assert [line["verdict"] for line in read(machine.folder / "r.jsonl")] == ["pass"]


@pytest.mark.slow
@pytest.mark.processes
def test_two_concurrent_commands_import_once_and_start_two_runs(machine):
    files = [machine.folder / f"{number}.jsonl" for number in range(2)]
    commands = [machine.begin("--out", file) for file in files]
    output = [command.communicate()[1] for command in commands]
    assert [command.returncode for command in commands] == [0, 0], output
    assert sorted(read(file)[0]["run"] for file in files) == [1, 2]
    assert {read(file)[0]["target"] for file in files} == {"recorded in the cases"}
