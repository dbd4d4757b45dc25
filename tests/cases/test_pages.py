"""Cases in the browser: create, edit, resolve, delete, restore, make from results, many at once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from evaluators.reading.yaml import write_yaml
from runs.cases.services import add_case, change_case, put_cases, remove_cases, tag_cases
from runs.formats import suite_files
from runs.formats.suite_files import suite_head
from runs.models.results import Result, ResultOutput
from runs.models.suites import Case, Suite
from runs.specs.profiles import get_profile
from runs.specs.suites import CaseSpec
from runs.suites.files import suite_with_cases
from runs.suites.services import archive_suite, create_suite
from tests.support.factories import make_result, make_run, make_scored_run
from tests.support.members import make_client, make_member

pytestmark = pytest.mark.django_db
CASES = "/suites/support/cases/"
NEW = f"{CASES}new/"
BULK = "/suites/support/case-bulk/"
EXPORT = "/suites/support/case-export/"
RICH = CaseSpec(
    key="returns",
    title=" Re\nturns ",
    tags=("a, b", "refunds"),
    input=(
        {"role": "system", "content": "Be kind.\r\nAlways."},
        {
            "role": "user",
            "content": "Torn.",
            "name": "Eva",
            "blocks": [{"type": "text", "value": "Torn."}],
        },
        {"role": "assistant", "content": "", "tool_calls": [{"id": 1}]},
    ),
    expected_output="\nLine one\r\nLine two ",
    expected_outcomes=("Names the\r\n30 days", "<b>Says</b> who pays"),
    criteria="Short",
    metadata={"when": "2024-01-01", "n": 1.50},
    recorded_output={"output": "Sorry", "usage": {"input_tokens": 3}, "own": True},
)


@pytest.fixture
def ada() -> User:
    return make_member("editor", "ada")


@pytest.fixture
def editor(ada: User) -> Client:
    return make_client(ada)


@pytest.fixture
def suite(ada: User) -> Suite:
    profile = get_profile("verdicts")
    suite = create_suite(slug="support", title="Support", by=ada, profile=profile)
    contains = suite_files.read_suite(
        b"name: x\ntests:\n- id: a\n  input: b\n  evaluators:\n  - type: contains\n    value: c\n"
    )
    own = contains.cases[0].evaluators
    rest = [
        CaseSpec(key=f"C-{n}", input=({"role": "user", "content": f"Ask {n}"},)) for n in range(3)
    ]
    put_cases(suite, [RICH.replace(evaluators=own), *rest], by=ada)
    return suite


def page_of(response: Any) -> str:
    return " ".join(response.content.decode().split())


def sent(form: Any, **changes: Any) -> dict[str, Any]:
    """Return what a browser would send of the form as it is shown, with some fields changed."""
    values: dict[str, Any] = {}
    for bound in form:
        value = bound.field.prepare_value(bound.value())
        if bound.name == "input":
            for part in ("role", "content", "origin"):
                values[f"input-{part}"] = [row.get(part, "") for row in value or ()]
        elif not bound.field.disabled and value is not None:
            values[bound.name] = value
    for name, value in list(values.items()):
        if isinstance(value, str):
            one_line = name in ("title", "tags", "key")
            lines = "".join(value.splitlines()) if one_line else value
            values[name] = lines.replace("\r\n", "\n").replace("\n", "\r\n")
    return values | changes


def current(key: str = "returns") -> Case:
    return Case.objects.get(key=key, is_current=True)


def test_a_case_is_written_with_everything_and_keeps_its_order(
    editor: Client, suite: Suite
) -> None:
    form = editor.get(NEW).context["form"]
    answer = editor.post(
        NEW,
        sent(
            form,
            key="new",
            title="<script>alert(1)</script>",
            tags="a, b,a",
            expected_outcomes=["Two", "", "One"],
            criteria="Kind",
            metadata='{"plan": "pro"}',
            evaluators="- type: contains\n  value: days",
            recorded_output="It was sent.",
            **{
                "input-role": ["system", "user", "user"],
                "input-content": ["Be kind", "What now?", " "],
                "input-origin": ["", "", ""],
            },
        ),
        follow=True,
    )
    assert answer.redirect_chain[0][0] == f"{CASES}%256Eew/"
    said = page_of(answer)
    assert "new is in the suite." in said
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in said
    assert "<script>alert" not in said
    made = current("new").spec
    assert (made.tags, made.expected_outcomes) == (("a", "b"), ("Two", "One"))
    assert [turn["content"] for turn in made.input] == ["Be kind", "What now?"]
    assert (made.metadata, made.recorded_output) == ({"plan": "pro"}, {"output": "It was sent."})
    assert made.evaluators_append
    assert made.evaluators is not None
    assert made.evaluators.children[0].kind == "text_check"


def test_what_the_form_cannot_show_stays_as_it_was(editor: Client, suite: Suite) -> None:
    before = current().spec
    edit = f"{CASES}returns/edit/"
    form = editor.get(edit).context["form"]
    assert editor.post(edit, sent(form)).status_code == 302
    assert current().revision == 1, "nothing was changed"
    editor.post(edit, sent(form, criteria="Long"))
    assert current().spec == before.replace(criteria="Long")
    form = editor.get(edit).context["form"]
    rows = sent(form)["input-content"]
    add_case(suite, CaseSpec(key=" a/b\n", input=RICH.input), by=None)
    odd = f"{CASES}%20a%252Fb%0A/edit/"
    assert editor.post(odd, sent(editor.get(odd).context["form"], title="T")).status_code == 302
    assert current(" a/b\n").title == "T"
    changed = sent(form, **{"input-content": [rows[0], "Broken.", rows[2]]})
    editor.post(edit, changed)
    assert current().input[1] == {"role": "user", "content": "Broken.", "name": "Eva"}
    assert editor.post(edit, changed).status_code == 302, "pressed twice"
    assert current().revision == 3


def test_errors_stand_at_their_fields_and_what_was_entered_stays(
    editor: Client, suite: Suite
) -> None:
    wrong = {
        "key": "C-1",
        "title": "t" * 301,
        "input-role": ["user"],
        "input-content": ["Kept <b>"],
        "input-origin": ["7"],
        "metadata": "a: 1\nb: [",
        "evaluators": "- type: contains\n- type: palmistry",
        "evaluators_append": "beside",
        "recorded_output": '{"usage": {}}',
        "recorded_as": "json",
    }
    answer = editor.post(NEW, wrong)
    assert answer.status_code == 422
    errors = answer.context["form"].errors
    assert set(errors) == {"title", "metadata", "evaluators", "recorded_output"}
    assert errors["metadata"][0].startswith("line 3")
    assert "line 2, [1].type: evaluator palmistry" in errors["evaluators"][1]
    said = answer.content.decode()
    assert "Kept &lt;b&gt;" in said
    fine = wrong | {"title": "", "metadata": "", "evaluators": "", "recorded_output": ""}
    assert "another key" in page_of(editor.post(NEW, fine))
    for changes, field in (
        ({"key": "k" * 100_000}, "key"),
        ({"key": "a\0b"}, "key"),
        ({"key": "x", "input-content": ["a\0b"]}, "input"),
        ({"key": "x", "input-content": [" "]}, "input"),
        ({"key": "x", "input-role": ["king"]}, "input"),
        ({"key": "x", "metadata": '{"a": "\\ud800"}'}, "metadata"),
        ({"key": "x", "source": "9" * 30, "expected_outcomes": ["x"] * 3_001}, "expected_outcomes"),
    ):
        assert field in editor.post(NEW, fine | changes).context["form"].errors, changes
    assert Case.objects.count() == 4


def test_rows_are_added_moved_and_removed_without_a_script(editor: Client, suite: Suite) -> None:
    values = {"key": "x", "metadata": "a: [", "expected_outcomes": ["One", "Two", "Three"]}
    for action, expected in (
        ("expected_outcomes add", ["One", "Two", "Three", ""]),
        ("expected_outcomes up 2", ["One", "Three", "Two"]),
        ("expected_outcomes down 0", ["Two", "One", "Three"]),
        ("expected_outcomes up 0", ["One", "Two", "Three"]),
        ("expected_outcomes remove 1", ["One", "Three"]),
        ("expected_outcomes remove 99999999999", ["One", "Two", "Three"]),
        ("nonsense", ["One", "Two", "Three"]),
    ):
        answer = editor.post(NEW, values | {"row": action})
        assert answer.status_code == 200
        form = answer.context["form"]
        assert form["expected_outcomes"].value() == expected, action
        assert (form["key"].value(), form["metadata"].value()) == ("x", "a: [")
        assert not form.errors
    many = editor.post(
        NEW,
        values
        | {
            "expected_outcomes": [f"No. {n}" for n in range(1_000)],
            "input-role": ["user"],
            "input-content": ["é" * 100_000],
            "input-origin": [""],
            "metadata": "",
            "evaluators_append": "beside",
            "recorded_as": "text",
        },
    )
    assert many.status_code == 302
    assert len(current("x").expected_outcomes) == 1_000
    assert len(current("x").input[0]["content"]) == 100_000


def test_the_second_save_gets_both_edits_and_overwrites_nothing(
    editor: Client, suite: Suite
) -> None:
    edit = f"{CASES}returns/edit/"
    form = editor.get(edit).context["form"]
    bob = make_client(make_member("editor", "bob"))
    bob.post(edit, sent(form, criteria="His are longer", title="Hers"))
    mine = sent(form, criteria="Mine are short", expected_outcomes=["Mine alone"])
    answer = editor.post(edit, mine)
    assert answer.status_code == 409
    said = page_of(answer)
    for part in ("bob saved revision 2", "Short", "His are longer", "Mine are short", "Mine alone"):
        assert part in said
    assert current().criteria == "His are longer"
    conflict = answer.context["form"]
    assert [row.label for row in conflict.rows() if row.choice] == ["Criteria"]
    carried: dict[str, list[str]] = {}
    for name, value in answer.context["entered"]:
        carried.setdefault(name, []).append(value)
    settled = carried | {"resolve": "2"}
    undecided = editor.post(edit, settled)
    assert undecided.status_code == 409
    assert "Choose which to keep" in page_of(undecided)
    late = editor.post(edit, settled | {"choice-criteria": "mine", "resolve": "1"})
    assert "saved again" in page_of(late)
    assert editor.post(edit, settled | {"choice-criteria": "mine"}).status_code == 302
    case = current()
    assert (case.revision, case.title, case.criteria) == (3, "Hers", "Mine are short")
    assert case.expected_outcomes == ["Mine alone"]
    assert case.input[1]["name"] == "Eva"

    remove_cases(suite, ["returns"], by=None)
    gone = editor.post(edit, mine)
    assert (gone.status_code, "deleted the case in the meantime" in page_of(gone)) == (409, True)
    editor.post(edit, settled | {"resolve": "0"})
    assert current().expected_outcomes == ["Mine alone"]


def test_a_case_is_duplicated_moved_deleted_and_brought_back(editor: Client, suite: Suite) -> None:
    make_result(run=make_run(suite=suite), case=current(), verdict="pass", score=0.9)
    form = editor.get(f"{NEW}?from=returns").context["form"]
    editor.post(NEW, sent(form))
    copy = current("returns-2").spec
    assert copy.replace(key="returns") == current().spec
    edit = editor.get(f"{CASES}returns/edit/")
    assert edit.context["form"].fields["key"].disabled
    editor.post(f"{CASES}returns/edit/", sent(edit.context["form"], place="5"))
    assert [case.key for case in suite_with_cases(suite_again(suite)).cases][-1] == "returns"

    asked = page_of(editor.get(f"{CASES}returns/delete/"))
    assert "1 run used it, and every result stays readable" in asked
    stale = editor.post(f"{CASES}returns/delete/", {"base": "7"}, follow=True)
    assert "Look at it before you delete it" in page_of(stale)
    for _ in range(2):
        editor.post(f"{CASES}returns/delete/", {"base": "1"})
    gone = editor.get(f"{CASES}returns/")
    assert "No longer in the suite" in page_of(gone)
    assert editor.get("/suites/support/runs/1/returns/1/").status_code == 200
    editor.post(f"{CASES}returns/restore/", {"base": "", "revision": "1"})
    assert current().revision == 1


def suite_again(suite: Suite) -> Suite:
    return Suite.objects.get(pk=suite.pk)


@pytest.fixture
def result(suite: Suite) -> Result:
    run = make_run(suite=suite)
    run.snapshot["imported"] = {"file": "results.jsonl"}
    run.save()
    result = make_result(run=run, case=current(), verdict="fail", score=0.1)
    ResultOutput.objects.update_or_create(result=result, defaults={"text": "Take it back."})
    make_result(run=run, case=current("C-0"), status="error", error="gone")
    return result


def test_a_result_becomes_a_case_in_one_press_and_the_press_is_undone(
    editor: Client, suite: Suite, result: Result
) -> None:
    place = "/suites/support/runs/1/returns/1/"
    assert "Create case" in page_of(editor.get(place))
    for _ in range(2):
        answer = editor.post(f"{place}case/", {"answer": "1"}, follow=True)
    made = current("returns-run1")
    assert Case.objects.filter(key__startswith="returns-run").count() == 1
    assert (made.expected_output, made.input) == ("Take it back.", list(current().input))
    assert made.metadata["from_result"] == {"run": 1, "case": "returns", "repetition": 1}
    assert "Created from a result" in page_of(answer)
    editor.post(f"{CASES}returns-run1/delete/", {"base": "1"})
    assert not Case.objects.filter(key="returns-run1", is_current=True).exists()
    begun = editor.get(f"{NEW}?result={result.pk}&answer=1").context["form"]
    assert begun["expected_output"].value() == "Take it back."
    assert editor.get(f"{NEW}?result={10**17}").status_code == 404


def test_a_case_made_without_the_answer_expects_what_its_case_expects(
    editor: Client, suite: Suite, result: Result
) -> None:
    place, old = "/suites/support/runs/1/returns/1/", current()
    assert old.expected_output
    assert old.expected_outcomes
    assert old.criteria
    assert "metadata and expectations." in page_of(editor.get(place))
    for ticked, expected in (({}, old.expected_output), ({"answer": "1"}, "Take it back.")):
        begun = editor.post(f"{place}case/", {"edit": "1", **ticked}, follow=True).context["form"]
        assert begun["expected_output"].value() == expected
    assert not Case.objects.filter(key="returns-run1").exists()
    editor.post(f"{place}case/")
    made = current("returns-run1")
    assert made.expected_output == old.expected_output
    assert made.expected_outcomes == old.expected_outcomes
    assert made.criteria == old.criteria


def test_an_answer_becomes_the_expected_output_in_one_press_and_the_press_is_undone(
    editor: Client, suite: Suite, result: Result
) -> None:
    place = "/suites/support/runs/1/returns/1/"
    old = current().expected_output
    answer = editor.post(f"{place}expected/", follow=True)
    assert "The answer is now the expected output" in page_of(answer)
    assert (current().revision, current().expected_output) == (2, "Take it back.")
    earlier = editor.get(f"{CASES}returns/?revision=1").context["page"]
    assert (earlier.previous, earlier.following) == (None, "C-0"), "not its own next revision"
    assert "Use as expected output of returns" in page_of(editor.get(place))
    assert "already expects this answer" in page_of(editor.post(f"{place}expected/", follow=True))
    assert current().revision == 2
    undo = {"base": "2", "revision": "1"}
    for _ in range(2):
        editor.post(f"{CASES}returns/restore/", undo)
    assert (current().revision, current().expected_output) == (1, old)
    errored = "/suites/support/runs/1/C-0/1/"
    said = page_of(editor.get(errored))
    assert "Create case" in said
    assert "as expected output" not in said
    assert "gave no answer" in page_of(editor.post(f"{errored}expected/", follow=True))
    # An answer that was there when its page was opened may be gone.
    for ticked in ({"answer": "1"}, {"answer": "1", "edit": "1"}):
        refused = editor.post(f"{errored}case/", ticked, follow=True)
        assert "gave no answer" in page_of(refused)
    failed = Result.objects.get(case__key="C-0")
    assert editor.get(f"{NEW}?result={failed.pk}&answer=1").status_code == 404


def test_many_cases_are_tagged_and_deleted_after_asking(editor: Client, suite: Suite) -> None:
    ticked = {"case": ["C-0", "C-2", "nobody"]}
    said = page_of(editor.post(BULK, ticked | {"action": "tag", "tags": "new, x"}, follow=True))
    assert "2 cases of 2 tagged new, x." in said
    matching = {"everything": "1", "tag": "new", "q": ""}
    said = page_of(editor.post(BULK, matching | {"action": "untag", "tags": "x"}, follow=True))
    assert "x removed from 2 cases of 2." in said
    assert current("C-2").tags == ["new"]
    for wrong in ({"action": "tag", "tags": ", "}, {"action": "tag", "tags": "t" * 201}, {}):
        assert "Enter a tag" in page_of(editor.post(BULK, ticked | wrong, follow=True))
    assert "No case is ticked" in page_of(editor.post(BULK, {"action": "delete"}, follow=True))
    asked = editor.post(BULK, matching | {"action": "delete"})
    assert "Delete 2 cases?" in page_of(asked)
    assert suite.cases.filter(is_current=True).count() == 4
    tag_cases(suite, ["C-1"], ["new"], by=None)
    more = editor.post(BULK, matching | {"action": "delete", "sure": "2"})
    assert "Delete 3 cases?" in page_of(more), "another one matches by now"
    editor.post(BULK, matching | {"action": "delete", "sure": "3"})
    assert [case.key for case in suite.cases.filter(is_current=True)] == ["returns"]


@pytest.mark.each_database
def test_cases_are_filtered_by_their_last_verdict_and_actions_keep_to_the_filter(
    editor: Client, suite: Suite
) -> None:
    def keys(verdict: str) -> list[str]:
        return [row.key for row in editor.get(CASES, {"verdict": verdict}).context["table"].rows]

    before = [case.key for case in suite.cases.filter(is_current=True).order_by("position")]
    assert (keys("none"), keys("fail")) == (before, []), "nothing has run"
    make_scored_run(verdicts=["pass", "fail", "fail"], suite=suite)
    make_scored_run(verdicts=["pass"], suite=suite, status="running")
    ran = {row.key: row.verdict for row in editor.get(CASES).context["table"].rows}
    failed = [key for key, verdict in ran.items() if verdict == "fail"]
    assert len(failed) == 2
    assert keys("fail") == failed
    assert keys("borderline") == []
    assert "No case with the verdict Borderline" in page_of(
        editor.get(CASES, {"verdict": "borderline"})
    )
    assert keys("none") == [key for key, verdict in ran.items() if not verdict]
    everything = {"everything": "1", "verdict": "fail", "q": "", "tag": ""}
    editor.post(BULK, everything | {"action": "tag", "tags": "weak"})
    tagged = editor.get(CASES, {"tag": "weak"}).context["table"].rows
    assert [row.key for row in tagged] == failed
    asked = page_of(editor.post(BULK, everything | {"action": "delete"}))
    assert "Delete 2 cases?" in asked
    assert '<input type="hidden" name="verdict" value="fail">' in asked


def test_a_case_leads_to_a_run_of_itself_alone(editor: Client, suite: Suite) -> None:
    page = page_of(editor.get("/suites/support/cases/C-1/"))
    # A heading says already what its only turn is; of several, each says who speaks.
    assert "<small>User</small>" not in page
    assert "<small>Input</small>" not in page
    several = page_of(editor.get("/suites/support/cases/returns/"))
    assert "<small>User</small>" in several
    assert "<small>Input</small>" not in several
    address = "/suites/support/runs/new/?case=C-1"
    assert f'href="{address}"' in page
    form = editor.get(address).context["form"]
    assert list(form.chosen_keys) == ["C-1"]


@pytest.mark.each_database
def test_the_table_is_sorted_as_asked_to_its_end(
    editor: Client, suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_case(suite, "C-1", current("C-1").spec.replace(title="Aa"), base_revision=1, by=None)
    monkeypatch.setattr("runs.cases.queries.PAGE_SIZE", 3)
    for sort, keys in (
        ("", ["returns", "C-0", "C-1", "C-2"]),
        ("key", ["C-0", "C-1", "C-2", "returns"]),
        ("title", ["C-0", "C-2", "returns", "C-1"]),
        ("edited", ["C-1", "C-2", "C-0", "returns"]),
        ("palmistry", ["returns", "C-0", "C-1", "C-2"]),
    ):
        first = editor.get(f"{CASES}?sort={sort}").context["table"]
        second = editor.get(f"{CASES}{first.next_address}").context["table"]
        rows = [row.key for row in (*first.rows, *second.rows)]
        assert (sorted(rows), first.shown, second.first) == (sorted(keys), 3, 4), sort
        assert rows[:2] == keys[:2]


def test_ticked_cases_are_exported_and_read_back(
    viewer_client: Client, suite: Suite, django_assert_max_num_queries: Any
) -> None:
    def export(form: str, **ticked: Any) -> bytes:
        answer = viewer_client.post(EXPORT, {"format": form} | ticked)
        assert answer["Content-Disposition"].startswith("attachment; filename=")
        return b"".join(answer.streaming_content)

    whole = suite_with_cases(suite_again(suite))
    # A block of text alone is read back as the text that it is.
    turns = ({k: v for k, v in turn.items() if k != "blocks"} for turn in RICH.input)
    wanted = (whole.cases[0].replace(input=tuple(turns)), whole.cases[2])
    assert suite_files.read_suite(export("yaml", case=["C-1", "returns"])).cases == wanted
    lines = export("jsonl", case=["C-1", "returns"])
    head = {"s.yaml": write_yaml(suite_head(whole)).encode()}
    assert suite_files.read_case_lines(lines, file="s.jsonl", files=head).cases == wanted
    assert [json.loads(line)["id"] for line in lines.splitlines()] == ["returns", "C-1"]
    with django_assert_max_num_queries(14):
        table = export("csv", everything="1").decode()
    assert table.startswith("key,title,tags,input,")
    assert "C-2,,,Ask 2," in table
    assert viewer_client.post(EXPORT, {"format": "yaml"}).status_code == 302


def test_viewers_and_archived_suites_have_no_controls(
    viewer_client: Client, editor: Client, suite: Suite, result: Result, ada: User
) -> None:
    pages = (CASES, f"{CASES}returns/", "/suites/support/runs/1/returns/1/")
    controls = ("New case", "Duplicate", "Add tag", "Create case", 'value="delete"')
    for page in pages:
        said = page_of(viewer_client.get(page))
        assert not [word for word in controls if word in said]
    form = editor.get(NEW).context["form"]
    archive_suite(suite, by=ada)
    for page in pages:
        said = page_of(editor.get(page))
        assert not [word for word in controls if word in said]
    values = sent(form, key="x") | {"input-role": "user", "input-content": "a", "input-origin": ""}
    refused = editor.post(NEW, values)
    assert (refused.status_code, "is archived" in page_of(refused)) == (422, True)
    ticked = {"case": "C-1", "action": "tag", "tags": "x"}
    assert "is archived" in page_of(editor.post(BULK, ticked, follow=True))
    assert "is archived" in page_of(
        editor.post("/suites/support/runs/1/returns/1/case/", follow=True)
    )
    assert suite.cases.count() == 4
