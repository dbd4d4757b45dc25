"""Reviews as files: everything in the export, and an import that adds each once, all at once, or says why not."""

from __future__ import annotations

import csv
import io
import json
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from evaluators.models import AuditEntry
from evaluators.scoring.types import Verdict
from runs.formats.reviews import read_reviews
from runs.models.results import Result, ResultOutput
from runs.models.reviews import Review, ReviewItem
from runs.models.runs import Run
from runs.models.temporary import ReviewUpload
from runs.results.result_state import result_url
from runs.reviews.files import import_reviews
from runs.reviews.judge_agreement import suite_agreement
from runs.reviews.services import ReviewDecision, decide, undo
from runs.reviews.views import StoreReviewsForm
from tests.support.factories import make_user
from tests.support.members import make_client, make_member
from tests.support.queue import item_of, queued_run

pytestmark = pytest.mark.django_db
IMPORT = "/review/import/"


@pytest.fixture
def run() -> Run:
    """Return a run of three executions that wait, of a suite with two expected outcomes."""
    run = queued_run(slug="support")
    run.suite.cases.update(expected_outcomes=["a", "b"])
    return run


@pytest.fixture
def editor() -> Client:
    """Return a client of somebody who may import."""
    return make_client(make_member("editor", "ed"))


def export(client: Client, ending: str, query: str = "") -> str:
    response = client.get(f"/review/export.{ending}{query}")
    assert response.status_code == 200
    return b"".join(response.streaming_content).decode()


def upload(client: Client, text: str, name: str = "reviews.jsonl") -> str:
    """Upload a file and return what its preview says."""
    file = SimpleUploadedFile(name, text.encode())
    response = client.post(IMPORT, {"file": file}, follow=True)
    assert response.status_code == 200, response.content.decode()
    return " ".join(response.content.decode().split())


def store(client: Client, **fields: str) -> Any:
    kept = ReviewUpload.objects.first()
    assert kept is not None
    return client.post(f"{IMPORT}{kept.pk}/", fields, follow=True)


def line(**fields: Any) -> str:
    plain = {
        "suite": "support",
        "run": 1,
        "case": "C-001",
        "reviewer": "Prof. Berg",
        "verdict": "fail",
    }
    return json.dumps(plain | fields)


def decided(run: Run, *, note: str = "=SUM(A1)") -> Review:
    ann = make_user(role="reviewer", name="ann")
    said = ReviewDecision(
        Verdict.FAIL,
        note=note,
        tags=("made up; partly", "too long"),
        outcome_marks="1-",
        metric_labels={"tone": 4},
        seconds=31,
    )
    decide(item_of(run), said, by=ann)
    return Review.objects.get()


def test_the_export_holds_everything(run: Run, viewer_client: Client) -> None:
    review = decided(run)
    ResultOutput.objects.update_or_create(result=review.result, defaults={"text": "5 to 7 days"})
    decide(item_of(run, "C-002"), ReviewDecision(Verdict.PASS), by=review.reviewer)
    undo(item_of(run, "C-002"), by=review.reviewer)
    first, second = map(json.loads, export(viewer_client, "jsonl", "?suite=support").splitlines())
    assert first == {
        "suite": "support",
        "run": run.number,
        "case": "C-001",
        "reviewer": "ann",
        "verdict": "fail",
        "repetition": 1,
        "outcomes": ["met", "unmarked"],
        "metric_labels": {"tone": 4},
        "tags": ["made up; partly", "too long"],
        "note": "=SUM(A1)",
        "seconds": 31,
        "machine_verdict": "borderline",
        "machine_score": review.machine_score,
        "settled_verdict": "fail",
        "output_sha256": sha256(b"5 to 7 days").hexdigest(),
        "generation": 1,
        "sampling_rate": 1.0,
        "reasons": ["borderline"],
        "created_at": review.created_at.isoformat(),
        "withdrawn_at": None,
        "stale_at": None,
        "imported_by": "",
        "together": "",
    }
    assert datetime.fromisoformat(second["withdrawn_at"])
    assert second["settled_verdict"] == ""
    row = next(csv.DictReader(io.StringIO(export(viewer_client, "csv"))))
    assert row["note"] == "'=SUM(A1)"
    assert row["outcomes"] == "met; unmarked"
    assert row["tags"] == "made up; partly\ntoo long\n"
    assert export(viewer_client, "jsonl", "?suite=elsewhere") == ""
    assert export(viewer_client, "jsonl", f"?run={run.pk}&reason=audit") == ""
    assert len(export(viewer_client, "jsonl", f"?run={run.pk}&reason=borderline").splitlines()) == 2


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_an_export_read_back_is_the_same_and_adds_nothing_twice(
    run: Run, editor: Client, ending: str
) -> None:
    review = decided(run, note="-1 for 'tone'")
    before = export(editor, ending)
    again = upload(editor, before, f"reviews.{ending}")
    assert "All reviews in the file are stored already." in again
    editor.force_login(make_member("admin", "root"))
    Review.objects.all().delete()
    ReviewItem.objects.update(closed_at=None)
    Result.objects.update(reviewed_verdict="")
    said = upload(editor, before, f"reviews.{ending}")
    assert "Store 1 review<" in said
    stored = store(editor)
    assert "1 review imported" in stored.content.decode()
    new = Review.objects.get()
    assert new.imported_by == "root"
    Review.objects.update(imported_by="")
    assert export(editor, ending) == before
    assert (new.reviewer, new.created_at) == (review.reviewer, review.created_at)
    assert Result.objects.get(pk=review.result_id).reviewed_verdict == "fail"
    assert item_of(run).closed_at is not None
    assert "All reviews in the file are stored already." in upload(editor, before, f"r.{ending}")


def test_a_name_from_outside_is_kept_and_counts(run: Run, editor: Client) -> None:
    said = upload(editor, line(created_at="2026-03-14T09:26:53Z", tags=["made up"]))
    assert "1 reviewer is not a member." in said
    assert "Prof. Berg" in said
    assert not Review.objects.exists()
    store(editor)
    review = Review.objects.get()
    assert (review.reviewer, review.reviewer_word) == (None, "Prof. Berg")
    assert (review.machine_verdict, review.tags) == ("borderline", ["made up"])
    assert suite_agreement(run.suite).verdicts.agreement.n == 1
    assert "Prof. Berg" in editor.get("/suites/support/agreement/").content.decode()
    decision_message = AuditEntry.objects.filter(object_type="review").get()
    assert (
        decision_message.actor_name,
        decision_message.object_name,
        decision_message.after["added"],
    ) == ("ed", "reviews.jsonl", 1)
    assert AuditEntry.objects.filter(action="override").get().after["reviewed_verdict"] == "fail"
    # The same person later: that one stands. Earlier: it is kept as withdrawn.
    upload(editor, line(created_at="2026-03-15T09:26:53Z", verdict="pass"))
    store(editor)
    upload(editor, line(created_at="2026-03-13T09:26:53Z", verdict="borderline"))
    store(editor)
    assert Review.objects.standing().get().verdict == "pass"
    assert Review.objects.count() == 3
    assert Result.objects.get(pk=review.result_id).reviewed_verdict == "pass"


def test_a_decision_in_the_name_of_another_member_needs_an_admin(run: Run, editor: Client) -> None:
    ann = make_member("reviewer", "ann")
    names = ("ann", "Ann", "ed", "Prof. Berg")
    rows = "\n".join(line(case="C-002", reviewer=name, note="forged") for name in names)
    said = upload(editor, rows)
    assert said.count("This is a member&#x27;s name, and only an admin can import") == 2
    assert store(editor).status_code == 422
    store(editor, leave_out="on")
    assert {review.reviewer_word for review in Review.objects.all()} == {"ed", "Prof. Berg"}

    admin = make_client(make_member("admin", "root"))
    upload(admin, line(reviewer="ann"))
    store(admin)
    review = Review.objects.get(reviewer=ann)
    for page in (result_url(run, "C-001", 1), f"/review/{review.result.review_item.pk}/"):
        assert "imported by root" in admin.get(page).content.decode()
    assert '"imported_by": "root"' in export(admin, "jsonl")


WRONG = (
    ({"suite": "shop"}, "suite", "There is no suite shop."),
    ({"run": 9}, "run", "There is no run #9 of support."),
    ({"case": "C-9"}, "case", "Run #1 has no result of C-9."),
    ({"repetition": 2}, "repetition", "Run #1 has no result of C-001, repetition 2."),
    ({"reviewer": " "}, "reviewer", "Is empty."),
    ({"verdict": "good"}, "verdict", "&#x27;good&#x27; is not one of fail, borderline, pass."),
    ({"outcomes": ["met"]}, "outcomes", "1 given, and the case has 2 expected outcomes."),
    ({"metric_labels": {"tone": 6}}, "metric_labels", "6 is not from 0 to 5."),
    ({"sampling_rate": 0}, "sampling_rate", "0 is not a rate"),
    ({"created_at": "yesterday"}, "created_at", "is not a date and time such as"),
    ({"output_sha256": "0" * 64}, "output_sha256", "The review is about another output"),
    ({"generation": 2}, "generation", "The review is about another output"),
    ({"tags": ["x" * 70]}, "tags", "70 characters, and 60 is the limit"),
    ({"seconds": -1}, "seconds", "&#x27;-1&#x27; is not a whole number."),
    ({"created_at": "0001-01-01T00:00:00+14:00"}, "created_at", "before 1970"),
    ({"created_at": "2999-01-01T00:00:00Z"}, "created_at", "in the future"),
    ({"withdrawn_at": "9999-12-31T23:59:59-14:00"}, "withdrawn_at", "in the future"),
)


def test_every_rejected_row_has_its_line_column_and_reason(run: Run, editor: Client) -> None:
    lines = [line(case="C-002"), *(line(**wrong) for wrong, _, _ in WRONG), "{broken"]
    said = upload(editor, "\n".join(lines))
    assert f"{len(WRONG) + 1} rows rejected" in said
    for number, (_, column, reason) in enumerate(WRONG, 2):
        start = f'<td class="num">{number}</td><td><code>{column}</code></td><td class="long">'
        assert start in said
        assert reason in said.partition(start)[2].partition("</td>")[0]
    refused = store(editor)
    assert refused.status_code == 422
    assert f"{len(WRONG) + 1} rows are rejected" in refused.content.decode()
    assert not Review.objects.exists()
    store(editor, leave_out="on")
    assert Review.objects.get().result.case.key == "C-002"


def test_what_the_file_calls_stale_or_withdrawn_is_history(run: Run, editor: Client) -> None:
    said = upload(
        editor,
        "\n".join(
            [
                line(stale_at="2026-01-02T00:00Z", created_at="2026-01-01T00:00Z", generation=7),
                line(withdrawn_at="2026-01-02T00:00Z", created_at="2026-01-01T01:00Z"),
            ]
        ),
    )
    assert "2 <small>of the new ones, withdrawn or stale" in said
    store(editor)
    assert not Review.objects.standing().exists()
    assert set(Result.objects.values_list("reviewed_verdict", flat=True)) == {""}
    assert not ReviewItem.objects.filter(closed_at__isnull=False).exists()


def test_an_execution_that_was_not_queued_enters_with_the_rate_of_the_file(editor: Client) -> None:
    run = queued_run(["pass", "pass"], slug="support")
    text = [line(sampling_rate=0.05, reasons=["audit"]), line(case="C-002")]
    upload(editor, "\n".join(text))
    store(editor)
    drawn, picked = item_of(run), item_of(run, "C-002")
    assert (drawn.sampling_rate, drawn.reasons) == (0.05, " audit ")
    assert (picked.sampling_rate, picked.reasons) == (None, " asked_for ")
    assert suite_agreement(run.suite).verdicts.agreement.picked == 1


def test_what_is_no_file_of_reviews_is_refused(editor: Client) -> None:
    for text, reason in (("", "the file is empty"), ("a,b\n1,2", "no column is called suite")):
        file = SimpleUploadedFile("r.csv", text.encode())
        response = editor.post(IMPORT, {"file": file})
        assert response.status_code == 422
        assert reason in response.content.decode().replace("The file", "the file")
    assert not ReviewUpload.objects.exists()


def test_an_upload_is_its_owners_alone_and_viewers_may_not_import(
    run: Run, editor: Client, viewer_client: Client
) -> None:
    upload(editor, line())
    kept = ReviewUpload.objects.get()
    other = make_client(make_member("editor", "other"))
    assert other.get(f"{IMPORT}{kept.pk}/").status_code == 404
    assert viewer_client.get(IMPORT).status_code == 403
    store(editor)
    kept.refresh_from_db()
    assert bytes(kept.content) == b""
    assert "1 review imported" in store(editor).content.decode()
    assert Review.objects.count() == 1


def test_the_command_line_stores_all_or_nothing(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "experts.csv"
    path.write_text(
        "suite,run,case,reviewer,verdict\nsupport,1,C-001,Berg,pass\nsupport,1,C-9,Berg,pass\n"
    )
    with pytest.raises(CommandError) as refusal:
        call_command("import_reviews", str(path))
    assert refusal.value.returncode == 3
    assert not Review.objects.exists()
    assert "experts.csv, line 3, case: run #1 has no result of C-9" in capsys.readouterr().err
    call_command("import_reviews", str(path), "--dry-run", "--leave-out-rejected")
    assert "1 review would be added, 0 are here already." in capsys.readouterr().out
    assert not Review.objects.exists()
    call_command("import_reviews", str(path), "--leave-out-rejected")
    assert (
        "1 review added, 0 were here already; 1 reviewed verdict changed."
        in capsys.readouterr().out
    )
    assert AuditEntry.objects.filter(object_type="review").get().actor_name == "command line"
    call_command("import_reviews", str(path), "--leave-out-rejected")
    assert "0 reviews added, 1 were here already" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        call_command("import_reviews", "--help")
    decision_message = capsys.readouterr().out
    for part in ("exit codes:", "evalsite import_reviews reviews.jsonl", "--dry-run"):
        assert part in decision_message


def test_a_file_that_a_newer_one_displaces_meanwhile_is_not_found(
    run: Run, editor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide(item_of(run), ReviewDecision(Verdict.PASS), by=make_user(role="reviewer"))
    upload(editor, export(editor, "jsonl"))
    address, is_valid = f"{IMPORT}{ReviewUpload.objects.get().pk}/", StoreReviewsForm.is_valid

    def displace_then_validate(form: StoreReviewsForm) -> bool:
        ReviewUpload.objects.all().delete()
        return is_valid(form)

    monkeypatch.setattr(StoreReviewsForm, "is_valid", displace_then_validate)
    assert editor.post(address, {"leave_out": "on"}).status_code == 404


def test_statements_do_not_grow_with_the_decisions_of_a_file(editor: Client) -> None:
    """Others who write wait for the transaction that stores them."""
    counts = []
    for results, slug in ((2, "few"), (40, "many")):
        queued_run(["borderline"] * results, slug=slug, review_reviewers=2)
        lines = [
            line(suite=slug, case=f"C-{number:03}", reviewer=name, verdict=verdict)
            for number in range(1, results + 1)
            for name, verdict in (("Berg", "fail"), ("Lund", "pass"), ("Berg", "pass"))
        ]
        with CaptureQueriesContext(connection) as statements:
            done = import_reviews("\n".join(lines).encode(), file="r.jsonl", by=None)
        assert (done.added, done.changed) == (3 * results, results)
        counts.append(len(statements))
    # A statement of SQLite takes only so many values.
    assert counts[1] <= counts[0] + 2
    reviews = Review.objects.filter(result__run__suite__slug="many")
    assert reviews.standing().count() == 80
    assert (
        reviews.filter(reviewer_name="Berg", verdict="fail").exclude(withdrawn_at=None).count()
        == 40
    )
    assert not ReviewItem.objects.filter(closed_at=None).exists()


def test_more_labels_than_any_judge_has_metrics_are_refused() -> None:
    labels = {f"metric {number}": 3 for number in range(201)}
    [rejected] = read_reviews(line(metric_labels=labels).encode()).rejected
    assert (rejected.column, rejected.reason) == (
        "metric_labels",
        "has 201 labels, and 200 is the limit",
    )
