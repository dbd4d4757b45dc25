"""The import page, what it answers, and the file that takes a suite out again."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any
from zipfile import ZipFile

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from runs.formats import suite_files
from runs.models.suites import Suite, SuiteVersion, Target
from runs.models.temporary import CaseUpload
from runs.specs.profiles import all_profiles, get_profile
from tests.support.factories import make_model, make_suite, make_target, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def editor(client: Client) -> Client:
    client.force_login(make_user(role="editor"))
    return client


@pytest.fixture
def viewer(client: Client) -> Client:
    client.force_login(make_user(role="viewer"))
    return client


def page(client: Client, name: str, *args: Any) -> str:
    response = client.get(reverse(name, args=args))
    assert response.status_code == 200
    return response.content.decode()


SUITE_FILE = b"""\
name: support-agent
title: Customer support
evaluators:
  - {name: refund_time, type: contains, value: 5 to 7 working days}
tests:
  - {id: CS-001, input: When do I get my money back?}
"""
OUTPUTS = b'{"id": "CS-001", "output": "In 5 to 7 working days."}\n'


def upload(client: Client, files: dict[str, bytes], **fields: Any) -> Any:
    data: dict[str, Any] = dict(fields)
    outputs = [name for name in files if name.endswith(".jsonl")]
    data["suite_files"] = [
        SimpleUploadedFile(name, content) for name, content in files.items() if name not in outputs
    ]
    for name in outputs:
        data["outputs"] = SimpleUploadedFile(name, files[name])
    return client.post(reverse("runs:suite-import"), data, follow=True)


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = BytesIO()
    with ZipFile(buffer, "w") as packed:
        for name, content in files.items():
            packed.writestr(name, content)
    return buffer.getvalue()


class TestOnePlace:
    """The import page takes every form of suites and cases."""

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("refund-questions.csv", b"question,outcomes\nWhen is it due?,Names the days\n"),
            ("refund_questions.json", b'[{"question": "When is it due?", "note": "late"}]'),
            ("refund questions.jsonl", b'{"question": "When is it due?", "note": "late"}\n'),
        ],
    )
    def test_a_table_becomes_a_new_suite_by_way_of_its_preview(
        self, editor: Client, name: str, content: bytes
    ) -> None:
        make_model(slug="only-model")
        files = [SimpleUploadedFile(name, content)]
        response = editor.post(reverse("runs:suite-import"), {"suite_files": files})
        assert response.status_code == 302
        assert "When is it due?" in editor.get(response["Location"]).content.decode()
        upload = CaseUpload.objects.get()
        assert upload.begins == {
            "title": "Refund questions",
            "slug": "refund-questions",
            "judge": "only-model",
            "profile": "verdicts",
            "description": "",
            "tags": [],
        }

    def test_a_table_like_an_existing_suite_is_refused_by_name(self, editor: Client) -> None:
        make_suite(slug="refunds")
        files = [SimpleUploadedFile("refunds.csv", b"question\nWhen?\n")]
        response = editor.post(reverse("runs:suite-import"), {"suite_files": files})
        assert response.status_code == 422
        assert "There is already a suite “refunds”." in response.content.decode()

    def test_a_suite_can_be_json(self, editor: Client) -> None:
        suite = {"name": "refunds", "tests": [{"id": "A", "input": "When?"}]}
        upload(editor, {"refunds.json": json.dumps(suite).encode()})
        assert Suite.objects.get().cases.get().key == "A"

    def test_the_sample_is_imported_once_and_leads_to_its_run(self, editor: Client) -> None:
        for _ in range(2):
            response = editor.post(reverse("runs:suite-sample"), follow=True)
            html = response.content.decode()
            assert "Sample answers" in html
            assert "checked" in html
            assert "This cannot be started" not in html
        suite = Suite.objects.get()
        assert suite.version == 1
        assert Target.objects.get().recorded_outputs.count() == suite.cases.count() == 12


class TestSuiteImport:
    def test_a_suite_file_becomes_a_suite_and_its_outputs_a_target(self, editor: Client) -> None:
        files = {"suite.yaml": SUITE_FILE, "support-agent 2.14.jsonl": OUTPUTS}
        html = upload(editor, files).content.decode()
        suite = Suite.objects.get(slug="support-agent")
        assert suite.title == "Customer support"
        assert suite.cases.get().key == "CS-001"
        assert Target.objects.get(name="support-agent 2.14").recorded_outputs.count() == 1
        assert (
            "Customer support is at version 1. Target support-agent 2.14 has its outputs." in html
        )

    def test_the_form_offers_the_known_models_as_judges(self, editor: Client) -> None:
        make_model(slug="juno-2")
        assert "juno-2" in page(editor, "runs:suite-import")
        upload(editor, {"suite.yaml": SUITE_FILE}, judge="juno-2")
        upload(editor, {"suite.yaml": SUITE_FILE})
        suite = Suite.objects.get(slug="support-agent")
        assert suite.judge is not None
        assert suite.judge.slug == "juno-2"

    def test_a_zip_brings_what_the_suite_refers_to(self, editor: Client) -> None:
        suite_file = SUITE_FILE + b"description: From a zip\n"
        response = upload(
            editor, {"all.zip": zipped({"a/suite.yaml": suite_file, "a/prompts/tone.md": b"Kind?"})}
        )
        assert "1 file that no suite names was left out: a/prompts/tone.md" in (
            response.content.decode()
        )
        assert Suite.objects.get(slug="support-agent").description == "From a zip"

    def test_every_problem_is_listed_with_its_place_and_nothing_is_stored(
        self, editor: Client
    ) -> None:
        broken = SUITE_FILE.replace(b"type: contains", b"type: contians")
        files = {"suite.yaml": broken, "v1.jsonl": b'{"id": "CS-001"\n'}
        response = upload(editor, files)
        html = response.content.decode()
        assert response.status_code == 422
        assert "contians" in html
        assert '<td class="num">4</td>' in html
        assert "suite.yaml was not read: 1 problem is listed at the top." in html
        assert "v1.jsonl was not read: 1 problem is listed at the top." in html
        assert not Suite.objects.exists()
        assert not Target.objects.exists()

    def test_a_judge_that_is_not_set_up_is_named(self, editor: Client) -> None:
        response = upload(editor, {"suite.yaml": SUITE_FILE + b"judge: nobody\n"})
        assert response.status_code == 422
        assert "no language model has the short name" in response.content.decode()
        assert not Suite.objects.exists()

    def test_outputs_that_are_refused_keep_the_suite_out_too(self, editor: Client) -> None:
        make_target(name="agent", kind="chat")
        files = {"suite.yaml": SUITE_FILE, "agent.jsonl": OUTPUTS}
        response = upload(editor, files)
        assert response.status_code == 422
        assert "answers by itself" in response.content.decode()
        assert not Suite.objects.exists()

    def test_an_import_without_a_file_says_what_is_missing(self, editor: Client) -> None:
        response = editor.post(reverse("runs:suite-import"), {"target_name": "x"})
        assert response.status_code == 422
        assert "Choose a suite file, a zip or a folder." in response.content.decode()

    def test_a_second_import_makes_a_new_version(self, editor: Client) -> None:
        upload(editor, {"suite.yaml": SUITE_FILE})
        html = upload(
            editor, {"suite.yaml": SUITE_FILE.replace(b"money", b"refund")}
        ).content.decode()
        assert "Customer support is at version 2: 1 case changed." in html

    def test_cases_alone_become_a_suite_of_the_chosen_profile(self, editor: Client) -> None:
        html = page(editor, "runs:suite-import")
        assert "As in the file" in html
        for profile in all_profiles():
            assert f"{profile.label}: {profile.summary}" in html
        cases = SimpleUploadedFile("cases.jsonl", b'{"id": "A", "input": "When is it open?"}')
        sent = {"suite_files": [cases], "profile": "metrics"}
        editor.post(reverse("runs:suite-import"), sent)
        suite = Suite.objects.get(slug="cases")
        assert (suite.policy, suite.spec.evaluators.children[0].kind) == (
            get_profile("metrics").policy,
            "metrics_judge",
        )

    def test_a_profile_of_the_file_goes_before_the_choice_with_a_note(self, editor: Client) -> None:
        file = SUITE_FILE + b"profile: tasks\n"
        html = upload(editor, {"suite.yaml": file}, profile="hybrid").content.decode()
        assert "the file starts from tasks, which overrides the chosen hybrid" in html
        assert Suite.objects.get().policy == get_profile("tasks").policy

    def test_an_unknown_profile_is_refused(self, editor: Client) -> None:
        response = upload(editor, {"suite.yaml": SUITE_FILE}, profile="metric")
        assert response.status_code == 422
        assert "metric is not a profile" in response.content.decode()
        assert not Suite.objects.exists()

    def test_a_viewer_may_not_import(self, viewer: Client) -> None:
        assert viewer.get(reverse("runs:suite-import")).status_code == 403


OTHER = b"tests:\n  - {id: A, input: hi, owner: me}\n"
JUDGED = (
    SUITE_FILE + b"  - {id: B, input: x, assertions: [{type: llm_judge, prompt: ./p/tone.md}]}\n"
)


def upload_folder(client: Client, files: dict[str, bytes], paths: str | None = None) -> Any:
    uploads = [SimpleUploadedFile(path.split("/")[-1], part) for path, part in files.items()]
    given = json.dumps(list(files)) if paths is None else paths
    data = {"folder": uploads, "folder_paths": given}
    return client.post(reverse("runs:suite-import"), data, follow=True)


class TestSeveralSuites:
    def test_every_suite_of_a_folder_is_told_with_what_was_left_out(self, editor: Client) -> None:
        upload(editor, {"suite.yaml": SUITE_FILE})
        files = {
            "evals/support.yaml": SUITE_FILE,
            "evals/deep/other.yaml": OTHER,
            "evals/targets.yaml": b"targets: []",
            "evals/.env": b"SECRET=1",
        }

        response = upload_folder(editor, files)

        html = response.content.decode()
        assert response.redirect_chain == [(reverse("runs:suite-imported"), 302)]
        assert "<span>1 new suite</span> <span>1 unchanged</span>" in html
        assert "New, v1" in html
        assert "Unchanged, still v1" in html
        assert "3 notes on the files" in html
        assert "is not used by Evalsite" in html
        assert "evals/targets.yaml" in html
        assert "hidden files and caches are not read: .env" in html
        assert "SECRET" not in html
        assert "evals/deep/other.yaml" in page(editor, "runs:suite-imported")

    def test_a_suite_that_changed_says_from_which_version(self, editor: Client) -> None:
        upload(editor, {"one.yaml": SUITE_FILE, "two.yaml": OTHER})
        changed = SUITE_FILE.replace(b"money", b"refund")
        html = upload(editor, {"one.yaml": changed, "two.yaml": OTHER}).content.decode()
        assert "v2, before v1" in html
        assert "1 case changed" in html

    def test_outputs_come_with_several_suites(self, editor: Client) -> None:
        files = {"a.yaml": SUITE_FILE, "b.yaml": OTHER, "agent 1.jsonl": OUTPUTS}
        html = upload(editor, files).content.decode()
        target = Target.objects.get(name="agent 1")
        assert f'<a href="{reverse("runs:target", args=[target.pk])}">agent 1</a> has the' in html

    def test_one_that_is_refused_keeps_all_of_them_out(self, editor: Client) -> None:
        bad = OTHER.replace(b"input", b"inptu")
        response = upload_folder(editor, {"e/a.yaml": SUITE_FILE, "e/b.yaml": bad})
        html = response.content.decode()
        assert response.status_code == 422
        assert "The files were not read: 1 problem is listed at the top." in html
        assert "e/b.yaml" in html
        assert not Suite.objects.exists()

    def test_a_folder_that_is_refused_is_said_where_it_was_chosen(self, editor: Client) -> None:
        response = upload_folder(editor, {"e/a.yaml": OTHER.replace(b"input", b"inptu")})
        assert list(response.context["form"].errors) == ["folder"]

    def test_a_folder_may_hold_empty_files(self, admin_client: Client) -> None:
        judge = b"evaluators: [{type: code_judge, script: [python, ./scripts/exact.py]}]\n"
        files = {"e/a.yaml": judge + OTHER, "e/scripts/__init__.py": b"", "e/scripts/exact.py": b""}
        assert upload_folder(admin_client, files).status_code == 200
        stored = Suite.objects.get().files.values_list("path", flat=True)
        assert set(stored) == {"scripts/__init__.py", "scripts/exact.py"}

    def test_an_empty_suite_file_is_named(self, editor: Client) -> None:
        response = upload(editor, {"a.yaml": b"", "b.yaml": OTHER})
        assert "a.yaml" in response.content.decode()
        assert "empty" in response.content.decode()

    def test_judges_that_are_missing_are_listed_for_every_suite(self, editor: Client) -> None:
        files = {"a.yaml": SUITE_FILE + b"judge: x\n", "b.yaml": OTHER + b"judge: y\n"}
        response = upload(editor, files)
        assert response.status_code == 422
        html = response.content.decode()
        assert "2 problems to fix" in html
        assert "<code>b.yaml</code>" in html

    def test_a_folder_without_its_paths_is_read_by_the_names(self, editor: Client) -> None:
        for paths in ("", "[1", '["x"]', "{}", "[null, 3]"):
            files = {"e/a.yaml": SUITE_FILE, "e/b.yaml": OTHER}
            html = upload_folder(editor, files, paths).content.decode()
            assert "<code>a.yaml</code>" in html

    def test_a_path_that_leads_out_is_refused(self, editor: Client) -> None:
        response = upload_folder(editor, {"../../a.yaml": SUITE_FILE})
        assert response.status_code == 422
        assert "leads out of it" in response.content.decode()

    def test_lines_with_their_yaml_are_one_suite(self, editor: Client) -> None:
        lines = SimpleUploadedFile("r.jsonl", b'{"id": "A", "input": "hi"}')
        head = SimpleUploadedFile("r.yaml", b"title: Refunds")
        data = {"suite_files": [lines, head]}
        html = editor.post(reverse("runs:suite-import"), data, follow=True).content.decode()
        assert "Refunds is at version 1." in html

    def test_too_much_is_refused(self, editor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("runs.files.forms.MAX_SUITE_BYTES", 10)
        response = upload(editor, {"suite.yaml": SUITE_FILE})
        assert "the limit of an import" in response.content.decode()

    def test_more_problems_than_a_page_holds_are_counted(self, editor: Client) -> None:
        files = {f"{name}.yaml": b"tests:\n" + b"  - {id: A}\n" * 300 for name in ("a", "b", "c")}
        html = upload(editor, files).content.decode()
        assert "The files were not read: 1500 problems are listed at the top." in html
        assert "and 1000 more problems" in html

    def test_without_an_import_there_is_nothing_to_tell(self, editor: Client) -> None:
        response = editor.get(reverse("runs:suite-imported"))
        assert response.url == reverse("runs:suite-import")

    def test_an_agent_that_judges_and_is_not_here_yet_is_noted(self, editor: Client) -> None:
        judge = b"  - {name: quality, type: agent_judge, agent: reviewer}\n"
        html = upload(editor, {"suite.yaml": SUITE_FILE.replace(b"tests:", judge + b"tests:")})
        assert "no target is called &#x27;reviewer&#x27; yet" in html.content.decode()
        assert "1 note on the files" in html.content.decode()

    def test_more_notes_than_a_page_holds_are_counted(self, editor: Client) -> None:
        cases = b"".join(b"  - {id: %d, input: hi, owner: me}\n" % n for n in range(203))
        html = upload(editor, {"many.yaml": b"tests:\n" + cases}).content.decode()
        assert "200 notes on the files" in html
        assert "3 more notes" in html


class TestSuiteFile:
    def test_a_suite_is_taken_out_as_one_file(self, viewer: Client, editor: Client) -> None:
        upload(editor, {"suite.yaml": SUITE_FILE})
        viewer.force_login(make_user(role="viewer"))

        response = viewer.get(reverse("runs:suite-file", args=["support-agent"]))

        assert response.streaming
        assert response["Content-Type"] == "application/yaml"
        named = 'attachment; filename="support-agent-v1.yaml"'
        assert response["Content-Disposition"] == named
        assert suite_files.read_suite(b"".join(response)) == suite_files.read_suite(SUITE_FILE)
        assert reverse("runs:suite-file", args=["support-agent"]) in page(
            viewer, "runs:suite", "support-agent"
        )

    def test_a_suite_with_files_is_a_zip_that_imports_again(self, editor: Client) -> None:
        files = {"a/suite.yaml": JUDGED, "a/p/tone.md": b"Kind?"}
        upload(editor, {"all.zip": zipped(files)})

        response = editor.get(reverse("runs:suite-file", args=["support-agent"]))

        content = b"".join(response)
        assert response["Content-Type"] == "application/zip"
        with ZipFile(BytesIO(content)) as packed:
            assert packed.testzip() is None
            assert packed.namelist() == ["support-agent.yaml", "p/tone.md"]
        upload(editor, {"again.zip": content})
        assert SuiteVersion.objects.count() == 1

    def test_earlier_versions_are_offered_as_they_were(self, editor: Client) -> None:
        upload(editor, {"suite.yaml": SUITE_FILE})
        upload(editor, {"suite.yaml": SUITE_FILE.replace(b"money", b"refund")})
        address = reverse("runs:suite-file", args=["support-agent", 1])
        assert address in page(editor, "runs:suite", "support-agent")
        response = editor.get(address)
        assert 'filename="support-agent-v1.yaml"' in response["Content-Disposition"]
        assert suite_files.read_suite(b"".join(response)) == suite_files.read_suite(SUITE_FILE)

    def test_a_version_that_was_not_kept_is_not_found(self, editor: Client) -> None:
        suite = make_suite(slug="bare")
        suite.versions.all().delete()
        assert editor.get(reverse("runs:suite-file", args=["bare"])).status_code == 404
        assert editor.get(reverse("runs:suite-file", args=["bare", 9])).status_code == 404
        assert reverse("runs:suite-file", args=["bare"]) not in page(editor, "runs:suite", "bare")


def test_another_suite_of_the_same_name_is_imported_under_its_own(editor: Client) -> None:
    upload(editor, {"suite.yaml": SUITE_FILE})
    other = SUITE_FILE.replace(b"CS-001", b"XY-001")

    refused = upload(editor, {"suite.yaml": other})

    assert refused.status_code == 422
    assert "it shares no case with this file" in refused.content.decode()
    assert Suite.objects.get().version == 1
    upload(editor, {"suite.yaml": other}, slug="second")
    assert Suite.objects.get(slug="second").cases.get().key == "XY-001"


def test_the_example_of_a_suite_file_is_a_suite_file(editor: Client) -> None:
    shown = (
        page(editor, "runs:suite-import").split("<pre", 1)[1].split("</pre>")[0].split(">", 1)[1]
    )
    make_model(slug="my-judge")

    upload(editor, {"suite.yaml": shown.encode()})

    assert Suite.objects.get().slug == "support-agent"
