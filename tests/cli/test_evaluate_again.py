"""`evaluate SUITE --outputs-of RUN`: stored outputs judged again at the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from runs.models.results import ModelCall
from runs.models.runs import Run
from tests.cli.command_lines import evaluate
from tests.support.factories import change_suite, make_case, make_model, make_suite, make_target
from tests.support.model_server import ModelServer, good
from tests.support.trees import CHECK, JUDGED, tree

pytestmark = pytest.mark.django_db(transaction=True)
RUDE = {"reasoning": "Rude.", "hits": [], "misses": [], "score": 0.0}
TONE = {**JUDGED, "name": "tone", "config": {"prompt": "Is it kind?"}}


@pytest.fixture
def source(model_server: ModelServer) -> Run:
    """Evaluate two recorded outputs with a judge, and add a second judge to the suite then."""
    prices = {"input_price_usd_per_mtok": 1000, "output_price_usd_per_mtok": 5000}
    judge = make_model(
        slug="judge", base_url=model_server.base_url, send_trace_headers=True, **prices
    )
    suite = make_suite(slug="refunds", tree=tree(JUDGED, CHECK), judge=judge)
    for number in range(2):
        output = {"output": f"a refund {number}", "cost_usd": "0.25"}
        make_case(suite=suite, key=f"C-{number}", position=number, recorded_output=output)
    make_target(name="agent 1.5")
    assert evaluate("refunds", "--target", "agent 1.5") == 0
    change_suite(suite, tree=tree(JUDGED, TONE, CHECK))
    return Run.objects.get()


def test_an_added_evaluator_is_all_that_is_asked_and_paid_for(
    source: Run, model_server: ModelServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    requests, file = len(model_server.requests), tmp_path / "summary.json"
    assert evaluate("refunds", "--outputs-of", "refunds#1", "--summary", file) == 0
    assert len(model_server.requests) == requests + 2
    run = Run.objects.latest("id")
    assert (run.source_run, run.done_count, run.owner) == (source, 2, "command_line")
    shown = capsys.readouterr()
    assert "4 of 6 scores are kept at no cost; 2 judge calls, about $0.400." in shown.err
    assert "Outputs      2 of 2 of #1, judged again; their target cost was paid there" in shown.out
    written = json.loads(file.read_text())
    assert (written["judges_outputs_of"], written["scored_again_from"]) == (1, None)
    assert evaluate("refunds", "--outputs-of", "refunds#1", "--case", "C-1") == 0
    assert Run.objects.latest("id").done_count == 1
    assert evaluate("refunds", "--outputs-of", "refunds#1", "--filter", "case = C-0") == 0
    assert Run.objects.latest("id").results.get().case.key == "C-0"
    assert evaluate("refunds", "--outputs-of", "refunds#1", "--ask-again") == 0
    assert Run.objects.latest("id").model_calls.count() == 4
    with pytest.raises(CommandError, match="--ask-again is for stored outputs"):
        call_command("evaluate", "refunds", "--target", "agent 1.5", "--ask-again")


def test_the_exit_code_is_that_of_the_new_verdicts(source: Run, model_server: ModelServer) -> None:
    model_server.on_evaluator("tone", good(RUDE))
    assert evaluate("refunds", "--outputs-of", "refunds:latest") == 1
    # The newest run that asked a target is still the latest.
    assert Run.objects.named("refunds", "latest").first() == source


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (("--outputs-of", "refunds#1", "--target", "agent 1.5"), "contradict each other", 2),
        (("--outputs-of", "refunds#1", "--tag", "smoke"), "--filter 'tag = NAME'", 2),
        (("--outputs-of", "refunds#1", "--repetitions", "2"), "leave --repetitions out", 2),
        (("--target", "agent 1.5", "--version", "1"), "name their run with --outputs-of", 2),
        (("--outputs-of", "refunds#7"), "refunds has no run #7", 3),
        (("--outputs-of", "refunds#1", "--version", "7"), "no version 7; there is 1", 3),
        (("--outputs-of", "refunds#1", "--filter", "tone <"), "The filter cannot be read", 3),
        (("--outputs-of", "refunds#1", "--case", "C-9"), "no output that can be judged", 3),
    ],
)
def test_what_cannot_be_judged_starts_nothing_and_says_why(
    source: Run, arguments: tuple[str, ...], message: str, code: int
) -> None:
    calls = ModelCall.objects.count()
    with pytest.raises(CommandError, match=message) as refused:
        call_command("evaluate", "refunds", *arguments)
    assert refused.value.returncode == code
    assert (Run.objects.count(), ModelCall.objects.count()) == (1, calls)
