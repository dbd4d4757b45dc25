"""Begin a suite, edit its settings in a draft, save it, settle it with others, archive and delete it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from evaluators.models import AuditEntry
from runs.models.reviews import ReviewItem
from runs.models.suites import Suite, SuiteDraft
from runs.suites.drafts import change_draft, get_draft, save_draft
from runs.suites.edits import Describe, SetPolicy
from runs.suites.services import create_suite
from tests.support.factories import make_case, make_model, make_result, make_run
from tests.support.members import make_client, make_member

pytestmark = pytest.mark.django_db
NEW = "/new-suite/"
PAGE = "/suites/support/settings/"
CONFLICT = "/suites/support/draft/conflict/"


def text_of(response: Any) -> str:
    return " ".join(response.content.decode().split())


def values_of(client: Client, address: str = PAGE) -> dict[str, str]:
    """Return what a browser would send of the first form that holds the stamp."""
    form = client.get(address).context["form"]
    values = {bound.html_name: bound.field.prepare_value(bound.value()) for bound in form}
    return {
        name: "" if value is None else str(value)
        for name, value in values.items()
        if value is not False
    }


def keep(client: Client, **changes: str) -> Any:
    return client.post(PAGE, values_of(client) | changes)


def save(client: Client, note: str = "", follow: bool = True) -> Any:
    draft = client.get(PAGE).context["draft"]
    return client.post(
        "/suites/support/draft/save/", {"stamp": draft.stamp, "note": note}, follow=follow
    )


@pytest.fixture
def ada(db: None) -> User:
    return make_member("editor", "ada")


@pytest.fixture
def suite(ada: User) -> Suite:
    return create_suite(slug="support", title="Support", by=ada, tags=["core"])


@pytest.fixture
def client(suite: Suite, ada: User) -> Client:
    return make_client(ada)


@pytest.mark.parametrize(
    ("start", "kinds", "policy"),
    [
        ("verdicts", ["llm_judge"], {"case_gate": "score", "scale": 1}),
        ("metrics", ["metrics_judge"], {"case_gate": "expected_outcomes", "scale": 100}),
        ("tasks", ["expected_output", "llm_judge"], {"case_gate": "score", "scale": 100}),
        ("hybrid", ["hybrid_judge"], {"final_score": "judge_overall", "scale": 10}),
        ("empty", [], {"case_gate": "score"}),
    ],
)
def test_a_suite_begins_from_a_profile_or_empty(
    editor_client: Client, start: str, kinds: list[str], policy: Mapping[str, Any]
) -> None:
    judge = make_model(slug="juno")
    sent = {"title": " Größe & Co. ", "start": start, "judge": judge.slug, "tags": "a, b,, a"}
    response = editor_client.post(NEW, sent, follow=True)
    assert response.redirect_chain == [("/suites/groe-co/", 302)]
    assert "This suite has no cases." in text_of(response)
    suite = Suite.objects.get(slug="groe-co")
    assert [node.kind for node in suite.spec.evaluators.children] == kinds
    assert {name: getattr(suite.policy, name) for name in policy} == policy
    assert (suite.tags, suite.judge, suite.version) == (["a", "b"], judge, 1)
    assert suite.versions.get().author == AuditEntry.objects.get(action="create").actor


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({"title": "Support again", "slug": "support"}, "There is already a suite “support”."),
        ({"title": "支持"}, "Enter one. The title has no letters that an address can contain."),
        ({"title": ""}, "This field is required."),
        ({"title": "x" * 201}, "at most 200 characters"),
        ({"title": "New", "start": "palmistry"}, "palmistry is not one of the available choices"),
        ({"title": "New", "judge": "nobody"}, "That choice is not one of the available choices"),
    ],
)
def test_a_suite_that_cannot_be_is_refused_at_its_field(
    client: Client, sent: dict[str, str], said: str
) -> None:
    response = client.post(NEW, {"start": "verdicts", **sent})
    assert response.status_code == 422
    assert said in text_of(response)
    assert Suite.objects.count() == 1


def test_settings_gather_in_a_draft_and_become_a_version(suite: Suite, client: Client) -> None:
    assert "No changes yet." in text_of(client.get(PAGE))
    keep(client, title="Customer support", fallback_threshold="72.5", max_avg_score_drop="2.5")
    suite.refresh_from_db()
    assert (suite.title, suite.version) == ("Support", 1)
    page = text_of(client.get(PAGE))
    assert "Draft saved</span>, 3 changes" in page
    assert "<code>fallback_threshold</code>" in page
    assert "0.725" in page
    assert 'value="72.5"' in page
    assert "Saved as v2: milder" in text_of(save(client, note=" milder "))
    suite.refresh_from_db()
    assert (suite.title, suite.version) == ("Customer support", 2)
    assert (suite.policy.fallback_threshold, suite.policy.max_avg_score_drop) == (0.725, 0.025)
    assert SuiteDraft.objects.count() == 0
    entry = AuditEntry.objects.get(action="save")
    assert entry.before is not None
    assert entry.after is not None
    assert (entry.before["fallback_threshold"], entry.after["fallback_threshold"]) == (0.75, 0.725)


def test_a_suite_says_how_long_its_runs_may_take(suite: Suite, client: Client) -> None:
    make_case(suite=suite)
    page = text_of(client.get(PAGE))
    assert "Empty for 24 h 00 min, as on the whole site." in page
    answer = keep(client, max_minutes="0")
    assert "greater than or equal to 1" in text_of(answer)
    keep(client, max_minutes="45")
    save(client, note="")
    assert values_of(client)["max_minutes"] == "45"
    assert Suite.objects.get(pk=suite.pk).max_minutes == 45
    for address in ("/api/suites/support", "/api/suites/support/versions/2"):
        assert client.get(address).json()["max_minutes"] == 45
    change = text_of(client.get("/suites/support/versions/compare/?from=1&to=2"))
    assert "Longest time of a run, minutes" in change
    keep(client, max_minutes="")
    save(client, note="")
    assert Suite.objects.get(pk=suite.pk).max_minutes == 24 * 60, "as on the whole site"


def test_a_suite_says_whether_outcomes_that_do_not_decide_are_judged(
    suite: Suite, client: Client
) -> None:
    make_case(suite=suite)
    assert values_of(client)["judge_outcomes"] == "auto"
    keep(client, judge_outcomes="never")
    save(client, note="")
    assert Suite.objects.get(pk=suite.pk).policy.judge_outcomes == "never"
    words = "<dt>Judge expected outcomes</dt><dd>Only if they decide</dd>"
    for page in ("/suites/support/", "/suites/support/versions/2/"):
        assert words in text_of(client.get(page))
    assert client.get("/api/suites/support").json()["policy"]["judge_outcomes"] == "never"
    change = text_of(client.get("/suites/support/versions/compare/?from=1&to=2"))
    assert "Judge expected outcomes" in change


def test_what_people_review_is_set_beside_the_rest_of_the_policy(
    suite: Suite, client: Client
) -> None:
    values = values_of(client)
    assert (values["review_distance"], values["review_pass_sample"]) == ("2", "5")
    assert (values["review_reviewers"], values["review_borderline"]) == ("1", "True")
    sent = {"review_distance": "0.5", "review_pass_sample": "12.5", "review_reviewers": "2"}
    off = {name: value for name, value in values.items() if name != "review_split_panel"}
    client.post(PAGE, off | sent | {"review_blind": "on"}, follow=True)
    page = text_of(client.get(PAGE))
    assert "Draft saved</span>, 5 changes" in page
    assert "Saved as v2: people look" in text_of(save(client, note="people look"))
    policy = Suite.objects.get(pk=suite.pk).policy
    assert (policy.review_distance, policy.review_pass_sample) == (0.005, 0.125)
    assert (policy.review_reviewers, policy.review_blind) == (2, True)
    assert (policy.review_split_panel, policy.review_borderline) == (False, True)


def test_each_review_rule_says_what_it_brought_in_by_the_latest_run(
    suite: Suite, client: Client
) -> None:
    page = text_of(client.get(PAGE))
    legends = ("Close calls", "Disagreement", "Suspicious answers", "Random sample")
    assert all(f"<legend>{one}</legend>" in page for one in legends)
    assert "in run #" not in page
    run = make_run(suite=suite)
    for position, reasons in enumerate((" borderline samples ", " borderline ", "")):
        result = make_result(run=run, case=make_case(suite=suite, key=f"A{position}"))
        if reasons:
            ReviewItem.objects.create(result=result, run=run, reasons=reasons)
    make_run(suite=suite, source_run=run)
    page = text_of(client.get(PAGE))
    assert "2 of 3 results in run #1" in page
    assert "On both sides of a threshold. 1 of 3 results in run #1" in page
    assert page.count("of 3 results in run #1") == 2


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("review_distance", "101", "less than or equal to 100"),
        ("review_fail_sample", "", "This field is required"),
        ("review_reviewers", "0", "greater than or equal to 1"),
        ("review_reviewers", "1.5", "Enter a whole number"),
        ("fallback_threshold", "101", "less than or equal to 100"),
        ("fallback_threshold", "NaN", "Enter a number"),
        ("max_avg_score_drop", "-1", "greater than or equal to 0"),
        ("max_latency_increase_pct", "Infinity", "Enter a number"),
        ("case_gate", "luck", "luck is not one of the available choices"),
        ("title", " ", "This field is required"),
        ("tags", "x" * 61, "60 is the limit"),
    ],
)
def test_a_setting_out_of_range_changes_nothing(
    client: Client, field: str, value: str, said: str
) -> None:
    response = keep(client, **{field: value, "description": "kept on the page"})
    assert response.status_code == 422
    assert said in text_of(response)
    assert "kept on the page" in text_of(response)
    assert SuiteDraft.objects.count() == 0


def test_a_form_of_an_earlier_state_is_refused(client: Client) -> None:
    old = values_of(client)
    keep(client, title="First")
    response = client.post(PAGE, old | {"title": "Second"})
    assert response.status_code == 422
    assert "has changed since this page was opened" in text_of(response)
    assert SuiteDraft.objects.get().content["title"] == "First"
    save(client)
    twice = client.post("/suites/support/draft/save/", {"stamp": old["stamp"]}, follow=True)
    assert "has changed since this page was opened" in text_of(twice)


def test_a_draft_that_says_nothing_new_or_is_thrown_away(suite: Suite, client: Client) -> None:
    assert "there is nothing to save" in text_of(save(client))
    keep(client, title="Other")
    stamp = client.get(PAGE).context["draft"].stamp
    discarded = client.post("/suites/support/draft/discard/", {"stamp": stamp}, follow=True)
    assert "The draft is discarded." in text_of(discarded)
    assert SuiteDraft.objects.count() == 0
    suite.refresh_from_db()
    assert (suite.title, suite.version) == ("Support", 1)


def test_a_page_opened_before_others_saved_keeps_what_was_entered(
    suite: Suite, client: Client
) -> None:
    old = values_of(client)
    theirs = get_draft(suite, make_member("editor", "bob"))
    stored = change_draft(theirs, theirs.stamp, Describe(description="Theirs"))
    save_draft(stored, stored.stamp)
    assert client.post(PAGE, old | {"title": "Mine"}).status_code == 302
    assert "bob saved a version in the meantime" in text_of(client.get(PAGE))
    assert save(client, follow=False).url == CONFLICT
    suite.refresh_from_db()
    assert (suite.title, suite.description) == ("Support", "Theirs")


def test_two_people_editing_decide_value_by_value(suite: Suite, client: Client) -> None:
    keep(client, title="Mine", fallback_threshold="50")
    bob = make_member("editor", "bob")
    theirs = get_draft(suite, bob)
    changes = Describe(title="Theirs"), SetPolicy({"pass_threshold": 0.9})
    stored = change_draft(theirs, theirs.stamp, *changes)
    save_draft(stored, stored.stamp, note="stricter")

    assert "bob saved a version in the meantime" in text_of(client.get(PAGE))
    second = save(client, follow=False)
    assert second.url == CONFLICT
    page = client.get(CONFLICT)
    assert page.status_code == 409
    shown = text_of(page)
    for words in ("bob saved v2", "“stricter”", "Nothing was overwritten", "1 value to decide"):
        assert words in shown
    assert re.search(r"pass threshold.*?0\.8.*?0\.9.*?only theirs", shown)
    assert re.search(r"fallback threshold.*?0\.75.*?0\.5.*?only yours", shown)
    sent = values_of(client, CONFLICT)
    undecided = client.post(CONFLICT, sent)
    assert undecided.status_code == 422
    assert "Choose which to keep." in text_of(undecided)
    choice = next(name for name in sent if name.startswith("choice-"))
    settled = client.post(CONFLICT, sent | {choice: "mine"}, follow=True)
    assert "Your draft is now based on version 2." in text_of(settled)
    save(client)
    suite.refresh_from_db()
    assert (suite.title, suite.policy.pass_threshold, suite.policy.fallback_threshold) == (
        "Mine",
        0.9,
        0.5,
    )
    assert suite.version == 3
    assert client.get(CONFLICT).status_code == 302


def test_an_archived_suite_leaves_the_lists_and_comes_back(suite: Suite, client: Client) -> None:
    make_run(suite=suite, status="completed")
    archived = client.post("/suites/support/archive/", follow=True)
    assert "Its runs stay readable." in text_of(archived)
    assert "Support" not in text_of(client.get("/")).partition("<main")[2]
    assert client.get("/suites/support/runs/1/").status_code == 200
    assert "Restore suite" in text_of(client.get(PAGE))
    assert "Start run" not in text_of(archived).partition("<main")[2].partition("</menu>")[0]
    client.post("/suites/support/archive/", {"restore": "1"})
    assert "Support" in text_of(client.get("/")).partition("<main")[2]
    actions = AuditEntry.objects.filter(action="change").values_list("after", flat=True)
    assert list(actions) == [{"archived": False}, {"archived": True}]


def test_an_archived_suite_is_not_saved_nor_restored_and_keeps_drafts(
    suite: Suite, client: Client
) -> None:
    keep(client, title="Second")
    save(client)
    keep(client, title="Kept for later")
    client.post("/suites/support/archive/")
    assert "You can save your draft after the suite is restored." in text_of(client.get(PAGE))
    assert "Second is archived and cannot be changed. Restore it" in text_of(save(client))
    restore = "/suites/support/versions/1/restore/"
    refused = client.post(restore, {"seen": "2", "note": ""})
    assert (refused.status_code, "Second is archived" in text_of(refused)) == (422, True)
    suite.refresh_from_db()
    assert (suite.version, suite.title) == (2, "Second")

    client.post("/suites/support/archive/", {"restore": "1"})
    assert "Saved as v3" in text_of(save(client))
    suite.refresh_from_db()
    assert suite.title == "Kept for later"


def test_a_suite_without_runs_is_deleted_without_typing_its_name(
    suite: Suite, client: Client
) -> None:
    assert "/suites/support/delete/" in text_of(client.get(PAGE))
    keep(client, title="Half done")
    assert "Support is deleted." in text_of(client.post("/suites/support/delete/", follow=True))
    assert not Suite.objects.exists()


def test_a_suite_without_evaluators_is_edited_like_any_other(suite: Suite, client: Client) -> None:
    assert suite.spec.evaluators.children == ()
    keep(client, title="Named before it can score")
    assert "Saved as v2" in text_of(save(client))


def test_html_in_a_title_stays_text(client: Client) -> None:
    keep(client, title="<script>alert(1)</script>", description="{{ 7 }} <b>x</b>")
    page = text_of(client.get(PAGE))
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page


@pytest.mark.parametrize(
    ("given", "leads"),
    [
        ("/suites/support/settings/", "/suites/support/settings/"),
        ("/suites/support/evaluators/", "/suites/support/evaluators/"),
        ("/suites/support/delete/", "/suites/support/"),
        ("/suites/other/settings/", "/suites/support/"),
        ("https://elsewhere.example/", "/suites/support/"),
        ("//elsewhere.example/suites/support/", "/suites/support/"),
    ],
)
def test_after_saving_one_goes_on_where_the_draft_is_edited(
    client: Client, given: str, leads: str
) -> None:
    keep(client, title="Other")
    stamp = client.get(PAGE).context["draft"].stamp
    sent = {"stamp": stamp, "next": given}
    assert client.post("/suites/support/draft/save/", sent).url == leads


def test_less_than_nothing_is_nothing(suite: Suite, client: Client) -> None:
    keep(client, max_pass_rate_drop="-0", max_avg_score_drop="1")
    assert str(SuiteDraft.objects.get().content["policy"]["max_pass_rate_drop"]) == "0.0"
