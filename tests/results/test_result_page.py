"""One result: its story in every state, its calls, hostile content, and trying it again."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from evaluators.scoring.score_tree import decide
from evaluators.scoring.tree import EvaluatorSpec
from evaluators.scoring.types import Finding, OutcomeResult, Score, Unscored
from runs.models.results import EvaluatorScore, Result, ResultOutput
from runs.results import result_page
from tests.support.factories import (
    TREE,
    make_call,
    make_case,
    make_result,
    make_run,
    make_score,
    make_suite,
)

pytestmark = pytest.mark.django_db
ATTACK = "<script>alert('x')</script>"


def at(result: Result, name: str = "result", **extra: object) -> str:
    place = {
        "slug": result.run.suite.slug,
        "number": result.run.number,
        "key": result.case.key,
        "repetition": result.repetition,
    }
    return reverse(f"runs:{name}", kwargs=place | extra)


def text(client: Client, address: str) -> str:
    response = client.get(address)
    assert response.status_code == 200, (address, response.status_code)
    return response.content.decode()


def judged(
    *, tone: float = 0.5, refund: float = 1.0, text_: str = "Here is your refund.", **columns: Any
) -> Result:
    """Make a result with the decision that scoring makes of two leaves."""
    suite = columns.pop("suite", None) or make_suite()
    case = columns.pop("case", None) or make_case(suite=suite, key="C-001")
    run = columns.pop("run", None) or make_run(suite=suite)
    findings = (
        Finding("Names the customer", passed=True, evidence="Ingrid"),
        Finding("No apology", passed=False),
    )
    said = Score(tone, reasoning="Kind enough.", findings=findings)
    outcomes = {"tone": said, "refund": Score(refund)}
    decision = decide(EvaluatorSpec.model_validate(TREE), outcomes, suite.policy)
    result = make_result(
        run=run,
        case=case,
        verdict=str(decision.verdict),
        score=decision.score,
        decided_by=decision.decided_by,
        output={
            "text": text_,
            "decision": decision.as_json(),
            "trace": columns.pop("trace", None),
            "outcomes": columns.pop("outcomes", None),
        },
        **columns,
    )
    make_score(result=result, path="", score=decision.score, kind="composite")
    make_score(
        result=result,
        path="tone",
        score=tone,
        reasoning="Kind enough.",
        findings=[asdict(finding) for finding in findings],
    )
    make_score(result=result, path="refund", score=refund, kind="text_check")
    return result


def test_a_scored_result_tells_what_decided_and_what_would_flip_it(viewer_client: Client) -> None:
    result = judged(tone=0.5)
    page = text(viewer_client, at(result))
    assert "Why it is borderline" in page
    assert "0.66 &lt; 0.80" in page
    assert "(0.50×2 + 1.00×1) ÷ 3 = 0.66" in page
    assert "scored 0.50 (“No apology”), so the score is 0.66" in page.replace("</code></a>", "")
    assert '<a href="#at-tone"><code>tone</code></a> must reach 0.70 (now 0.50).' in page
    assert 'id="at-tone"' in page
    assert "Kind enough." in page
    assert "Names the customer" in page
    assert "No apology" in page


def test_the_conversation_shows_markdown_safely_and_raw(viewer_client: Client) -> None:
    page = text(viewer_client, at(judged(text_=f"**Yes**, refund. {ATTACK} ![x](http://a/b.png)")))
    assert "<strong>Yes</strong>" in page
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert "<img" not in page
    assert "Show as plain text" in page


def test_hostile_texts_of_every_kind_stay_text(viewer_client: Client) -> None:
    suite = make_suite(title=ATTACK)
    case = make_case(
        suite=suite,
        key="../x?y#z <b>",
        title=ATTACK,
        tags=[ATTACK],
        criteria=ATTACK,
        expected_output=ATTACK,
        expected_outcomes=[ATTACK],
        input=[{"role": "user", "content": ATTACK}, {"role": "tool", "content": {"a": ATTACK}}],
    )
    result = judged(
        suite=suite,
        case=case,
        text_=f'{{"verdict": "pass", "score": 1}} {ATTACK}',
        trace=[
            {
                "type": "tool",
                "name": ATTACK,
                "input": {"a": ATTACK},
                "output": ATTACK,
                "error": ATTACK,
                "started_ms": 0,
                "duration_ms": 5,
            }
        ],
        outcomes=[{"text": ATTACK, "passed": False, "justification": ATTACK}],
        tone=0.0,
        refund=0.0,
    )
    make_call(
        result=result,
        error=ATTACK,
        status="unreadable",
        model_name=ATTACK,
        request={"messages": [ATTACK]},
        reply={"a": ATTACK},
    )
    page = text(viewer_client, at(result)) + text(viewer_client, at(result, "result-calls"))
    assert "<script>alert" not in page
    assert "Why it failed" in page  # the verdict in the output is only text


@pytest.mark.parametrize(
    "key", ["a/b", "..", ".", "100%", "%2F", "a b", "ä/ö", "x?y#z", "a\\b", "'\"", "1/2/3"]
)
def test_every_key_has_an_address_of_its_own(viewer_client: Client, key: str) -> None:
    suite = make_suite()
    result = judged(suite=suite, case=make_case(suite=suite, key=key, title=f"Title of {key}"))
    assert "Why it is borderline" in text(viewer_client, at(result))
    assert text(viewer_client, at(result, "result-output")) == "Here is your refund."


def test_an_errored_result_says_stage_cost_and_what_is_kept(editor_client: Client) -> None:
    suite = make_suite()
    outcomes = {
        "tone": Unscored("the reply was no JSON object", stage="parse"),
        "refund": Score(1.0),
    }
    decision = decide(EvaluatorSpec.model_validate(TREE), outcomes, suite.policy)
    result = make_result(
        run=make_run(suite=suite),
        case=make_case(suite=suite),
        status="error",
        error=decision.error,
        error_stage="parse",
        attempt=3,
        output={"text": "An answer", "decision": decision.as_json()},
    )
    make_score(
        result=result,
        path="tone",
        score=None,
        reasoning="the reply was no JSON object",
        stage="parse",
    )
    make_score(result=result, path="refund", score=1.0)
    make_call(result=result, status="unreadable")
    page = text(editor_client, at(result))
    assert "No verdict" in page
    assert "reading a judge&#x27;s reply, in each of 3 attempts" in " ".join(page.split())
    assert "has no score: the reply was no JSON object." in page
    assert "The output and 1 score are saved." in page
    assert "$0.016" in page
    assert "Rescore" in page
    assert "Unscored" in page
    assert "Errored 0." not in page


def test_a_failed_target_leaves_nothing_to_score(editor_client: Client) -> None:
    suite = make_suite()
    result = make_result(
        run=make_run(suite=suite),
        case=make_case(suite=suite),
        status="error",
        error="Timed out: no answer in 60 s",
        error_stage="target",
        run_cost_usd=None,
        evaluation_cost_usd=None,
        latency_ms=None,
    )
    page = text(editor_client, at(result))
    assert "the target gave no output: Timed out: no answer in 60 s." in page
    assert "The target gave no output, so nothing is saved." in page
    assert "Rerun" in page


@pytest.mark.parametrize(("status", "word"), [("pending", "Waiting."), ("running", "Running.")])
def test_an_open_result_waits_and_fills_in(viewer_client: Client, status: str, word: str) -> None:
    suite = make_suite()
    run = make_run(suite=suite, status="running")
    result = make_result(run=run, case=make_case(suite=suite), status=status)
    page = text(viewer_client, at(result))
    assert word in page
    assert at(result, "result-progress") in page
    assert viewer_client.get(at(result, "result-progress")).status_code == 204
    Result.objects.update(status="scored", verdict="pass")
    over = viewer_client.get(at(result, "result-progress"))
    assert over.status_code == 286
    assert over["HX-Refresh"] == "true"


def test_a_cancelled_result_was_not_executed(viewer_client: Client) -> None:
    suite = make_suite()
    result = make_result(run=make_run(suite=suite), case=make_case(suite=suite), status="cancelled")
    assert "Not run." in text(viewer_client, at(result))


def test_the_difference_to_the_expected_output_is_marked_by_words(viewer_client: Client) -> None:
    suite = make_suite()
    case = make_case(suite=suite, expected_output="The refund takes 5 to 7 days.")
    page = text(viewer_client, at(judged(suite=suite, case=case, text_="The refund takes 2 days.")))
    assert "<del>5 to 7</del>" in page
    assert "<ins>2</ins>" in page


def test_an_output_of_megabytes_is_cut_and_offered_whole(viewer_client: Client) -> None:
    result = judged(text_="x" * 5_000_000)
    page = text(viewer_client, at(result))
    assert len(page) < 120_000
    assert "Download the whole output" in page
    whole = viewer_client.get(at(result, "result-output"))
    assert whole["Content-Type"] == "text/plain; charset=utf-8"
    assert whole["Content-Disposition"].startswith("attachment")
    assert len(whole.getvalue()) == 5_000_000


def test_a_download_ends_when_its_output_is_replaced_or_removed(viewer_client: Client) -> None:
    result = judged(text_="x" * 1_200_000)
    pieces = iter(viewer_client.get(at(result, "result-output")))
    assert set(next(pieces)) == {ord("x")}
    Result.objects.filter(pk=result.pk).update(finished_at=timezone.now())
    with pytest.raises(ResultOutput.DoesNotExist):
        next(pieces)


def test_of_very_many_turns_and_findings_the_first_are_shown(viewer_client: Client) -> None:
    result = judged()
    ResultOutput.objects.filter(result=result).update(
        messages=[{"role": "user", "content": f"Turn {n}!"} for n in range(900)]
    )
    findings = [
        {"text": f"{name} {n}!", "passed": name == "Hit"}
        for name in ("Hit", "Miss")
        for n in range(450)
    ]
    EvaluatorScore.objects.filter(result=result, path="tone").update(findings=findings)

    page = " ".join(text(viewer_client, at(result)).split())

    assert "Turn 299!" in page
    assert "Turn 300!" not in page
    assert "The first 300 of 901 turns." in page
    assert "450 hits, 450 misses" in page
    assert "Miss 299!" in page
    assert "300!" not in page
    for words in ("450 hits", "450 misses", "900 findings"):
        assert f"The first 300 of {words}." in page


def test_calls_come_with_request_and_reply_failed_ones_too(viewer_client: Client) -> None:
    result = judged()
    make_call(result=result, status="rate_limited", http_status=429, error="slow down", reply=None)
    kept = make_call(result=result, repair=1)
    assert "2 calls, 1 failed" in text(viewer_client, at(result))
    calls = text(viewer_client, at(result, "result-calls"))
    assert "Rate limited 429" in calls
    assert "slow down" in calls
    assert "No reply came." in calls
    assert "Score this." in calls
    assert "repair 1" in calls
    whole = viewer_client.get(at(result, "result-call", pk=kept.pk))
    assert whole.json()["request"] == kept.request
    assert viewer_client.get(at(result, "result-call", pk=kept.pk + 99)).status_code == 404


def test_of_a_call_of_megabytes_the_beginning_alone_is_read(
    viewer_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_page, "MAX_CALL_READ", 100)
    monkeypatch.setattr(result_page, "MAX_CALL_TEXT", 60)
    result = judged()
    make_call(result=result, request={"a": "Short."}, reply={"text": f"First {'x' * 90} Last"})
    with CaptureQueriesContext(connection) as asked:
        calls = unescape(text(viewer_client, at(result, "result-calls")))
    assert '{ "a": "Short." }' in " ".join(calls.split())
    assert '{"text": "First xxx' in calls
    assert "cut for reading" in calls
    assert "Last" not in calls
    assert not any('"reply",' in query["sql"] for query in asked)


def test_calls_are_a_page_of_their_own_in_a_new_tab_and_a_part_inside_their_result(
    viewer_client: Client,
) -> None:
    result = judged()
    make_call(result=result)
    alone = viewer_client.get(at(result, "result-calls"))
    assert "<title>Model calls of" in alone.text
    assert "Score this." in alone.text
    part = viewer_client.get(at(result, "result-calls"), headers={"HX-Request": "true"})
    assert part.text.lstrip().startswith('<div id="result-calls">')
    assert "HX-Request" in part.headers["Vary"]


def test_calls_of_a_result_that_is_not_there_are_not_found(viewer_client: Client) -> None:
    result = judged()
    assert viewer_client.get(at(result, "result-calls")).status_code == 200
    result.delete()
    assert viewer_client.get(at(result, "result-calls")).status_code == 404


def test_a_call_is_found_at_its_own_result_alone(viewer_client: Client) -> None:
    suite = make_suite(cases=2)
    run = make_run(suite=suite, repetitions=2)
    first, second = suite.cases.all()
    owner = make_result(run=run, case=first, repetition=1)
    others = [
        make_result(run=run, case=first, repetition=2),
        make_result(run=run, case=second, repetition=1),
        make_result(run=make_run(suite=suite), case=first, repetition=1),
    ]
    call = make_call(result=owner)
    assert viewer_client.get(at(owner, "result-call", pk=call.pk)).status_code == 200
    for other in others:
        assert viewer_client.get(at(other, "result-call", pk=call.pk)).status_code == 404


def test_neighbours_and_repetitions_lead_on(viewer_client: Client) -> None:
    suite = make_suite(cases=3)
    run = make_run(suite=suite, repetitions=2)
    found = [
        make_result(run=run, case=case, repetition=repetition, verdict="pass", score=0.9)
        for case in suite.cases.all()
        for repetition in (1, 2)
    ]
    page = text(viewer_client, at(found[2]))
    assert f'href="{at(found[0])}" aria-keyshortcuts="k"' in page
    assert f'href="{at(found[4])}" aria-keyshortcuts="j"' in page
    assert f'href="{at(found[3])}" aria-keyshortcuts="l"' in page
    assert 'aria-keyshortcuts="h"' not in page
    back = text(viewer_client, at(found[3]))
    assert f'href="{at(found[2])}" aria-keyshortcuts="h"' in back
    assert 'aria-keyshortcuts="l"' not in back


def test_earlier_runs_of_the_case_are_one_click_away(viewer_client: Client) -> None:
    suite = make_suite(cases=1)
    case = suite.cases.get()
    for verdict, score in (("fail", 0.2), ("pass", 0.9)):
        make_result(run=make_run(suite=suite), case=case, verdict=verdict, score=score)
    stopped = make_run(suite=suite, status="stopped")
    make_result(run=stopped, case=case, verdict="fail", score=0.1)
    last = make_result(run=make_run(suite=suite), case=case, verdict="pass", score=0.95)
    page = text(viewer_client, at(last))
    assert "Passed in 2 of 3 runs" in page
    assert "Run #3" not in page  # stopped runs are left out


def test_outcomes_are_a_checklist_with_reasons(viewer_client: Client) -> None:
    met = OutcomeResult("Asks for a photo", True, "It does.")
    page = text(
        viewer_client,
        at(
            judged(
                outcomes=[
                    {"text": met.text, "passed": True, "justification": met.justification},
                    {"text": "Names the days", "passed": False, "justification": "No."},
                ]
            )
        ),
    )
    assert "1 of 2 met" in page
    assert "It does." in page


def test_of_very_many_outcomes_every_page_shows_the_first(viewer_client: Client) -> None:
    texts = [f"Goal {n}!" for n in range(900)]
    case = make_case(suite=make_suite(), key="C-001", expected_outcomes=texts)
    rows = [{"text": goal, "passed": False, "justification": ""} for goal in texts]
    result = judged(suite=case.suite, case=case, outcomes=rows)
    before = judged(suite=case.suite, case=case, run=make_run(suite=case.suite))
    runs = [f"{case.suite.slug}:{row.run.number}" for row in (before, result)]
    pages = [
        at(result),
        at(before),
        reverse("runs:case", args=[case.suite.slug, "C-001"]),
        f"{reverse('runs:compare-case')}?baseline={runs[0]}&candidate={runs[1]}&case=C-001",
    ]
    for page in pages:
        said = " ".join(text(viewer_client, page).split())
        assert "Goal 299!" in said, page
        assert "Goal 300!" not in said, page
        assert "The first 300 of 900 outcomes." in said, page


def test_trying_again_keeps_the_earlier_attempt(editor_client: Client) -> None:
    result = judged()
    response = editor_client.post(at(result, "result-retry"), {"keep_output": "on"}, follow=True)
    page = response.content.decode()
    assert "The result is queued to be rescored." in page
    assert "2, newest first" in page
    result.refresh_from_db()
    assert result.status == "pending"
    assert result.keeps_output


def test_a_viewer_may_not_try_again(viewer_client: Client) -> None:
    result = judged()
    assert viewer_client.post(at(result, "result-retry")).status_code == 403
    assert "Rerun" not in text(viewer_client, at(result))


@pytest.mark.parametrize("name", ["result", "result-output", "result-progress"])
def test_a_result_that_is_not_there_is_not_found(viewer_client: Client, name: str) -> None:
    result = judged()
    result.repetition = 7
    assert viewer_client.get(at(result, name)).status_code == 404


def test_a_result_is_a_fixed_number_of_queries(
    viewer_client: Client,
    django_assert_max_num_queries: Callable[[int], AbstractContextManager[object]],
) -> None:
    suite = make_suite(cases=5)
    run = make_run(suite=suite, repetitions=5)
    for case in suite.cases.all():
        for repetition in range(1, 6):
            make_result(run=run, case=case, repetition=repetition, verdict="pass", score=0.9)
    # One reads the ids of the case's results before their columns, as for the results of a whole run.
    with django_assert_max_num_queries(29):
        text(viewer_client, at(run.results.last()))


def test_the_words_of_the_filter_it_was_opened_from_are_marked(
    viewer_client: Client, db: None
) -> None:
    run = make_run(suite=make_suite(slug="support"))
    case = make_case(
        suite=run.suite, key="C-1", input=[{"role": "user", "content": "Résumé & <b>lt</b>"}]
    )
    output = {"text": "A **refund** of it's refunds"}
    result = make_result(run=run, case=case, verdict="fail", output=output)
    make_score(result=result, path="tone", score=0.4, reasoning="No refund was named.")
    address = "/suites/support/runs/1/C-1/1/"

    def marked(**params: str) -> list[str]:
        page = viewer_client.get(address, params).content.decode()
        return re.findall(r'<mark class="found">([^<]*)</mark>', page)

    assert marked(**{"from": "run", "q": "refund"}) == ["refund", "refunds", "refund"]
    words = "input = resume or output = refund"
    assert marked(**{"from": "run", "q": words}) == ["Résumé", "refund", "refunds"]
    assert marked(**{"from": "comparison", "q": "reasoning = named"}) == ["named"]
    assert marked(**{"from": "run", "q": "lt"}) == ["lt"], "no entity is a word"
    assert marked(**{"from": "run", "q": "(refund"}) == []
    assert marked(q="refund") == [], "no list, no filter"


def test_what_a_filter_found_is_marked_in_expected_texts_and_in_two_runs_side_by_side(
    viewer_client: Client, db: None
) -> None:
    suite = make_suite(slug="support")
    case = make_case(
        suite=suite,
        key="C-1",
        expected_output="The voucher arrives on Monday.",
        expected_outcomes=["Names the voucher <1>"],
    )
    judged = [{"text": "Names the voucher <1>", "passed": True, "justification": ""}]
    for day in ("Monday", "Tuesday"):
        run = make_run(suite=suite)
        output = {"text": f"The refund arrives on {day}.", "outcomes": judged}
        make_result(run=run, case=case, verdict="pass", output=output)

    def marked(address: str, **params: str) -> list[str]:
        page = viewer_client.get(address, params).content.decode()
        return re.findall(r'<mark class="found">([^<]*)</mark>', page)

    result = "/suites/support/runs/1/C-1/1/"
    # The outcome, the line of the difference, and the text beside the output.
    assert marked(result, **{"from": "run", "q": "expected = voucher"}) == ["voucher"] * 3
    assert marked(result, **{"from": "run", "q": "met = voucher"}) == ["voucher"]
    both = {"baseline": "support:1", "candidate": "support:2", "case": "C-1"}
    assert marked("/compare/case/", **both, q="arriv output = tues") == [
        "arrives",
        "arrives",
        "Tuesday",
    ]
    assert marked("/compare/case/", **both, q="missed = voucher") == ["voucher"]
    assert marked("/compare/case/", **both, q="(refund") == []
