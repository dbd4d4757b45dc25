"""What a share link shows of a run, a result or a comparison, and what it hides."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from decimal import Decimal

import pytest
from django.test import Client
from django.urls import reverse

from evaluators.scoring.decision import Decision, Flip, TraceStep
from evaluators.scoring.types import Verdict
from evaluators.templatetags.figures import delta, money, pct
from evaluators.templatetags.ui import step_icon
from runs.compare.comparison import build_comparison
from runs.compare.documents import comparison_document
from runs.compare.rules import Tolerances
from runs.documents import DetailLevel
from runs.finishing import summarise_run
from runs.models.results import ComparedOutput, ResultOutput
from runs.models.runs import Run
from runs.models.sharing import DETAIL_LEVEL_CHOICES, ShareLink
from runs.sharing.parts import MAX_CHARACTERS, TextBudget
from tests.sharing.linked import HOSTILE, marks_within, share, subject
from tests.support.factories import (
    make_case,
    make_result,
    make_run,
    make_score,
    make_scored_run,
    make_snapshot,
    make_suite,
    make_target,
)
from tests.support.trees import CHECK, LEAF, tree
from tests.support.white_space import text_of

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("kind", ["comparison", "run", "result"])
@pytest.mark.parametrize("detail_level", list(DetailLevel))
def test_page_file_and_preview_hold_the_texts_of_their_detail_level_and_no_more(
    editor_client: Client, client: Client, runs: tuple[Run, Run], kind: str, detail_level: str
) -> None:
    fields = subject(runs, kind)
    path = share(editor_client, fields, detail_level)
    frozen = ShareLink.objects.get().frozen
    preview = editor_client.get(
        reverse("runs:share-preview"), fields | {"detail_level": detail_level}
    )
    shown, hidden = marks_within(detail_level)
    for name, text in (
        ("page", client.get(path).content.decode()),
        ("file", client.get(f"{path}download").content.decode()),
        ("preview", preview.content.decode()),
        ("frozen", repr(frozen)),
    ):
        assert {mark for mark in shown if mark not in text} == set(), name
        assert {mark for mark in hidden if mark in text} == set(), name


@pytest.mark.parametrize("detail_level", list(DetailLevel))
def test_a_shared_result_tells_from_outputs_on_by_which_rules_it_came_about_and_what_lacks(
    editor_client: Client, client: Client, runs: tuple[Run, Run], detail_level: str
) -> None:
    steps = (
        TraceStep("Required: tone 0.40 < 0.50", "tone", passed=False),
        TraceStep("RULE-mark: met", passed=True),
    )
    flip = Flip("SMALLEST-mark: tone needs 0.50", "tone", 0.4, 0.5, Verdict.PASS)
    decision = Decision("scored", Verdict.FAIL, 0.4, trace=steps, flip=flip)
    outputs = ResultOutput.objects.filter(result__run=runs[1])
    outputs.update(decision=decision.as_json())
    path = share(editor_client, subject(runs, "result"), detail_level)
    for text in (text_of(client.get(path)), text_of(client.get(f"{path}download"))):
        heading = "Why it failed SMALLEST-mark: tone needs 0.50"
        is_told = detail_level in ("outputs", "traces")
        assert (
            f"{heading} Failed: Required: tone 0.40 < 0.50 tone Passed: RULE-mark: met" in text
        ) == is_told
        assert ("mark: tone" in text or "RULE-mark" in text) == is_told


@pytest.mark.parametrize("kind", ["comparison", "run", "result"])
def test_the_preview_says_word_for_word_what_the_page_does(
    editor_client: Client, client: Client, runs: tuple[Run, Run], kind: str
) -> None:
    fields = subject(runs, kind) | {
        "title": "For the lead",
        "detail_level": "traces",
        "expiry": "90",
    }
    preview = text_of(editor_client.get(reverse("runs:share-preview"), fields))
    page = text_of(client.get(share(editor_client, fields, "traces", expiry="90")))
    at = r"Frozen on [^,]+, \d\d:\d\d"
    shown = re.sub(at, "", page[page.index("Public, read only.") :])
    assert "open until" in shown
    assert shown.replace(" Download as one file", "") in re.sub(at, "", preview)


@pytest.mark.parametrize("kind", ["comparison", "result"])
def test_a_page_with_very_many_entries_is_cut_and_says_so(
    editor_client: Client,
    client: Client,
    runs: tuple[Run, Run],
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TextBudget.__init__, "__defaults__", (MAX_CHARACTERS, 12))
    outputs = ResultOutput.objects.filter(result__run=runs[1])
    outputs.update(trace=[{"type": "tool", "name": f"tool-{n}"} for n in range(30)])
    page = client.get(share(editor_client, subject(runs, kind), "traces"))
    text = text_of(page)
    shown = len(set(re.findall(r"tool-\d+", text)))
    assert 5 <= shown < 10
    assert f"The first {shown} of 30 steps." in text


@pytest.mark.parametrize("kind", ["comparison", "result"])
def test_of_very_many_outcomes_a_page_has_the_first_and_says_so(
    editor_client: Client, client: Client, runs: tuple[Run, Run], kind: str
) -> None:
    outcomes = [{"text": f"goal-{n}", "passed": n < 999, "justification": ""} for n in range(1_000)]
    ResultOutput.objects.filter(result__run=runs[1]).update(outcomes=outcomes)
    text = text_of(client.get(share(editor_client, subject(runs, kind), "outputs")))
    # The missed one comes first.
    assert re.findall(r"goal-\d+", text) == ["goal-999", *(f"goal-{n}" for n in range(99))]
    assert "The first 100 of 1 000 outcomes." in text
    assert kind == "comparison" or "999 of 1000 met" in text


def test_the_steps_of_a_shared_result_have_the_icons_of_its_own_page(
    editor_client: Client, client: Client, runs: tuple[Run, Run]
) -> None:
    kinds = ("agent", "model", "tool", "retrieval", "step")
    outputs = ResultOutput.objects.filter(result__run=runs[1])
    outputs.update(trace=[{"type": kind, "name": f"a {kind}"} for kind in kinds])
    page = client.get(share(editor_client, subject(runs, "result"), "traces")).text
    steps = page.partition('<ol class="trace">')[2].partition("</ol>")[0]
    icons = re.findall(r"#([\w-]+)", steps)
    assert [icon for icon in icons if icon != "i-caret"] == [step_icon(kind) for kind in kinds]
    assert len(set(icons)) == 1 + len(kinds)


def test_the_detail_levels_of_links_are_those_of_documents() -> None:
    assert [value for value, _ in DETAIL_LEVEL_CHOICES] == list(DetailLevel)


def test_figures_on_the_public_page_are_those_of_the_comparison_to_the_last_digit(
    editor_client: Client, client: Client, runs: tuple[Run, Run]
) -> None:
    page = text_of(client.get(share(editor_client, subject(runs))))
    told = comparison_document(build_comparison(*runs, Tolerances())).as_json()
    frozen = ShareLink.objects.get().frozen["figures"]
    for name in ("pass_rate_change", "score_change", "latency_change_pct", "regression_detected"):
        assert frozen[name] == told[name], name
    for side in ("baseline", "candidate"):
        for name in ("pass_rate", "mean_score", "mean_latency_ms", "total_cost_usd", "passed"):
            assert frozen[side][name] == told[side][name], name
    assert [gate["state"] for gate in ShareLink.objects.get().frozen["sides"][1]["gates"]] == [
        gate["state"] for gate in told["candidate"]["gates"].values()
    ]
    for text in (
        "Pass rate needs 100%: 0 of 1 result passed",
        delta(told["pass_rate_change"], "pts"),
        delta(told["score_change"], "pts"),
        pct(told["candidate"]["mean_score"]),
        money(Decimal(told["candidate"]["total_cost_usd"])),
        "Pass rate and mean score regressed",
        "Over limit",
        "Largest drop in pass rate none",
        "Score gate 80%",
    ):
        assert " ".join(text.split()) in page


VERDICTS = (["pass", "pass", "pass"], ["pass", "pass", "fail"])


def test_a_case_without_its_name_has_the_same_number_in_every_link(
    editor_client: Client, client: Client
) -> None:
    suite = make_suite(slug="numbered")
    runs = [make_scored_run(verdicts=verdicts, suite=suite) for verdicts in VERDICTS]
    for kind in ("run", "comparison"):
        text = text_of(client.get(share(editor_client, subject((runs[0], runs[1]), kind))))
        assert "Cases are numbered in the order of their suite." in text
        # The worst comes first.
        assert re.findall(r"Case (\d)", text) == ["3", "1", "2"], kind


def test_what_changed_is_counted_above_the_cases_and_the_policy_is_told_in_words(
    editor_client: Client, client: Client, runs: tuple[Run, Run]
) -> None:
    text = text_of(client.get(share(editor_client, subject(runs))))
    cases, flips = text.index("the most harmful change first"), text.rindex("Verdict flips")
    counts = "Regressed 1 Improved 0 Unchanged 0 Errored 0 Added 0 Removed 0"
    assert text[cases:].startswith(f"the most harmful change first {counts}")
    assert "Regressed" not in text[flips:]
    assert text.index("Limits and policy") > flips > cases
    assert "Case gate score" in text


def test_the_file_needs_nothing_else_and_allows_nothing_else(
    editor_client: Client, client: Client, runs: tuple[Run, Run]
) -> None:
    path = share(editor_client, subject(runs), "traces")
    response = client.get(f"{path}download")
    assert response["Content-Disposition"] == 'attachment; filename="evalsite-for-the-lead.html"'
    page = response.content.decode()
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy
    assert html.unescape(policy[1]) == (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    bare = page.replace(style[1], "")
    assert re.findall(r'\b(?:src|href)="(?!#)[^"]*"', bare) == []
    assert not re.search(
        r"<(?:script|link|img|iframe|form|a href)\b", bare.replace('<a class="skip', "")
    )
    assert "url(" not in style[1]
    assert path.strip("/").removeprefix("s/") not in page


@pytest.mark.parametrize("kind", ["comparison", "run", "result"])
def test_hostile_texts_stay_texts_and_long_ones_are_bounded(
    editor_client: Client, client: Client, kind: str
) -> None:
    suite = make_suite(slug="hostile", title=HOSTILE)
    case = make_case(
        suite=suite, key="KEY-mark", title=HOSTILE, input=[{"role": "user", "content": HOSTILE}]
    )
    target = make_target(name="</title>" + HOSTILE)
    pair = []
    for number in range(2):
        run = make_run(suite=suite, target=target)
        output = {
            "text": HOSTILE + "x" * 5_000_000,
            "trace": [{"name": HOSTILE, "type": "tool", "input": HOSTILE, "error": HOSTILE}],
            "outcomes": [{"text": HOSTILE, "passed": False, "justification": HOSTILE}],
        }
        result = make_result(
            run=run, case=case, verdict="fail", score=0.1 * number, output=output, error=HOSTILE
        )
        make_score(
            result=result,
            path="tone",
            score=0.1,
            reasoning=HOSTILE,
            findings=[{"text": HOSTILE, "passed": False, "evidence": "e" * 5_000}] * 60,
        )
        pair.append(run)
    path = share(editor_client, subject((pair[0], pair[1]), kind), "traces", title=HOSTILE)
    preview = editor_client.get(
        reverse("runs:share-preview"),
        subject((pair[0], pair[1]), kind) | {"detail_level": "traces", "title": HOSTILE},
    )
    for response in (client.get(path), client.get(f"{path}download"), preview):
        page = response.content.decode()
        assert "<script>" not in page
        assert "<img" not in page
        assert html.escape(HOSTILE) in page
        assert len(page) < 600_000
        assert "50 of 60 findings" in page
        assert "e… (2,000 of 5,000 characters)" in page
        assert "20\u202f000 of 5\u202f000\u202f0" in page


@pytest.mark.parametrize("kind", ["comparison", "run", "result"])
def test_half_characters_that_an_agent_wrote_do_not_break_what_is_shared(
    editor_client: Client,
    client: Client,
    runs: tuple[Run, Run],
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As SQLite gives them back: PostgreSQL keeps none.
    monkeypatch.setattr("runs.sharing.parts.as_text", lambda value: f"half \ud800 {value}")
    path = share(editor_client, subject(runs, kind), "traces")
    for address in (path, f"{path}download"):
        assert "half \N{REPLACEMENT CHARACTER}" in client.get(address).text


def test_a_page_without_traces_says_where_they_may_be_quoted(
    editor_client: Client, client: Client, runs: tuple[Run, Run]
) -> None:
    quoting = {
        "text": "search was called with other arguments",
        "evidence": '{"q": "STEP-IN-mark"}',
    }
    finding = {**quoting, "passed": False}
    make_score(
        result=runs[1].results.get(),
        path="calls",
        kind="tool_trajectory",
        score=0.0,
        findings=[finding],
    )
    page = text_of(client.get(share(editor_client, subject(runs, "result"), "outputs")))
    assert "STEP-IN-mark" in page
    assert "Traces are left out. Evaluators may quote them." in page


@pytest.mark.parametrize("detail_level", list(DetailLevel))
def test_the_win_rate_is_a_figure_and_what_the_judge_quotes_of_the_baseline_is_an_output(
    editor_client: Client, client: Client, runs: tuple[Run, Run], detail_level: str
) -> None:
    baseline, run = runs
    pair = {**LEAF, "name": "NAME-mark", "kind": "pairwise", "weight": 0.0, "config": {}}
    run.snapshot = {
        **make_snapshot(suite=run.suite, target=run.target, tree=tree(CHECK, pair)),
        "baseline": {"run": baseline.number, "target": baseline.target_name},
    }
    run.save()
    result = run.results.get()
    orders = [{"better": better, "reasoning": "QUOTE-mark"} for better in ("first", "neither")]
    make_score(
        result=result,
        path="NAME-mark",
        kind="pairwise",
        score=None,
        reasoning="QUOTE-mark",
        details={"verdict": "inconclusive", "orders": orders},
    )
    ComparedOutput.objects.create(result=result, text="BASELINE-mark")
    other = make_result(run=run, case=make_case(suite=run.suite), repetition=1, verdict="pass")
    details = {"verdict": "win", "orders": [{"better": "first"}, {"better": "second"}]}
    make_score(result=other, path="NAME-mark", kind="pairwise", score=1.0, details=details)
    assert summarise_run(run.pk)

    for kind in ("run", "comparison"):
        page = client.get(share(editor_client, subject(runs, kind), detail_level))
        text = text_of(page)
        assert f"Against run #{baseline.number}" in text
        assert "Win rate 100.0%" in text
        assert "1 decided of 2 results" in text
        assert "1 win 1 inconclusive" in text
        assert "Position bias: in 1 of 2 pairs the judge preferred a place" in text
        assert ("NAME-mark" in text) == (detail_level != "figures")
        assert "?q=pairwise" not in page.text
        assert "BASELINE-mark" not in text
    text = text_of(client.get(share(editor_client, subject(runs, "result"), detail_level)))
    assert ("QUOTE-mark" in text) == (detail_level in ("outputs", "traces"))
    assert "BASELINE-mark" not in text
