"""Small files are sent at once, large ones prepared by a worker and fetched from a page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import DatabaseError, OperationalError
from django.test import Client
from django.urls import reverse

from evalsite.access.members import erase_member
from evaluators.models import AuditEntry
from runs.execution.reaper import reap, register_worker
from runs.exports import services, specs
from runs.exports.services import MAX_EXPORTS, ExportWriter, reap_exports
from runs.models.database import database_now
from runs.models.removals import RemovalPart
from runs.models.results import ResultOutput
from runs.models.runs import Run
from runs.models.temporary import Export, ExportRequest, ExportState
from runs.retention.queries import Selection, select_runs
from runs.retention.services import begin_removal, remove_data
from runs.reviews.services import ask_for_review
from runs.tasks import FILE_KINDS
from tests.support.factories import make_result, make_scored_run, make_suite, make_user
from tests.support.members import make_client, make_member

pytestmark = pytest.mark.django_db

LINES = "/suites/support/runs/1/results.jsonl"


@pytest.fixture
def run() -> Run:
    """Return run 1 of the suite support, with three results."""
    return make_scored_run(suite=make_suite(slug="support"), verdicts=("pass", "fail", "error"))


def ask(client: Client, address: str = LINES) -> ExportRequest:
    """Ask for a file and return the request that the page of the answer shows."""
    response = client.get(address)
    assert response.status_code == 302, response
    return ExportRequest.objects.select_related("export").get(
        pk=response["Location"].strip("/").rpartition("/")[2]
    )


def page_of(asked: ExportRequest) -> str:
    return reverse("runs:export", args=[asked.pk])


def file_of(asked: ExportRequest) -> str:
    return reverse("runs:export-file", args=[asked.pk])


def fetch(client: Client, asked: ExportRequest) -> list[bytes]:
    """Return the lines of the file of an export."""
    response = client.get(file_of(asked))
    assert response.status_code == 200
    return response.getvalue().splitlines()


def write() -> None:
    ExportWriter().write_waiting(FILE_KINDS)


def test_a_small_file_is_sent_at_once(viewer_client: Client, run: Run, monkeypatch):
    monkeypatch.undo()
    response = viewer_client.get(LINES)
    assert response.status_code == 200
    assert len(response.getvalue().splitlines()) == 3
    assert not Export.objects.exists()


def test_long_outputs_make_a_file_large(viewer_client: Client, run: Run, monkeypatch):
    monkeypatch.setattr(specs, "MAX_BYTES_AT_ONCE", 100_000)
    assert viewer_client.get(LINES).status_code == 200
    # Not every target tells how many tokens that is, and so many characters have more bytes.
    ResultOutput.objects.create(result=run.results.first(), text="ü" * 50_000)
    assert ask(viewer_client).export.row_count == 3
    assert viewer_client.get(LINES.replace("jsonl", "csv")).status_code == 200


def test_a_large_file_is_prepared_by_a_worker_and_fetched_from_its_page(
    viewer_client: Client, run: Run
):
    asked = ask(viewer_client)
    assert "Waiting for a worker" in viewer_client.get(page_of(asked)).content.decode()
    early = viewer_client.get(file_of(asked))
    assert (early.status_code, early["Location"]) == (302, page_of(asked))

    write()
    page = viewer_client.get(page_of(asked)).content.decode()
    assert f'href="{file_of(asked)}"' in page
    response = viewer_client.get(file_of(asked))
    assert response["Content-Disposition"] == 'attachment; filename="support-1.jsonl"'
    assert response["Content-Type"] == "application/jsonl; charset=utf-8"
    content = response.getvalue()
    assert int(response["Content-Length"]) == len(content)
    assert [json.loads(line)["eval_id"] for line in content.splitlines()] == [
        "C-001",
        "C-002",
        "C-003",
    ]
    entry = AuditEntry.objects.filter(action="download").get()
    assert entry.object_name == "support-1.jsonl"


# One of each kind: what no worker knows is missed by nothing else.
ADDRESSES = {
    "audit": "/audit/audit.jsonl?kind=run",
    "cases": "/suites/support/case-export/",
    "comparison": "/compare/cases.csv?baseline=support:1&candidate=support:2",
    "reviews": "/review/export.csv?suite=support",
    "run-cases": "/suites/support/runs/1/cases.jsonl",
    "run-junit": "/suites/support/runs/1/junit.xml",
    "run-results": f"{LINES}?keys=camelCase",
    "run-table": "/suites/support/runs/1/results.csv",
    "run-view": "/suites/support/runs/1/table.csv?sort=-score",
    "side-by-side": "/compare/many/cases.csv?runs=support:1,support:2",
    "suite": "/suites/support/file/",
}


@pytest.mark.parametrize("kind", sorted(ADDRESSES.keys() | FILE_KINDS.keys()))
def test_every_kind_of_file_is_the_same_from_a_worker_and_at_once(
    admin_client: Client, run: Run, monkeypatch, kind: str
):
    make_scored_run(suite=run.suite, verdicts=("pass", "pass", "pass"))
    AuditEntry.objects.record("start", by=None, object_type="run", object_name="support #1")
    get = admin_client.get
    if kind == "cases":
        form = {"everything": "1", "format": "csv"}
        get = lambda address: admin_client.post(address, form)  # noqa: E731
    asked = get(ADDRESSES[kind])
    assert Export.objects.get().kind == kind
    write()
    export = ExportRequest.objects.get()
    assert Export.objects.get().state == ExportState.READY, Export.objects.get().error
    assert asked["Location"] == page_of(export)
    made = admin_client.get(file_of(export))
    content = made.getvalue()

    monkeypatch.setattr(specs, "MAX_BYTES_AT_ONCE", 10**9)
    at_once = get(ADDRESSES[kind])
    assert at_once.getvalue() == content
    assert len(content) > 20
    for header in ("Content-Disposition", "Content-Type"):
        assert at_once[header] == made[header]


def test_two_members_share_a_file_while_it_is_true(viewer_client: Client, run: Run):
    other = make_client(make_member("editor"))
    asked = ask(viewer_client)
    write()
    assert ask(viewer_client).pk == asked.pk
    shared = ask(other)
    assert shared.pk != asked.pk
    assert shared.export_id == asked.export_id
    assert fetch(other, shared)

    make_result(run=run, case=run.results.first().case, verdict="pass", repetition=2)
    Run.objects.filter(pk=run.pk).update(execution_count=4)
    assert ask(viewer_client).export_id != asked.export_id


@pytest.mark.parametrize(
    "address",
    [
        "/suites/support/runs/1/table.csv?columns=case,review",
        "/suites/support/runs/1/table.csv?group=review",
        "/suites/support/runs/1/table.csv?q=review+%3D+waiting",
        "/compare/cases.csv?baseline=support:1&candidate=support:2&q=review+%3D+waiting",
        "/compare/many/cases.csv?runs=support:1,support:2&q=review+%3D+waiting",
    ],
)
def test_a_file_follows_the_review_queue(viewer_client: Client, run: Run, address: str):
    later = make_scored_run(suite=run.suite, verdicts=("pass", "pass", "pass"))
    asked = ask(viewer_client, address)
    write()
    for one in (run, later):
        ask_for_review(one.results.get(case__key="C-002"), by=None)
    again = ask(viewer_client, address)
    write()
    assert fetch(viewer_client, again) != fetch(viewer_client, asked)


def test_nobody_fetches_the_export_of_another_member(
    viewer_client: Client, client: Client, run: Run
):
    asked = ask(viewer_client)
    write()
    stranger = make_client(make_member("admin"))
    for address in (page_of(asked), file_of(asked)):
        assert stranger.get(address).status_code == 404
        assert client.get(address)["Location"].startswith("/login")
    for name in ("runs:export-cancel", "runs:export-retry"):
        assert stranger.post(reverse(name, args=[asked.pk])).status_code == 404


def test_rights_are_asked_again_when_a_file_is_fetched(run: Run):
    member = make_member("admin")
    client = make_client(member)
    AuditEntry.objects.record("change", by=member, object_type="user", object_name="ada")
    asked = ask(client, "/audit/audit.jsonl")
    write()
    assert fetch(client, asked)

    member.groups.set([make_user(role="editor").groups.get()])
    # An editor reads the audit, but not its entries about members.
    assert client.get(file_of(asked)).status_code == 403


def test_an_export_is_cancelled_while_it_is_made(viewer_client: Client, run: Run, monkeypatch):
    monkeypatch.setattr(services, "PROGRESS_EVERY_S", 0)
    asked = ask(viewer_client)
    seen = []

    def cancel_after_the_first_row() -> None:
        seen.append(1)
        if len(seen) == 1:
            viewer_client.post(reverse("runs:export-cancel", args=[asked.pk]))

    ExportWriter().write_waiting(FILE_KINDS, pause=cancel_after_the_first_row)
    assert len(seen) == 1
    assert not Export.objects.exists()
    gone = viewer_client.get(reverse("runs:export-state", args=[asked.pk]))
    assert gone.status_code == 286
    assert "The export was deleted" in gone.content.decode()
    assert not list(services.settings.EXPORTS_DIR.iterdir())


def test_a_file_that_others_want_stays_when_one_cancels(viewer_client: Client, run: Run):
    other = make_client(make_member("viewer", "other"))
    asked, shared = ask(viewer_client), ask(other)
    viewer_client.post(reverse("runs:export-cancel", args=[asked.pk]))
    write()
    assert fetch(other, shared)
    other.post(reverse("runs:export-cancel", args=[shared.pk]))
    assert not Export.objects.exists()


def test_progress_is_told_in_rows(viewer_client: Client, run: Run, monkeypatch):
    monkeypatch.setattr(services, "PROGRESS_EVERY_S", 0)
    asked = ask(viewer_client)
    states = []

    def look() -> None:
        response = viewer_client.get(reverse("runs:export-state", args=[asked.pk]))
        states.append((response.status_code, response.content.decode()))

    ExportWriter().write_waiting(FILE_KINDS, pause=look)
    assert [status for status, _ in states] == [200, 200, 200]
    assert "0 of 3 rows" in states[0][1]
    assert "2 of 3 rows" in states[2][1]
    last = viewer_client.get(reverse("runs:export-state", args=[asked.pk]))
    assert last.status_code == 286


def test_a_full_disk_is_told_and_the_file_can_be_made_again(
    viewer_client: Client, run: Run, monkeypatch, exports_dir: Path
):
    asked = ask(viewer_client)
    with monkeypatch.context() as patched:
        patched.setattr(services, "MIN_FREE_BYTES", 2**60)
        write()
    page = viewer_client.get(page_of(asked)).content.decode()
    assert f"The disk of {exports_dir} is full" in page
    assert not list(exports_dir.iterdir())

    viewer_client.post(reverse("runs:export-retry", args=[asked.pk]))
    write()
    assert fetch(viewer_client, asked)


def test_a_folder_that_cannot_be_written_is_told(
    viewer_client: Client, run: Run, exports_dir: Path
):
    exports_dir.write_text("a file, no folder")
    asked = ask(viewer_client)
    write()
    assert f"{exports_dir} cannot be written" in viewer_client.get(page_of(asked)).content.decode()


def test_an_error_while_a_file_is_made_is_told(viewer_client: Client, run: Run, exports_dir: Path):
    asked = ask(viewer_client)
    Run.objects.filter(pk=run.pk).update(snapshot=run.snapshot | {"version": 99})
    write()
    page = viewer_client.get(page_of(asked)).content.decode()
    assert "The file could not be prepared" in page
    assert "version" in page
    assert not list(exports_dir.iterdir())


def test_a_file_that_the_web_server_does_not_find_is_told(viewer_client: Client, run: Run):
    asked = ask(viewer_client)
    write()
    Export.objects.get().path.unlink()
    assert "EVALSITE_EXPORTS_DIR" in viewer_client.get(page_of(asked)).content.decode()
    assert viewer_client.get(file_of(asked))["Location"] == page_of(asked)
    viewer_client.post(reverse("runs:export-retry", args=[asked.pk]))
    write()
    assert fetch(viewer_client, asked)


def lost_by(worker: str) -> Export:
    """Let a worker hold the waiting export, with a file that is half made."""
    Export.objects.update(
        state=ExportState.WRITING, worker=worker, token="a" * 32, attempts=1, done_count=1
    )
    export = Export.objects.get()
    export.path.parent.mkdir(exist_ok=True)
    export.path.with_name(f"{export.path.name}.part").write_text("half")
    return export


def test_an_export_of_a_dead_worker_is_made_again(
    viewer_client: Client, run: Run, exports_dir: Path
):
    asked = ask(viewer_client)
    lost_by("a-host/gone/1/1")
    assert reap_exports(now=database_now(), is_silence_death=True)
    reap_exports(now=database_now(), is_silence_death=True)
    assert not list(exports_dir.iterdir())
    write()
    assert len(fetch(viewer_client, asked)) == 3


def test_an_export_of_a_living_worker_is_left_to_it(viewer_client: Client, run: Run):
    ask(viewer_client)
    register_worker(now=database_now(), version="1")
    export = lost_by("elsewhere/x/1/1")
    # Its last sign of life may be missing because the database was away.
    reap_exports(now=database_now(), is_silence_death=False)
    export.refresh_from_db()
    assert export.state == ExportState.WRITING


def test_an_export_that_ends_three_workers_is_given_up(viewer_client: Client, run: Run):
    asked = ask(viewer_client)
    lost_by("a-host/gone/1/1")
    Export.objects.update(attempts=3)
    assert not reap_exports(now=database_now(), is_silence_death=True)
    assert "3 workers ended" in viewer_client.get(page_of(asked)).content.decode()


def test_a_worker_that_loses_the_database_gives_the_export_back(
    viewer_client: Client, run: Run, monkeypatch
):
    asked = ask(viewer_client)

    def lose() -> Iterator[str]:
        raise OperationalError("the server closed the connection")

    with monkeypatch.context() as patched:
        patched.setattr("runs.results.files.result_lines", lambda run, ids: lose())
        with pytest.raises(DatabaseError):
            write()
    assert reap_exports(now=database_now(), is_silence_death=False)
    write()
    assert fetch(viewer_client, asked)


def test_a_worker_that_stops_leaves_the_export_to_another(viewer_client: Client, run: Run):
    asked = ask(viewer_client)
    writer = ExportWriter()
    writer.write_waiting(FILE_KINDS, pause=writer.stop)
    export = Export.objects.get()
    assert (export.state, export.attempts) == (ExportState.WAITING, 0)
    assert not list(services.settings.EXPORTS_DIR.iterdir())
    write()
    assert fetch(viewer_client, asked)


def test_the_reaper_deletes_what_expired_and_nothing_else(
    viewer_client: Client, run: Run, exports_dir: Path
):
    old, kept = ask(viewer_client), ask(viewer_client, "/suites/support/runs/1/results.csv")
    write()
    foreign = exports_dir / "notes.txt"
    foreign.write_text("of somebody")
    past = database_now() - timedelta(seconds=1)
    Export.objects.filter(pk=old.export_id).update(expires_at=past)
    reap(now=database_now())
    kept.export.refresh_from_db()
    assert set(exports_dir.iterdir()) == {foreign, kept.export.path}
    assert viewer_client.get(page_of(old)).status_code == 404


@pytest.mark.parametrize("part", [RemovalPart.RUN, RemovalPart.OUTPUTS])
def test_exports_of_a_suite_go_with_its_data(
    viewer_client: Client, run: Run, exports_dir: Path, part: RemovalPart
):
    make_scored_run(suite=make_suite(slug="other"), verdicts=("pass",))
    ask(viewer_client)
    kept = ask(viewer_client, "/suites/other/runs/1/results.jsonl")
    write()
    selection = Selection(part, run.suite, select_runs(run.suite))
    removal = begin_removal(selection, by=None)
    assert [each.pk for each in ExportRequest.objects.all()] == [kept.pk]
    if part == RemovalPart.OUTPUTS:
        ask(viewer_client)
    remove_data(removal.pk)
    assert [each.pk for each in ExportRequest.objects.all()] == [kept.pk]


def test_deleting_personal_data_deletes_files_that_may_name_the_member(
    viewer_client: Client, run: Run, exports_dir: Path, django_capture_on_commit_callbacks
):
    member, admin = make_member("editor"), make_member("admin")
    ask(make_client(member))
    ask(viewer_client, "/review/export.csv")
    write()
    with django_capture_on_commit_callbacks(execute=True):
        erase_member(member, actor=admin)
    assert not Export.objects.exists()
    assert not list(exports_dir.iterdir())


def test_a_member_keeps_the_newest_files(viewer_client: Client, run: Run):
    first = ask(viewer_client)
    write()
    for number in range(MAX_EXPORTS):
        ask(viewer_client, f"/review/export.jsonl?suite=none-{number}")
    assert ExportRequest.objects.count() == MAX_EXPORTS
    assert viewer_client.get(page_of(first)).status_code == 404

    refused = viewer_client.get("/review/export.jsonl?suite=one-more", follow=True)
    assert f"{MAX_EXPORTS} of your exports are being prepared" in refused.content.decode()


def test_the_list_shows_ones_own_exports(viewer_client: Client, run: Run):
    address = reverse("runs:exports")
    assert "You have no exports" in viewer_client.get(address).content.decode()
    asked = ask(viewer_client)
    waiting = viewer_client.get(reverse("runs:export-rows"))
    assert waiting.status_code == 200
    assert "No worker is running" in waiting.content.decode()
    write()
    page = viewer_client.get(address).content.decode()
    assert f'href="{file_of(asked)}"' in page
    assert viewer_client.get(reverse("runs:export-rows")).status_code == 286
    other = make_client(make_member("viewer", "other"))
    assert "support-1.jsonl" not in other.get(address).content.decode()
