"""`evalsite draft cases`: a model drafts cases, which are listed, written to a file, or stored."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from runs.drafting.services import start_drafting
from runs.execution import jobs
from runs.management.commands import draft as command
from runs.models.jobs import ModelJob
from runs.models.results import ResultOutput
from runs.models.suites import Suite
from tests.support.factories import make_case, make_model, make_result, make_run, make_suite
from tests.support.model_server import ModelServer, good

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clock")]
CASES = [
    {"title": "Gift, one", "input": "Can I return a gift, please?", "expected_output": "Yes",
     "expected_outcomes": ["Is kind; friendly", "Says yes"], "tags": ["a", "b"]},
    {"title": "Same", "input": "where is my refund", "expected_output": "", "expected_outcomes": [], "tags": []},
]  # fmt: skip


@pytest.fixture
def suite(model_server: ModelServer) -> Suite:
    suite = make_suite(slug="refunds", title="Refunds")
    make_case(suite=suite, key="C-1", input=[{"role": "user", "content": "Where is my refund?"}])
    price = {"input_price_usd_per_mtok": Decimal(10), "output_price_usd_per_mtok": Decimal(50)}
    make_model(slug="mock", name="Mock", base_url=model_server.base_url, **price)
    model_server.behave(then=good({"cases": CASES}))
    return suite


def draft(*words: str) -> None:
    call_command("draft", "cases", "refunds", "--model", "mock", *words)


def test_cases_are_listed_with_what_they_repeat_and_nothing_is_stored(
    suite: Suite, capsys: pytest.CaptureFixture[str]
) -> None:
    draft("--description", "A shop", "--count", "2", "--budget", "0.50")
    said = capsys.readouterr().err
    assert "1 call of Mock for about $0.03" in said
    assert "+ gift-one  Gift, one\n" in said
    assert "- same  Same  (repeats C-1)" in said
    assert "2 cases drafted by Mock for $0.002." in said
    assert "Nothing is stored" in said
    assert (suite.cases.count(), ModelJob.objects.get().budget_usd) == (1, Decimal("0.5"))


def test_a_job_whose_worker_ends_is_continued_here(
    suite: Suite, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*args: Any, **options: Any) -> ModelJob | None:
        job = start_drafting(*args, **options)
        return ModelJob.objects.claim(job.pk, "elsewhere/x/1/1")

    monkeypatch.setattr(command, "start_drafting", start)
    monkeypatch.setattr(jobs.time, "sleep", lambda s: ModelJob.objects.get().release())
    draft("--description", "A shop", "--count", "2")
    assert "2 cases drafted by Mock" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["cases.csv", "cases.jsonl"])
def test_a_written_file_is_imported_as_the_same_cases(
    suite: Suite, tmp_path: Path, name: str
) -> None:
    out = tmp_path / name
    draft("--description", "A shop", "--count", "2", "--out", str(out))
    assert suite.cases.count() == 1
    call_command("import", str(out), "--suite", "refunds")
    case = suite.cases.get(key="gift-one")
    assert (case.input[0]["content"], case.expected_output) == (CASES[0]["input"], "Yes")
    assert (case.expected_outcomes, case.tags) == (CASES[0]["expected_outcomes"], ["a", "b"])
    assert case.metadata["drafted"]["by"] == "Mock"


def test_failed_results_and_documents_are_read_and_yes_stores(
    suite: Suite, model_server: ModelServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(suite=suite, number=12)
    result = make_result(run=run, case=suite.cases.get(), verdict="fail", score=0.1)
    ResultOutput.objects.create(result=result, text="No idea.")
    draft("--from-run", "refunds#12", "--failed", "--count", "2", "--yes")
    assert "from 1 failed result of refunds#12." in capsys.readouterr().err
    assert "The agent answered: No idea." in model_server.requests[0].text
    assert (
        suite.cases.get(key="gift-one").metadata["drafted"]["from"]
        == "1 failed result of refunds#12"
    )
    document = tmp_path / "handbook.md"
    document.write_text("Parcels take three days.")
    draft("--documents", str(document), "--count", "2", "--out", "-")
    assert "Parcels take three days." in model_server.requests[-1].text
    # What was stored before is an exact repetition now.
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (["--failed", "--description", "x"], 2, "need --from-run"),
        (["--cases", "C-1", "--from-run", "refunds#1"], 2, "exclude each other"),
        (["--budget", "much", "--description", "x"], 2, "write US dollars"),
        (["--out", "a.txt", "--description", "x"], 3, "names no format"),
        ([], 3, "Describe the agent"),
        (["--documents", "/nowhere.md"], 3, "cannot be read: No such file"),
        (["--cases", "C-9"], 3, "none of these cases"),
    ],
)
def test_wrong_use_asks_nothing(
    suite: Suite, model_server: ModelServer, words: list[str], code: int, reason: str
) -> None:
    with pytest.raises(CommandError, match=reason) as refusal:
        draft(*words)
    assert refusal.value.returncode == code
    assert not model_server.requests


def test_a_model_that_gives_nothing_ends_with_its_reason(
    suite: Suite, model_server: ModelServer
) -> None:
    answer: Any = good("no")
    model_server.behave(then=answer)
    with pytest.raises(CommandError, match="does not start with a JSON object") as refusal:
        draft("--description", "A shop")
    assert refusal.value.returncode == 3
