"""Cases of a spreadsheet: uploaded, looked at, mended and stored, and never seen by anybody else."""

from __future__ import annotations

import csv
import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from evaluators.models import AuditEntry
from runs.cases.preview import RowChoices
from runs.cases.services import add_case, change_case, restore_case
from runs.cases.uploads import UploadedTable
from runs.formats.table_cases import TableReading
from runs.models.removals import RemovalPart
from runs.models.suites import Suite, SuiteVersion
from runs.models.temporary import CaseUpload
from runs.retention.queries import Selection
from runs.retention.services import begin_removal
from runs.specs.suites import CaseSpec
from tests.support.factories import make_case, make_run, make_suite, make_user

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]
TABLE = (
    "id,question,expected answer,outcomes,plan\n"
    'R-1,When?,Soon,"Names the days\nIs polite",pro\n'
    "R-2,How much?,,<b>Names</b> the sum,\n"
    "R-1,Again?,,,\n"
    "R-3,=1+1,,,free\n"
    "R-4,,,,\n"
)


@pytest.fixture
def editor(client: Client) -> Client:
    client.force_login(make_user(role="editor"))
    return client


@pytest.fixture
def suite(db: None) -> Suite:
    return make_suite(slug="refunds", title="Refunds")


def upload(client: Client, suite: Suite, content: str | bytes = TABLE, **fields: Any) -> Any:
    raw = content.encode() if isinstance(content, str) else content
    data = {"file": SimpleUploadedFile("refunds.csv", raw), **fields}
    return client.post(reverse("runs:case-import", args=[suite.slug]), data)


def uploaded(client: Client, suite: Suite, content: str | bytes = TABLE) -> CaseUpload:
    assert upload(client, suite, content).status_code == 302
    return CaseUpload.objects.first()


def place(kept: CaseUpload, name: str = "case-table") -> str:
    return reverse(f"runs:{name}", args=[kept.pk])


def columns(*parts: str, **others: str) -> dict[str, str]:
    fields = {f"column-{n}": part for n, part in enumerate(parts)}
    return {**fields, "split": "lines", "existing": "update", **others}


MAPPED = columns("key", "input", "expected_output", "expected_outcomes", "metadata")


class TestUpload:
    def test_a_file_is_shown_as_it_was_understood_before_anything_is_stored(
        self, editor: Client, suite: Suite
    ) -> None:
        response = upload(editor, suite)
        kept = CaseUpload.objects.get()
        assert response.url == place(kept)
        html = editor.get(place(kept)).content.decode()
        assert "refunds.csv" in html
        assert "comma between cells" in html
        assert "3 of 3 cases ticked" in html
        assert "2 rows rejected" in html
        assert "Id: " not in html
        assert "The key &#x27;R-1&#x27; is on line 2 already" in html
        assert "&lt;b&gt;Names&lt;/b&gt; the sum" in html
        assert "<b>Names" not in html
        assert not suite.cases.exists()

    def test_rows_can_be_pasted_from_a_spreadsheet(self, editor: Client, suite: Suite) -> None:
        rows = "id\tquestion\nA\tWhy, then?\n"
        address = reverse("runs:case-import", args=[suite.slug])
        html = editor.post(address, {"pasted": rows}, follow=True).content.decode()
        assert "tab between cells" in html
        assert "1 of 1 case ticked" in html

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"", "The file is empty."),
            (b"id,question\n", "The table has a header and no rows; add a row for each case."),
            (b"PK\x03\x04", "The file is a zip or an Excel workbook"),
        ],
    )
    def test_what_is_no_table_is_refused_with_the_remedy(
        self, editor: Client, suite: Suite, content: bytes, said: str
    ) -> None:
        response = upload(editor, suite, content)
        assert response.status_code == 422
        assert said in response.content.decode()
        assert not CaseUpload.objects.exists()

    def test_a_file_or_rows_are_wanted_and_not_both(self, editor: Client, suite: Suite) -> None:
        address = reverse("runs:case-import", args=[suite.slug])
        assert "Choose a file, or paste rows below." in editor.post(address).content.decode()
        assert "not both" in upload(editor, suite, pasted="a\nb").content.decode()

    def test_only_the_last_ten_files_of_a_member_are_kept_and_all_go_after_a_day(
        self, editor: Client, suite: Suite
    ) -> None:
        for _ in range(12):
            upload(editor, suite)
        assert CaseUpload.objects.count() == 10
        CaseUpload.objects.forget_old(now=timezone.now() + timedelta(hours=23))
        assert CaseUpload.objects.count() == 10
        CaseUpload.objects.forget_old(now=timezone.now() + timedelta(hours=25))
        assert not CaseUpload.objects.exists()


class TestPreview:
    def test_a_changed_column_is_kept_and_shown_with_and_without_scripts(
        self, editor: Client, suite: Suite
    ) -> None:
        kept = uploaded(editor, suite)
        changed = MAPPED | {"column-2": "criteria"}
        part = editor.post(place(kept), changed, headers={"HX-Request": "true"})
        html = part.content.decode()
        assert part.status_code == 200
        assert "<html" not in html
        assert "<small>Criteria</small>" in html
        answer = editor.post(place(kept), changed | {"split": "none"}, follow=True)
        assert answer.redirect_chain == [(place(kept), 302)]
        again = editor.get(place(kept)).content.decode()
        assert '<option value="criteria" selected>' in again
        assert '<option value="none" selected>' in again

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"column-1": "metadata"}, "No column is the input; choose the one"),
            ({"column-2": "input"}, "2 columns are the input; choose one."),
            ({"column-1": "palmistry"}, "palmistry is not one of the available choices"),
            ({"split": "x"}, "x is not one of the available choices"),
        ],
    )
    def test_a_mapping_that_makes_no_cases_is_refused_and_not_kept(
        self, editor: Client, suite: Suite, change: dict[str, str], said: str
    ) -> None:
        kept = uploaded(editor, suite)
        for name in ("case-table", "case-table-store"):
            response = editor.post(place(kept, name), MAPPED | change | {"leave_out": "on"})
            assert response.status_code == 422
            assert said in response.content.decode()
        kept.refresh_from_db()
        assert kept.reading is None
        assert not suite.cases.exists()

    def test_rejected_rows_come_in_pages_and_as_a_file_to_mend(
        self, editor: Client, suite: Suite
    ) -> None:
        kept = uploaded(editor, suite, "id,question,x\n" + "A,=SUM(1),1\n" * 61)
        html = editor.get(f"{place(kept)}?page=2").content.decode()
        assert "60 rows rejected" in html
        assert "Page 2 of 2" in html
        for odd in ("0", "9", "x", "9" * 99):
            assert editor.get(f"{place(kept)}?page={odd}").status_code == 200
        answer = editor.get(place(kept, "case-table-rejected"))
        assert "refunds-rejected.csv" in answer["Content-Disposition"]
        text = b"".join(answer).decode("utf-8-sig")
        header, first, *rest = csv.reader(io.StringIO(text))
        assert header == ["id", "question", "x", "rejected because", "rejected on line"]
        assert first[:3] == ["A", "'=SUM(1)", "1"]
        assert first[4] == "3"
        assert len(rest) == 59

    def test_nobody_else_sees_it(self, editor: Client, suite: Suite) -> None:
        kept = uploaded(editor, suite)
        other, viewer = Client(), Client()
        other.force_login(make_user(role="editor"))
        viewer.force_login(make_user(role="viewer"))
        for name in ("case-table", "case-table-rejected"):
            assert other.get(place(kept, name)).status_code == 404
            assert viewer.get(place(kept, name)).status_code == 403
        assert other.post(place(kept, "case-table-store"), MAPPED).status_code == 404


class TestStore:
    def test_rejected_rows_are_left_out_only_when_somebody_says_so(
        self, editor: Client, suite: Suite
    ) -> None:
        kept = uploaded(editor, suite)
        refused = editor.post(place(kept, "case-table-store"), MAPPED)
        assert refused.status_code == 422
        assert "2 rows are rejected. Correct the file, or choose" in refused.content.decode()
        assert not suite.cases.exists()
        answer = editor.post(place(kept, "case-table-store"), MAPPED | {"leave_out": "on"})
        assert answer.url == place(kept)
        html = editor.get(place(kept)).content.decode()
        assert "Refunds is at version 2" in html
        assert "Start the first run" in html
        cases = suite.cases.filter(is_current=True).order_by("position")
        assert [case.key for case in cases] == ["R-1", "R-2", "R-3"]
        assert cases[0].expected_outcomes == ["Names the days", "Is polite"]
        assert cases[0].metadata == {"plan": "pro"}
        assert cases[2].input == [{"role": "user", "content": "=1+1"}]
        assert SuiteVersion.objects.get(suite=suite, number=2).note == "3 cases from refunds.csv"
        assert AuditEntry.objects.exists()

    def test_sent_twice_it_is_stored_once_and_the_file_is_forgotten(
        self, editor: Client, suite: Suite
    ) -> None:
        kept = uploaded(editor, suite)
        for _ in range(2):
            answer = editor.post(place(kept, "case-table-store"), MAPPED | {"leave_out": "on"})
            assert answer.url == place(kept)
        assert editor.post(place(kept), MAPPED).status_code == 200
        assert editor.get(place(kept, "case-table-rejected")).status_code == 404
        assert suite.versions.count() == 2
        kept.refresh_from_db()
        assert bytes(kept.content) == b""

    @pytest.mark.parametrize(
        ("existing", "texts", "said"),
        [
            ("update", ["new", "two"], '<h2>Changed</h2><p class="value">1'),
            ("skip", ["old", "two"], "and 1 skipped"),
        ],
    )
    def test_keys_of_the_suite_are_updated_or_skipped(
        self, editor: Client, suite: Suite, existing: str, texts: list[str], said: str
    ) -> None:
        make_case(suite=suite, key="A", input=[{"role": "user", "content": "old"}])
        make_run(suite=suite)
        kept = uploaded(editor, suite, "id,question\nA,new\nB,two\n")
        chosen = columns("key", "input", existing=existing)
        editor.post(place(kept, "case-table-store"), chosen)
        cases = suite.cases.filter(is_current=True).order_by("key")
        assert [case.input[0]["content"] for case in cases] == texts
        html = editor.get(place(kept)).content.decode()
        assert said in html
        assert "Start a run" in html

    def test_titles_written_by_hand_stay_where_the_table_has_none(
        self, editor: Client, suite: Suite
    ) -> None:
        first = "id,question\nA,How much is it?\nB,When is it due?\n"
        chosen = columns("key", "input")
        editor.post(place(uploaded(editor, suite, first), "case-table-store"), chosen)
        assert suite.cases.get(key="A").title == "How much is it?"
        suite.cases.filter(key="B").update(title="The date")
        make_case(suite=suite, key="C", title="Nothing asked", input=[])
        second = first.replace("How much", "How many").replace("due", "over")
        kept = uploaded(editor, suite, second)
        assert "The date" in editor.get(place(kept)).content.decode()
        editor.post(place(kept, "case-table-store"), chosen)
        titles = suite.cases.filter(is_current=True).values_list("key", "title")
        assert dict(titles) == {"A": "How many is it?", "B": "The date", "C": "Nothing asked"}

    def test_keys_of_the_suite_can_be_rejected(self, editor: Client, suite: Suite) -> None:
        make_case(suite=suite, key="A")
        kept = uploaded(editor, suite, "id,question\nA,new\n")
        chosen = columns("key", "input", existing="refuse", leave_out="on")
        html = editor.post(place(kept, "case-table-store"), chosen).content.decode()
        assert "There is nothing to store: 1 row is rejected." in html
        assert "The suite already has a case &#x27;A&#x27;." in html

    def test_an_archived_suite_says_so(self, editor: Client, suite: Suite) -> None:
        kept = uploaded(editor, suite)
        Suite.objects.filter(pk=suite.pk).update(archived_at=timezone.now())
        html = editor.post(place(kept, "case-table-store"), MAPPED | {"leave_out": "on"})
        assert html.status_code == 422
        assert "Refunds is archived" in html.content.decode()


class TestRows:
    """The rows of the preview, which drafted cases share."""

    ROWS = "id,question,plan\nN-1,Where is my refund?,pro\nN-2,where is my refund now,pro\nN-3,Can I swap it?,pro\n"
    PARTS = columns("key", "input", "metadata")

    def test_duplicates_of_the_suite_and_of_the_table_are_named(
        self, editor: Client, suite: Suite
    ) -> None:
        make_case(suite=suite, key="C-1", input=[{"role": "user", "content": "Where is my refund"}])
        make_case(suite=suite, key="N-3", input=[{"role": "user", "content": "Can I swap it?"}])
        kept = uploaded(editor, suite, self.ROWS + "N-4,can i swap it,free\n")
        html = editor.get(place(kept)).content.decode()
        rows = [" ".join(row.split()) for row in html.split('name="shown"')[1:]]
        link = reverse("runs:case", args=["refunds", "C-1"])
        assert "The same as <a" in rows[0]
        assert link in rows[0]
        assert "Nearly the same as <a" in rows[1]
        assert "<code>N-1</code> above" in rows[1]
        # The same key is the same case, and not repeated.
        assert "already in the suite" in rows[2]
        assert "same as" not in rows[2]
        assert "<code>N-3</code> above" in rows[3]
        assert "2 <small>say exactly what another case says" in " ".join(html.split())

    def test_a_restored_revision_is_compared_though_its_edit_joins_the_same_version(
        self, editor: Client, suite: Suite
    ) -> None:
        said = [{"role": "user", "content": "Where is my refund"}]
        case = make_case(suite=suite, key="C-1", input=said)
        other = case.spec.replace(input=[{"role": "user", "content": "Who paints boats?"}])
        change_case(suite, "C-1", other, base_revision=1, by=None)
        add_case(suite, other.replace(key="C-2"), by=None)
        kept = uploaded(editor, suite, self.ROWS)
        link = reverse("runs:case", args=["refunds", "C-1"])
        assert link not in editor.get(place(kept)).content.decode()
        before = suite.version
        restore_case(suite, "C-1", revision=1, base_revision=2, by=None)
        assert suite.version == before
        html = editor.get(place(kept)).content.decode()
        assert link in html
        assert "1 <small>say exactly what another case says" in " ".join(html.split())

    def test_ticks_and_edits_are_kept_over_pages_and_stored_once(
        self, editor: Client, suite: Suite
    ) -> None:
        content = "id,question,plan\n" + "".join(f"K-{n},Question {n},p{n}\n" for n in range(1, 46))
        kept = uploaded(editor, suite, content)
        html = editor.get(place(kept)).content.decode()
        assert "Page 1 of 3" in html
        assert html.count('name="shown"') == 20
        sent = self.PARTS | {
            "shown": ["0", "1", "2"], "take": ["1", "2"], "key-1": "mine", "input-1": "Changed?",
            "expected_outcomes-1": "One\r\n\r\nTwo", "tags-1": "a, b", "title-2": "Question 3",
        }  # fmt: skip
        moved = editor.post(f"{place(kept)}?cases=2", sent)
        assert moved.url == f"{place(kept)}?cases=2"
        assert "<code>K-21</code>" in editor.get(moved.url).content.decode()
        html = editor.get(place(kept)).content.decode()
        assert "<code>mine</code>" in html
        assert "44 of 45 cases ticked" in html
        kept.refresh_from_db()
        assert kept.choices["cells"].keys() == {"1"}, "what was not changed is not an edit"
        for _ in range(2):
            editor.post(place(kept, "case-table-store"), self.PARTS | {"seen": suite.version_stamp})
        assert suite.cases.count() == 44
        case = suite.cases.get(key="mine")
        assert (case.input[0]["content"], case.tags, case.metadata) == (
            "Changed?", ["a", "b"], {"plan": "p2"},
        )  # fmt: skip
        assert case.expected_outcomes == ["One", "Two"]
        assert not suite.cases.filter(key__in=["K-1", "K-2"]).exists()
        assert "and 1 not ticked" in " ".join(editor.get(place(kept)).content.decode().split())

    def test_a_row_with_more_than_anybody_reads_shows_the_first_of_it(
        self, editor: Client, suite: Suite
    ) -> None:
        turns = [{"role": "user", "content": f"Turn {number}."} for number in range(700)]
        row = {"id": "N-1", "input": turns, "tags": [f"t{number}" for number in range(90)]}
        row |= {"expected_outcomes": [f"Outcome {number}" for number in range(800)]}
        row |= {"metadata": {f"m{number}": number for number in range(900)}}
        kept = uploaded(editor, suite, json.dumps([row]))
        html = editor.get(place(kept)).content.decode()
        for sentence in (
            "50 of 700 messages",
            "50 of 800 outcomes",
            "50 of 900 values of metadata",
        ):
            assert f"The first {sentence}." in html
        assert (html.count("<p>Turn "), html.count("<p>Outcome ")) == (50, 50)
        assert "<small>m49</small>" in html
        assert "<small>m50</small>" not in html

    def test_what_two_tabs_change_at_once_is_kept_and_nothing_once_it_is_stored(
        self, editor: Client, suite: Suite
    ) -> None:
        kept = uploaded(editor, suite)
        one, two = (UploadedTable(CaseUpload.objects.get(pk=kept.pk)) for _ in range(2))
        one.keep_choices(RowChoices({0: False}, {0: {"title": "First"}}))
        two.keep_choices(RowChoices({1: False}, {1: {"title": "Second"}}))
        kept.refresh_from_db()
        assert kept.choices == {
            "left": [0, 1], "cells": {"0": {"title": "First"}, "1": {"title": "Second"}},
        }  # fmt: skip
        assert two.upload.choices == kept.choices
        CaseUpload.objects.update(stored_at=timezone.now(), choices={})
        one.keep_choices(RowChoices({1: False}, {}))
        kept.refresh_from_db()
        assert kept.choices == {}

    def test_only_repetitions_or_what_is_not_ticked_are_shown_and_ticked_all_at_once(
        self, editor: Client, suite: Suite, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # All on one line of the file, so that lines tell none apart.
        rows = [{"id": f"K-{n}", "question": f"Question {n % 25}"} for n in range(1, 53)]
        kept = uploaded(editor, suite, json.dumps(rows))
        # The upload has read the rows; a page does not read them again.
        monkeypatch.setattr(TableReading, "cases", None)
        here = f"{place(kept)}?show=repeats"
        html = editor.get(here).content.decode()
        assert "Repetitions <b>27</b>" in " ".join(html.split())
        assert html.count('name="shown"') == 20
        assert "<code>K-26</code>" in html
        assert "<code>K-1</code> above" in html
        assert "<code>K-3</code></th>" not in html
        second = editor.get(f"{here}&cases=2").content.decode()
        assert second.count('name="shown"') == 7
        assert f"{here}&amp;cases=1#rows" not in second
        assert f"{here}#rows" in second, "the buttons keep what is shown"
        sent = self.PARTS | {"all": "untick"}
        del sent["column-2"]
        moved = editor.post(
            f"{here}&cases=2", sent | {"shown": ["0", "x", "9" * 5000], "take": "0"}
        )
        assert moved.url == f"{here}&cases=2"
        html = " ".join(editor.get(place(kept)).content.decode().split())
        assert "Not ticked <b>27</b>" in html
        assert "25 of 52 cases ticked" in html
        editor.post(
            f"{place(kept)}?show=unticked", sent | {"all": "tick", "shown": "0", "take": "0"}
        )
        assert "Not ticked" not in editor.get(place(kept)).content.decode()
        assert (
            "No case is left here." in editor.get(f"{place(kept)}?show=problems").content.decode()
        )
        monkeypatch.undo()
        said = [{"role": "user", "content": "Question 3!"}]
        add_case(suite, CaseSpec(key="C-1", input=said), by=None)
        html = editor.get(here).content.decode()
        assert "Repetitions <b>28</b>" in " ".join(html.split()), "the suite has one more case"
        assert reverse("runs:case", args=["refunds", "C-1"]) in html

    def test_an_edit_that_cannot_be_stored_is_refused_and_kept(
        self, editor: Client, suite: Suite
    ) -> None:
        kept = uploaded(editor, suite, self.ROWS)
        sent = self.PARTS | {"shown": ["0", "1"], "take": ["0", "1"], "key-0": "N-3", "input-1": ""}
        refused = editor.post(place(kept, "case-table-store"), sent)
        assert refused.status_code == 422
        html = refused.content.decode()
        assert "2 ticked cases cannot be stored." in html
        assert "Another row has the key &#x27;N-3&#x27; too." in html
        assert "Input is empty; write what the case asks." in html
        assert 'value="N-3"' in html
        shown = editor.get(f"{place(kept)}?show=problems").content.decode()
        assert "With problems <b>2</b>" in " ".join(shown.split())
        assert shown.count('name="shown"') == 2
        nothing = self.PARTS | {"shown": ["0", "1", "2"]}
        html = editor.post(place(kept, "case-table-store"), nothing).content.decode()
        assert "Tick at least one case." in html
        assert not suite.cases.exists()

    def test_a_suite_changed_meanwhile_is_looked_at_again(
        self, editor: Client, suite: Suite
    ) -> None:
        kept = uploaded(editor, suite, self.ROWS)
        stale = self.PARTS | {"seen": "another"}
        refused = editor.post(place(kept, "case-table-store"), stale)
        assert refused.status_code == 422
        assert "was changed meanwhile" in refused.content.decode()
        assert not suite.cases.exists()


class TestNewSuite:
    def send(self, client: Client, **fields: Any) -> Any:
        data = {"title": "Refunds 2", "start": "verdicts", **fields}
        data["file"] = SimpleUploadedFile("refunds.csv", b"question,answer\nWhen?,Soon\n")
        return client.post(reverse("runs:suite-new-from-table"), data)

    def test_a_suite_begins_with_its_cases_when_they_are_stored(self, editor: Client) -> None:
        assert "From a spreadsheet" in editor.get(reverse("runs:suite-new")).content.decode()
        answer = self.send(editor)
        assert not Suite.objects.exists()
        html = editor.get(answer.url).content.decode()
        assert "Refunds 2, new" in html
        assert (
            "Refunds 2 will have 1 case. It starts from the profile Verdicts, without a judge."
            in html
        )
        assert "No column contains the key." in html
        kept = CaseUpload.objects.get()
        editor.post(place(kept, "case-table-store"), columns("input", "expected_output"))
        suite = Suite.objects.get(slug="refunds-2")
        assert suite.cases.get().expected_output == "Soon"
        assert suite.spec.evaluators.children
        assert [version.number for version in suite.versions.all()] == [1]
        assert suite.versions.get().note == "1 case from refunds.csv"
        assert "Refunds 2 is at version 1" in editor.get(answer.url).content.decode()

    def test_a_short_name_taken_meanwhile_is_told_and_nothing_is_stored(
        self, editor: Client
    ) -> None:
        self.send(editor)
        make_suite(slug="refunds-2")
        kept = CaseUpload.objects.get()
        answer = editor.post(place(kept, "case-table-store"), columns("input", "expected_output"))
        assert answer.status_code == 422
        assert "There is already a suite “refunds-2”." in answer.content.decode()
        assert self.send(editor).status_code == 422


class TestGoneMeanwhile:
    """A file that a newer one displaces, or that goes with its suite, after a request has found it."""

    @pytest.mark.parametrize("page", ["case-table", "case-table-store"])
    def test_what_was_changed_in_its_rows_is_not_found(
        self, editor: Client, suite: Suite, monkeypatch: pytest.MonkeyPatch, page: str
    ) -> None:
        kept, read_cases = uploaded(editor, suite), UploadedTable.read_cases

        def delete_then_read(table: UploadedTable, *arguments: Any) -> dict[int, CaseSpec]:
            CaseUpload.objects.all().delete()
            return read_cases(table, *arguments)

        monkeypatch.setattr(UploadedTable, "read_cases", delete_then_read)
        sent = {**MAPPED, "shown": "0"}
        assert editor.post(place(kept, page), sent).status_code == 404

    def test_its_cases_are_not_stored(
        self, editor: Client, suite: Suite, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        kept = uploaded(editor, suite)
        monkeypatch.setattr(
            UploadedTable, "keep", lambda table, reading: CaseUpload.objects.all().delete()
        )
        assert editor.post(place(kept, "case-table-store"), MAPPED).status_code == 404
        assert not suite.cases.exists()

    @pytest.mark.parametrize("is_stored", [False, True])
    def test_the_page_of_a_file_of_a_deleted_suite_opens_no_error(
        self, editor: Client, suite: Suite, is_stored: bool
    ) -> None:
        kept = uploaded(editor, suite)
        if is_stored:
            editor.post(place(kept, "case-table-store"), {**MAPPED, "leave_out": "on"})
        begin_removal(Selection(RemovalPart.RUN, suite, [], is_whole_suite=True), by=None)
        assert editor.get(place(kept)).status_code == 404
