"""What-if over HTTP: the panel beside the editor, its page and file, and a new run of the stored scores."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from evaluators.scoring.policy import PolicySpec
from runs.models.results import Result
from runs.models.reviews import Review
from runs.models.runs import Run, RunStatus
from runs.models.suites import Suite, SuiteDraft
from runs.suites.drafts import change_draft, get_draft, save_draft
from runs.suites.edits import SetPolicy
from runs.suites.services import create_suite
from runs.what_if import panel, stored
from runs.what_if.page import answer_what_if
from tests.support.factories import make_run
from tests.support.members import make_client, make_member
from tests.support.scored_runs import CHECK, EXACT, SHORT, STYLE, finished_run, rules_of
from tests.support.trees import tree
from tests.support.white_space import text_of

pytestmark = pytest.mark.django_db(transaction=True)
HTMX = {"HX-Request": "true"}
STRICT = {"pass_threshold": "0.9", "borderline_threshold": "0.8"}
STRICTER = PolicySpec(pass_threshold=0.9, borderline_threshold=0.8)


@pytest.fixture
def ada(db: None) -> User:
    return make_member("editor", "ada")


@pytest.fixture
def client(ada: User) -> Client:
    return make_client(ada)


@pytest.fixture
def run(db: None) -> Run:
    return finished_run()


def address(suite: Suite, end: str = "") -> str:
    return f"/suites/{suite.slug}/what-if/{end}"


def ask(client: Client, suite: Suite, ada: User, *, htmx: bool = True, **sent: str) -> Any:
    values = {"stamp": get_draft(suite, ada).stamp} | sent
    return client.post(address(suite), values, headers=HTMX if htmx else {})


def test_the_figures_of_the_panel_are_those_of_the_core(
    client: Client, run: Run, ada: User
) -> None:
    response = ask(client, run.suite, ada, **STRICT)
    found = answer_what_if(run, rules_of(run, policy=STRICTER))
    assert response.context["what_if"].answer.what_if == found
    assert found.cases_flipped == 1
    text = text_of(response)
    assert "1 case would flip run #1" in text
    assert "3 unchanged, 1 without a verdict" in text
    assert "C-1" in text
    assert "Borderline Fail 0.75 " in text
    assert "0.75 →" not in text, "a score that stays is shown once"
    after = found.after
    assert f"Passed of {after.executions} {after.passed} " in text
    assert "Score gate 50.0%, needs 80%; 4 of 5 Failed" in text
    assert "Pass 1 0 0 1 Borderline 0 0 1 1 Fail 0 0 2 2 After 1 0 3" in text
    assert "Creates a new run, no model calls" in text
    assert f"/suites/{run.suite.slug}/runs/1/C-1/1/" in response.content.decode()
    assert not SuiteDraft.objects.exists()
    assert f'href="{address(run.suite, "matrix.csv")}?run=1"' in response.text
    ask(client, run.suite, ada, autosave="1", **STRICT)
    cells = client.get(address(run.suite, "matrix.csv"), {"run": "1"}).text.splitlines()
    assert cells[0] == "verdict_before,verdict_after,cases"
    assert [cell for cell in cells[1:] if not cell.endswith(",0")] == [
        *("pass,pass,1", "borderline,fail,1", "fail,fail,2"),
    ]


def test_a_cell_of_the_matrix_filters_the_list(client: Client, run: Run, ada: User) -> None:
    low = {"pass_threshold": "0", "borderline_threshold": "0"}
    every = ask(client, run.suite, ada, **low).context["what_if"].answer
    assert {row.flip.before.state for row in every.flips} == {"borderline", "fail"}
    rose = ask(client, run.suite, ada, change="borderline-pass", **low)
    assert [row.flip.before.state for row in rose.context["what_if"].answer.flips] == ["borderline"]
    page = rose.content.decode()
    assert '<input type="hidden" name="change" value="borderline-pass" form="evaluators">' in page
    assert re.search(r'aria-label="Borderline → pass: 1 case"\s+aria-pressed="true"', page)
    plain = ask(client, run.suite, ada, htmx=False, change="borderline-pass", **low)
    assert [row.flip.before.state for row in plain.context["table"].rows] == ["borderline"]
    gone = text_of(ask(client, run.suite, ada, change="pass-fail", **low))
    assert "No case flips from pass → fail any more." in gone


def test_every_cell_of_the_matrix_lists_as_many_cases_as_it_says(
    client: Client, run: Run, ada: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(client, run.suite, ada, autosave="1", pass_threshold="0", borderline_threshold="0")
    page = client.get(address(run.suite), {"run": "1"})
    matrix = page.text.partition('<table class="matrix"')[2].partition("</table>")[0]
    cells = re.findall(r'href="([^"]*)"\s+aria-label="[^"]*: (\d+) case', matrix)
    changes = [int(count) for url, count in cells if "change=" in url]
    # Three verdicts before, and the cells of the one that all its cases keep and of the one that some keep.
    assert (len(changes), len(cells)) == (2, 7)
    for url, count in cells:
        assert len(client.get(url.replace("&amp;", "&")).context["table"].rows) == int(count), url
    assert sum(changes) == page.context["what_if"].answer.what_if.cases_flipped
    monkeypatch.setattr(panel, "MAX_LENGTH", 10)
    unlisted = client.get(address(run.suite), {"run": "1"}).text
    assert unlisted.count("no filter can leave them out") == 1


def test_the_editor_saves_the_draft_with_every_edit(client: Client, run: Run, ada: User) -> None:
    untouched = ask(client, run.suite, ada, autosave="1")
    assert not SuiteDraft.objects.exists()
    assert "Draft saved" not in text_of(untouched)
    first = get_draft(run.suite, ada).stamp
    saved = ask(client, run.suite, ada, autosave="1", **STRICT)
    draft = SuiteDraft.objects.get()
    assert draft.content["policy"]["pass_threshold"] == 0.9
    assert "Draft saved , 2 changes" in text_of(saved)
    assert f'name="stamp" value="{draft.stamp}" id="draft-stamp" hx-swap-oob' in saved.text
    half = ask(client, run.suite, ada, autosave="1", pass_threshold="much")
    assert "Not saved" in text_of(half)
    assert 'id="draft-stamp"' not in half.text
    stale = ask(client, run.suite, ada, autosave="1", stamp=first, pass_threshold="0.7")
    assert "changed in another tab" in text_of(stale)
    assert "Not saved" in text_of(stale)
    draft.refresh_from_db()
    assert draft.content["policy"]["pass_threshold"] == 0.9


def test_an_edit_after_somebody_else_saved_is_kept_and_says_so(
    client: Client, run: Run, ada: User
) -> None:
    opened = get_draft(run.suite, ada).stamp
    theirs = get_draft(run.suite, make_member("editor", "bea"))
    changed = change_draft(theirs, theirs.stamp, SetPolicy({"cases_pass_threshold": 0.5}))
    save_draft(changed, changed.stamp, note="")
    saved = ask(client, run.suite, ada, autosave="1", stamp=opened, **STRICT)
    assert SuiteDraft.objects.get(author=ada).content["policy"]["pass_threshold"] == 0.9
    assert "bea saved a version in the meantime." in text_of(saved)
    assert f"/suites/{run.suite.slug}/draft/conflict/" in saved.text


def test_bands_stand_in_the_histogram_where_they_were_and_where_they_would_be(
    client: Client, run: Run, ada: User
) -> None:
    page = ask(client, run.suite, ada, **STRICT).content.decode()
    drawn = page[page.index('<div id="histogram" hx-swap-oob="true">') :]
    assert ">pass 0.90</text>" in drawn
    assert ">borderline 0.80</text>" in drawn
    assert drawn.count('class="limit"') == 4
    assert "Dotted: a threshold before." in drawn
    table = re.findall(r"<th scope=\"row\">([^<]+)</th><td[^>]*>(\d+)</td><td[^>]*>(\d+)", drawn)
    scores = answer_what_if(run, rules_of(run)).histogram.bins
    assert [(int(before), int(after)) for _, before, after in table] == [
        (one.before, one.after) for one in scores if one.before
    ]
    assert f'id="{get_draft(run.suite, ada).content["evaluators"]["id"]}-share" hx-swap-oob' in page


def test_a_suite_without_evaluators_is_sent_no_rows_its_page_does_not_have(
    client: Client, ada: User
) -> None:
    suite = create_suite(slug="empty", title="Empty", by=ada)
    panel = ask(client, suite, ada)
    assert 'id="what-if"' in panel.text
    assert "-share" not in panel.text


def test_a_preview_shows_the_page_without_scripts_and_keeps_nothing(
    client: Client, run: Run, ada: User
) -> None:
    response = ask(client, run.suite, ada, htmx=False, **STRICT)
    page, text = response.content.decode(), text_of(response)
    assert "Your changes aren't saved yet." in text
    assert "1 case would flip" in text
    assert '<input type="hidden" name="pass_threshold" value="0.9">' in page
    assert not SuiteDraft.objects.exists()
    followed = client.post(
        address(run.suite),
        {"stamp": get_draft(run.suite, ada).stamp, "keep": "1", **STRICT},
        follow=True,
    )
    assert followed.redirect_chain == [(address(run.suite), 302)]
    assert SuiteDraft.objects.get().content["policy"]["pass_threshold"] == 0.9
    assert "Borderline → fail 1" in text_of(followed)


def test_all_flips_are_filtered_by_address_and_given_as_a_file(
    client: Client, run: Run, ada: User
) -> None:
    Review.objects.create(
        result=run.results.get(case__key="C-1"), reviewer=ada, verdict="borderline"
    )
    run.results.filter(case__key="C-1").update(reviewed_verdict="borderline")
    draft = get_draft(run.suite, ada)
    change_draft(
        draft, draft.stamp, SetPolicy({"pass_threshold": 0.0, "borderline_threshold": 0.0})
    )
    every = client.get(address(run.suite), {"run": "1"})
    found = every.context["what_if"].answer.what_if
    assert found.contradicted == 1
    text = text_of(every)
    assert "contradicts your review: borderline" in text
    assert "1 of 1 → 0 of 1 100.0% → 0.0%" in text
    beside = ask(client, run.suite, ada).content.decode()
    assert '<small data-tone="bad">contradicts your review: borderline</small>' in beside
    bea = make_member("editor", "bea")
    low = {"pass_threshold": "0", "borderline_threshold": "0"}
    said = text_of(ask(make_client(bea), run.suite, bea, **low))
    assert "contradicts a review: borderline" in said
    chips = {chip.label: chip for chip in every.context["table"].chips}
    assert chips["Borderline → pass"].count == 1
    assert chips["Contradicts a review"].count == 1
    one = client.get(chips["Contradicts a review"].url)
    assert [row.flip.key for row in one.context["table"].rows] == ["C-1"]
    none = client.get(address(run.suite), {"change": "pass-fail"})
    assert "No case flips this way." in text_of(none)
    file = client.get(address(run.suite, "flips.csv"), {"run": "1"})
    lines = list(csv.DictReader(io.StringIO(file.content.decode())))
    assert [(line["case"], line["verdict_before"], line["review"]) for line in lines] == [
        (flip.key, flip.before.state, flip.review) for flip in found.flips
    ]


def test_what_cannot_be_answered_says_why(client: Client, run: Run, ada: User) -> None:
    suite = run.suite
    wrong = ask(client, suite, ada, pass_threshold="much")
    assert "Can't show the effect." in text_of(wrong)
    assert ask(client, suite, ada, htmx=False, pass_threshold="much").status_code == 422
    above = ask(client, suite, ada, borderline_threshold="0.95")
    assert "Borderline begins above pass" in text_of(above)
    assert "changed in another tab" in text_of(ask(client, suite, ada, stamp="older"))
    stale = ask(client, suite, ada, htmx=False, stamp="older")
    assert (stale.status_code, "changed in another tab" in text_of(stale)) == (409, True)
    assert "There is no run #77" in text_of(ask(client, suite, ada, run="77"))
    assert "There is no run #x" in text_of(ask(client, suite, ada, run="x"))
    make_run(suite=suite, status="running")
    assert "Run #2 is still running" in text_of(ask(client, suite, ada, run="2"))
    assert "1 case would flip" in text_of(ask(client, suite, ada, **STRICT))
    run.delete()
    assert "No finished run yet" in text_of(ask(client, suite, ada))


def test_a_draft_that_changes_nothing_says_so(client: Client, run: Run, ada: User) -> None:
    text = text_of(ask(client, run.suite, ada))
    assert "No case would flip run #1" in text
    assert "4 unchanged, 1 without a verdict." in text
    text = text_of(ask(client, run.suite, ada, cases_pass_threshold="10"))
    assert "No case would flip run #1" in text
    assert "needs 100% → 10% Failed Passed" in text


def test_evaluators_that_need_new_calls_are_named(client: Client, run: Run, ada: User) -> None:
    root = get_draft(run.suite, ada).content["evaluators"]["id"]
    sent = {f"{root}.type": "weighted_average", f"{root}.gate_threshold": "0.5"}
    text = text_of(ask(client, run.suite, ada, **sent))
    assert "The stored scores aren't enough for an exact answer." in text
    assert "style/short needs to be rescored: it was skipped after a failed gate" in text
    assert "Here 1 of 4 results waits for it." in text
    assert "Can't be applied to run #1" in text
    refused = client.post(
        address(run.suite, "score/"),
        {"stamp": get_draft(run.suite, ada).stamp, "run": "1", **sent},
    )
    assert refused.status_code == 422
    assert "exact: it was skipped after a failed gate" in text_of(refused)
    assert Run.objects.count() == 1


def test_a_run_of_another_version_is_asked_where_its_evaluators_stood(
    client: Client, ada: User
) -> None:
    run = finished_run(evaluators=tree(CHECK, EXACT, STYLE))
    Result.objects.filter(run=run).update(reviewed_verdict="")
    snapshot = run.snapshot
    old = {**snapshot["evaluators"], "children": []}
    for child in snapshot["evaluators"]["children"]:
        old["children"].append(
            {**child, "name": {"exact": "letter"}.get(child["name"], child["name"])}
        )
    Run.objects.filter(pk=run.pk).update(snapshot={**snapshot, "evaluators": old}, suite_version=0)
    stored.KEPT.values.clear()
    found = ask(client, run.suite, ada).context["what_if"]
    assert found.answer.what_if.stale == ()
    assert "Run #1 used v0" in text_of(ask(client, run.suite, ada))


@pytest.mark.writes_results
def test_verdicts_that_a_file_told_are_kept_and_said_so(
    client: Client, run: Run, ada: User
) -> None:
    run.results.filter(case__key="C-0").update(verdict="fail", is_forced=True)
    stored.KEPT.values.clear()
    text = text_of(ask(client, run.suite, ada))
    assert "1 of 5 results has a verdict that today" in text
    run.results.exclude(status="error").update(verdict="fail", is_forced=True, score=0.123)
    imported = {**run.snapshot, "imported": {"file": "results.jsonl"}}
    Run.objects.filter(pk=run.pk).update(snapshot=imported)
    stored.KEPT.values.clear()
    text = text_of(ask(client, run.suite, ada))
    assert "The verdicts of run #1 come from its file." in text
    assert "run #1 has no stored scores" in text


def test_a_run_of_errors_alone_is_scored_again_where_other_evaluators_have_scores(
    client: Client, ada: User
) -> None:
    blind = {**SHORT, "name": "tokens", "config": {"max_tokens": 100}}
    errored = finished_run(evaluators=tree(CHECK, blind))
    draft = get_draft(errored.suite, ada)
    change_draft(draft, draft.stamp, SetPolicy({"on_unscored": "exclude"}))
    page = client.get(address(errored.suite), {"run": "1"})
    assert page.context["what_if"].answer.what_if.before.scored == 0
    assert "Apply to run #1" in text_of(page)
    assert "Judge its outputs again" in text_of(page)


def test_a_run_is_made_of_the_stored_scores_once_and_named_so(
    client: Client, run: Run, ada: User
) -> None:
    panel = ask(client, run.suite, ada, **STRICT)
    sent = {
        "stamp": get_draft(run.suite, ada).stamp,
        "run": "1",
        "form_key": panel.context["form_key"],
        **STRICT,
    }
    made = client.post(address(run.suite, "score/"), sent, follow=True)
    assert made.redirect_chain == [(f"/suites/{run.suite.slug}/runs/2/", 302)]
    text = text_of(made)
    assert "rescored from run #1 , at no cost under draft of v1" in text
    again = client.post(address(run.suite, "score/"), sent)
    assert again["Location"] == made.redirect_chain[0][0]
    assert Run.objects.count() == 2
    new = Run.objects.get(number=2)
    assert (new.status, new.fail_count) == (RunStatus.COMPLETED, 3)
    home = client.get("/").content.decode()
    assert f'href="/suites/{run.suite.slug}/runs/1/"' in home
    assert f"/suites/{run.suite.slug}/runs/2/" not in home
    assert not SuiteDraft.objects.exists()
    plain = {"stamp": sent["stamp"], "run": "1", "form_key": "other"}
    client.post(address(run.suite, "score/"), plain)
    assert Run.objects.get(number=3).note == "under v1"
    draft = get_draft(run.suite, ada)
    change_draft(draft, draft.stamp, SetPolicy({"pass_threshold": 0.9}))
    save_draft(get_draft(run.suite, ada), get_draft(run.suite, ada).stamp, note="")
    saved = client.get(address(run.suite), {"run": "1"})
    assert saved.context["what_if"].rules_name == "v2"
    stale = client.post(address(run.suite, "score/"), sent)
    assert (stale.status_code, Run.objects.count()) == (422, 3)


def test_an_archived_suite_makes_no_run(client: Client, run: Run, ada: User) -> None:
    Suite.objects.filter(pk=run.suite_id).update(archived_at=run.created_at)
    assert "the suite is archived" in text_of(ask(client, run.suite, ada))
    sent = {"stamp": get_draft(run.suite, ada).stamp, "run": "1"}
    refused = client.post(address(run.suite, "score/"), sent)
    assert "is archived. Restore it" in text_of(refused)
    assert Run.objects.count() == 1


@pytest.mark.parametrize("role", ["viewer", "reviewer", ""])
def test_only_who_may_change_suites_asks(run: Run, role: str) -> None:
    other = make_client(make_member(role))
    assert other.get(address(run.suite)).status_code == 403
    assert other.post(address(run.suite, "score/")).status_code == 403
    assert other.get(address(run.suite, "flips.csv")).status_code == 403
