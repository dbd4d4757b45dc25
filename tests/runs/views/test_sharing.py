"""Share links: what strangers see of a frozen snapshot, and how links are made, listed and revoked."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import Settings

from evaluators.models import AuditEntry
from evaluators.scoring.decision import Decision, Flip, TraceStep
from evaluators.scoring.types import Verdict
from evaluators.templatetags.figures import delta, money, pct
from runs.comparison import Tolerances
from runs.models import Result, ResultOutput, Run, ShareDepth, ShareLink
from runs.reports.comparison import compared, comparison_document
from runs.services.sharing import hash_of
from runs.sharing import Depth
from tests.factories import make_case, make_result, make_run, make_score, make_suite, make_target
from tests.members import make_client, make_member

pytestmark = pytest.mark.django_db

# A text of every kind, with the least depth at which a stranger may read it.
MARKED = {
    "figures": ("TARGET-mark",),
    "case_names": ("KEY-mark", "TITLE-mark", "SUITE-mark"),
    "outputs": (
        *("INPUT-mark", "OUTPUT-mark", "EXPECTED-mark", "OUTCOME-mark", "WHY-mark"),
        *("FINDING-mark", "EVIDENCE-mark"),
    ),
    "traces": ("TOOL-mark", "STEP-IN-mark", "STEP-OUT-mark"),
}
NEVER = ("PROMPT-mark", "METADATA-mark", "NOTE-mark", "TAG-mark", "mia-mark")
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture
def runs(db: None) -> tuple[Run, Run]:
    """Make two runs in which everything that holds a text holds one of its own."""
    suite = make_suite(slug="suite-mark-slug", title="SUITE-mark")
    case = make_case(
        suite=suite,
        key="KEY-mark",
        title="TITLE-mark",
        input=[{"role": "user", "content": "INPUT-mark"}],
        expected_output="EXPECTED-mark",
        expected_outcomes=["OUTCOME-mark"],
        criteria="PROMPT-mark",
        metadata={"note": "METADATA-mark"},
        tags=["TAG-mark"],
    )
    found = []
    for verdict, score in (("pass", 0.92), ("fail", 0.4)):
        run = make_run(
            suite=suite, target=make_target(name=f"TARGET-mark {verdict}"), note="NOTE-mark"
        )
        result = make_result(
            run=run,
            case=case,
            verdict=verdict,
            score=score,
            decided_by="the score",
            outcome_marks="1",
            output={
                "text": f"OUTPUT-mark {verdict}",
                "trace": [
                    {
                        "type": "tool",
                        "name": "TOOL-mark",
                        "input": {"q": "STEP-IN-mark"},
                        "output": "STEP-OUT-mark",
                    }
                ],
                "outcomes": [{"text": "OUTCOME-mark", "passed": True, "justification": "WHY-mark"}],
            },
        )
        finding = {"text": "FINDING-mark", "passed": False, "evidence": "EVIDENCE-mark"}
        make_score(result=result, path="tone", score=score, findings=[finding])
        found.append(run)
    return found[0], found[1]


@pytest.fixture
def editor(db: None) -> User:
    return make_member("editor", "mia-mark")


@pytest.fixture
def editor_client(editor: User) -> Client:
    return make_client(editor)


def subject(runs: tuple[Run, Run], kind: str = "comparison") -> dict[str, str]:
    words = [f"{run.suite.slug}:{run.number}" for run in runs]
    return {
        "comparison": {"kind": kind, "baseline": words[0], "candidate": words[1]},
        "run": {"kind": kind, "run": words[1]},
        "result": {"kind": kind, "run": words[1], "case": "KEY-mark", "repetition": "1"},
    }[kind]


def sent(page: str, fields: dict[str, str], **more: str) -> dict[str, str]:
    found = re.search(r'name="seen" value="([0-9a-f]{64})"', page)
    assert found
    usual = {"title": "For the lead", "depth": "figures", "expiry": "30", "seen": found[1]}
    return fields | usual | more


def share(client: Client, fields: dict[str, str], depth: str = "figures", **more: str) -> str:
    """Make a link as the form does and return its path."""
    page = client.get(reverse("runs:share-new"), fields | {"depth": depth}).content.decode()
    if 'name="looked"' in page:
        more = {"looked": "on"} | more
    made = client.post(reverse("runs:share-new"), sent(page, fields, depth=depth, **more))
    assert made.status_code == 302, made.content.decode()
    listed = client.get(made["Location"]).content.decode()
    found = re.search(r'value="(http://testserver)(/s/[\w-]{43}/)"', listed)
    assert found
    return found[2]


def text_of(response: Any) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", response.content.decode())).split())


def marks_within(depth: str) -> tuple[set[str], set[str]]:
    """Return the texts that a depth lets through, and those it keeps back."""
    depths = list(Depth)
    reached = depths[: depths.index(Depth(depth)) + 1]
    shown = {mark for one in reached for mark in MARKED[one.value]}
    return shown, {mark for marks in MARKED.values() for mark in marks} - shown | {*NEVER}


@pytest.mark.parametrize("kind", ["comparison", "run", "result"])
@pytest.mark.parametrize("depth", list(ShareDepth.values))
def test_page_file_and_preview_hold_the_texts_of_their_depth_and_no_deeper_ones(
    editor_client: Client, client: Client, runs: tuple[Run, Run], kind: str, depth: str
) -> None:
    fields = subject(runs, kind)
    path = share(editor_client, fields, depth)
    frozen = ShareLink.objects.get().frozen
    preview = editor_client.get(reverse("runs:share-preview"), fields | {"depth": depth})
    shown, hidden = marks_within(depth)
    for name, text in (
        ("page", client.get(path).content.decode()),
        ("file", client.get(f"{path}download").content.decode()),
        ("preview", preview.content.decode()),
        ("frozen", repr(frozen)),
    ):
        assert {mark for mark in shown if mark not in text} == set(), name
        assert {mark for mark in hidden if mark in text} == set(), name


@pytest.mark.parametrize("depth", list(ShareDepth.values))
def test_a_shared_result_tells_from_outputs_on_by_which_rules_it_came_about_and_what_lacks(
    editor_client: Client, client: Client, runs: tuple[Run, Run], depth: str
) -> None:
    steps = (
        TraceStep("Required: tone 0.40 < 0.50", "tone", passed=False),
        TraceStep("RULE-mark: met", passed=True),
    )
    flip = Flip("SMALLEST-mark: tone needs 0.50", "tone", 0.4, 0.5, Verdict.PASS)
    decision = Decision("scored", Verdict.FAIL, 0.4, trace=steps, flip=flip)
    outputs = ResultOutput.objects.filter(result__run=runs[1])
    outputs.update(decision=decision.as_json())
    path = share(editor_client, subject(runs, "result"), depth)
    for text in (text_of(client.get(path)), text_of(client.get(f"{path}download"))):
        told = "Why fail Smallest change. SMALLEST-mark: tone needs 0.50"
        is_told = depth in ("outputs", "traces")
        assert (
            f"{told} Broken: Required: tone 0.40 < 0.50 tone Kept: RULE-mark: met" in text
        ) == is_told
        assert ("mark: tone" in text or "RULE-mark" in text) == is_told


@pytest.mark.parametrize("kind", ["comparison", "run", "result"])
def test_the_preview_says_word_for_word_what_the_page_does(
    editor_client: Client, client: Client, runs: tuple[Run, Run], kind: str
) -> None:
    fields = subject(runs, kind) | {"title": "For the lead", "depth": "traces", "expiry": "90"}
    preview = text_of(editor_client.get(reverse("runs:share-preview"), fields))
    page = text_of(client.get(share(editor_client, fields, "traces", expiry="90")))
    at = r"Frozen on [^,]+, \d\d:\d\d"
    shown = re.sub(at, "", page[page.index("Public, read only.") :])
    assert "open until" in shown
    assert shown.replace(" Download as one file", "") in re.sub(at, "", preview)


def test_the_depths_of_links_are_those_of_documents() -> None:
    assert ShareDepth.values == [depth.value for depth in Depth]


def test_figures_on_the_public_page_are_those_of_the_comparison_to_the_last_digit(
    editor_client: Client, client: Client, runs: tuple[Run, Run]
) -> None:
    page = text_of(client.get(share(editor_client, subject(runs))))
    told = comparison_document(compared(*runs, Tolerances()))
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
        "Cases needs 100%: 0 of 1 executions passed",
        delta(told["pass_rate_change"], "pts"),
        delta(told["score_change"], "pts"),
        pct(told["candidate"]["mean_score"]),
        money(Decimal(told["candidate"]["total_cost_usd"])),
        "Regression",
        "Over limit",
        "Pass rate may fall by nothing",
        "Metrics gate 80%",
    ):
        assert " ".join(text.split()) in page


def test_what_changed_is_counted_above_the_cases_and_the_policy_is_told_in_words(
    editor_client: Client, client: Client, runs: tuple[Run, Run]
) -> None:
    text = text_of(client.get(share(editor_client, subject(runs))))
    flips, cases = text.index("Verdict flips"), text.index("the most harmful change first")
    counts = "Regressed 1 Improved 0 Unchanged 0 Errored 0 Added 0 Removed 0"
    assert text[cases:].startswith(f"the most harmful change first {counts}")
    assert "Regressed" not in text[flips:cases]
    assert text.index("Limits and policy") > cases
    assert "A case passes by its score alone" in text


def test_headers_keep_the_page_out_of_caches_search_engines_and_referrers(
    editor_client: Client, client: Client, runs: tuple[Run, Run]
) -> None:
    path = share(editor_client, subject(runs))
    for address in (path, f"{path}download", "/s/wrong/", "/s/"):
        response = client.get(address)
        assert response["X-Robots-Tag"] == "noindex, nofollow"
        assert response["Referrer-Policy"] == "no-referrer"
        assert response["Cache-Control"] == "private, no-store"
        assert response["Content-Security-Policy"].startswith(
            "default-src 'none'; style-src 'self'"
        )
        assert "script-src" not in response["Content-Security-Policy"]
        assert '<meta name="robots" content="noindex, nofollow">' in response.text
        assert "Vary" not in response or "Cookie" not in response["Vary"]


def test_the_preview_of_a_link_says_its_title_and_verdict_only(
    editor_client: Client, client: Client, runs: tuple[Run, Run]
) -> None:
    form = editor_client.get(reverse("runs:share-new"), subject(runs)).text
    assert 'name="title" value="TARGET-mark pass against fail"' in form
    page = client.get(share(editor_client, subject(runs), "traces", title='A "b" <c>')).text
    told = dict(re.findall(r'<meta (?:property|name)="([\w:]+)" content="([^"]*)"', page))
    assert html.unescape(told["og:title"]) == 'A "b" <c>'
    assert told["og:description"].startswith("Regression. ")
    assert told["og:description"].endswith(
        " Both gates of #2 failed: Metrics 40.0% of 80% needed, Cases 0.0% of 100% needed."
    )
    assert told["description"] == told["og:description"]
    assert not any("mark" in value for value in told.values())
    assert {name for name in told if name.startswith("og:")} == {
        *("og:type", "og:site_name", "og:title", "og:description")
    }


@pytest.mark.parametrize("cookies", ["", "evalsite_session=x; evalsite_csrf=y; theme=dark"])
def test_no_cookie_is_read_or_set(
    editor_client: Client,
    client: Client,
    runs: tuple[Run, Run],
    cookies: str,
    django_assert_max_num_queries: Any,
) -> None:
    path = share(editor_client, subject(runs))
    # Find the link, count the view, look whether its rows have changed: no session, no member.
    for visitor in (client, editor_client):
        with django_assert_max_num_queries(4):
            response = visitor.get(path, headers={"cookie": cookies} if cookies else {})
        assert not response.cookies
        assert "evalsite_" not in response.text
    assert client.get(path).content == editor_client.get(path).content
    for address in ("/s/wrong/", f"{path}download", "/s/a/b/c"):
        assert not editor_client.get(address, headers={"cookie": "evalsite_session=x"}).cookies


def test_wrong_expired_revoked_and_malformed_tokens_are_answered_alike(
    editor_client: Client, client: Client, runs: tuple[Run, Run]
) -> None:
    expired, revoked = (share(editor_client, subject(runs)) for _ in range(2))
    now = timezone.now()
    links = list(ShareLink.objects.order_by("pk"))
    ShareLink.objects.filter(pk=links[0].pk).update(expires_at=now)
    assert client.get(revoked).status_code == 200
    editor_client.post(reverse("runs:share-revoke", args=[links[1].pk]))
    right = revoked.strip("/").removeprefix("s/")
    addresses = [
        *(expired, revoked, f"{expired}download", f"{revoked}download"),
        *(f"/s/{right[:-1]}/", f"/s/{right}x/", f"/s/{right.swapcase()}/", "/s/x/", "/s/%20/"),
        *(f"/s/{'x' * 3000}/", "/s/%F0%9F%98%80/", "/s/a%00b/", "/s/'or'1'='1/", "/s/a/b/"),
        *(f"/s/{hash_of(right)}/", f"/s/{links[1].pk}/", "/s/wrong/download", "/s/"),
    ]
    answers = [client.get(address) for address in addresses]
    alike = {(one.status_code, one.content, repr(sorted(one.headers.items()))) for one in answers}
    assert len(alike) == 1
    assert answers[0].status_code == 404
    assert "opens nothing" in text_of(answers[0])
    assert client.post(revoked).status_code == 405


def test_tokens_are_random_and_their_hash_alone_is_kept(
    editor_client: Client, runs: tuple[Run, Run]
) -> None:
    paths = [share(editor_client, subject(runs)) for _ in range(2)]
    tokens = [path.strip("/").removeprefix("s/") for path in paths]
    assert len({*tokens}) == 2
    kept = repr(list(ShareLink.objects.values())) + repr(list(AuditEntry.objects.values()))
    for token in tokens:
        assert token not in kept
        assert hashlib.sha256(token.encode()).hexdigest() in kept
        assert token not in editor_client.get(reverse("runs:share-list")).text


def test_views_are_counted_when_somebody_reads_and_not_when_a_chat_looks_ahead(
    editor_client: Client, client: Client, runs: tuple[Run, Run]
) -> None:
    path = share(editor_client, subject(runs))
    client.head(path)
    client.get(path, headers={"user-agent": "Slackbot-LinkExpanding 1.0"})
    client.get(path, headers={"sec-purpose": "prefetch;prerender"})
    editor_client.get(reverse("runs:share-preview"), subject(runs))
    assert ShareLink.objects.get().view_count == 0
    assert ShareLink.objects.get().last_viewed_at is None
    client.get(path, headers={"user-agent": "Mozilla/5.0 Firefox/140.0"})
    client.get(f"{path}download")
    link = ShareLink.objects.get()
    assert link.view_count == 2
    assert link.last_viewed_at is not None


@pytest.mark.parametrize("kind", ["comparison", "run", "result"])
def test_a_snapshot_stays_as_it_was_and_says_that_the_live_data_has_changed(
    editor_client: Client, client: Client, runs: tuple[Run, Run], kind: str
) -> None:
    path = share(editor_client, subject(runs, kind), "traces")
    before = client.get(path).text
    assert "has since changed" not in before
    Result.objects.filter(run=runs[1]).update(reviewed_verdict="pass", generation=2)
    Run.objects.filter(pk=runs[1].pk).update(target_name="another")
    after = client.get(path).text
    banner = re.search(r'<div class="banner" data-tone="warn" role="status">.*?</div>', after)
    assert banner
    assert "has since changed" in banner[0]
    assert after.index("<h1>") < banner.start() < after.index("Headline"), "below the title"
    assert after.replace(banner[0], "").split() == before.split()
    Result.objects.all().delete()
    Run.objects.all().delete()
    assert client.get(path).text.split() == after.split()


def test_reviews_that_change_places_are_a_change_and_a_new_title_of_the_suite_is_none(
    editor_client: Client, client: Client
) -> None:
    suite = make_suite(slug="desk")
    run = make_run(suite=suite)
    words = ("pass", "fail")
    results = [
        make_result(run=run, case=make_case(suite=suite), verdict="fail", reviewed_verdict=word)
        for word in words
    ]
    path = share(editor_client, {"kind": "run", "run": f"desk:{run.number}"})
    type(suite).objects.update(title="Another")
    assert "has since changed" not in client.get(path).text
    for result, word in zip(results, reversed(words), strict=True):
        Result.objects.filter(pk=result.pk).update(reviewed_verdict=word)
    assert "has since changed" in client.get(path).text


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
        subject((pair[0], pair[1]), kind) | {"depth": "traces", "title": HOSTILE},
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
    monkeypatch.setattr("runs.reports.shared_words.spelled", lambda value: f"half \ud800 {value}")
    path = share(editor_client, subject(runs, kind), "traces")
    for address in (path, f"{path}download"):
        assert "half \N{REPLACEMENT CHARACTER}" in client.get(address).text


def test_what_looks_private_is_listed_with_its_place_and_shared_only_when_it_was_looked_at(
    editor_client: Client, runs: tuple[Run, Run]
) -> None:
    output = runs[1].results.get().output
    output.text = "Use sk-proj-4fJ2kQ9sLmX7vT1bR8nW or write to jo@example.com"
    output.save()
    fields = subject(runs, "run")
    address = reverse("runs:share-new")
    quiet = editor_client.get(address, fields | {"depth": "figures"})
    assert "No key-like strings" in text_of(quiet)
    page = editor_client.get(address, fields | {"depth": "outputs"}).content.decode()
    told = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())
    assert "2 strings look private" in told
    assert "Key-like string sk-p… (28 characters) in case KEY-mark, answer 1, output" in told
    assert "E-mail address j…@example.com in case KEY-mark, answer 1, output" in told
    refused = editor_client.post(address, sent(page, fields, depth="outputs"))
    assert refused.status_code == 422
    assert "tick that they may be shared" in text_of(refused)
    assert not ShareLink.objects.exists()
    made = editor_client.post(address, sent(page, fields, depth="outputs", looked="on"))
    assert made.status_code == 302


def test_only_what_was_shown_is_shared(editor_client: Client, runs: tuple[Run, Run]) -> None:
    fields, address = subject(runs), reverse("runs:share-new")
    page = editor_client.get(address, fields).content.decode()
    deeper = editor_client.post(address, sent(page, fields, depth="traces"))
    assert deeper.status_code == 422
    assert "not what was shown before" in text_of(deeper)
    assert "STEP-OUT-mark" in deeper.content.decode()
    Result.objects.filter(run=runs[1]).update(verdict="pass", score=0.9)
    changed = editor_client.post(address, sent(page, fields))
    assert changed.status_code == 422
    assert not ShareLink.objects.exists()
    again = sent(changed.content.decode(), fields)
    assert editor_client.post(address, again).status_code == 302


@pytest.mark.parametrize(
    ("more", "days"),
    [({}, 30), ({"expiry": "7"}, 7), ({"expiry": "90"}, 90), ({"expiry": "date"}, 3)],
)
def test_links_close_after_30_days_or_when_their_maker_says(
    editor_client: Client, runs: tuple[Run, Run], more: dict[str, str], days: int
) -> None:
    if more.get("expiry") == "date":
        more = more | {"until": str(timezone.localdate() + timedelta(days=days))}
    share(editor_client, subject(runs), **more)
    link = ShareLink.objects.get()
    assert link.expires_at is not None
    assert (link.expires_at.date() - link.created_at.date()).days == days


@pytest.mark.parametrize(
    "more",
    [
        {"expiry": "never"},
        {"expiry": "date"},
        {"expiry": "date", "until": "2001-01-01"},
        {"expiry": "date", "until": "2999-01-01"},
        {"expiry": "400"},
        {"depth": "everything"},
        {"title": "x" * 201},
        {"title": "  "},
    ],
)
def test_a_form_that_makes_no_sense_makes_no_link(
    editor_client: Client, runs: tuple[Run, Run], more: dict[str, str]
) -> None:
    fields, address = subject(runs), reverse("runs:share-new")
    page = editor_client.get(address, fields).content.decode()
    response = editor_client.post(address, sent(page, fields, **more))
    assert response.status_code == 422
    assert "No link was made" in text_of(response)
    assert not ShareLink.objects.exists()


def test_an_admin_alone_makes_links_without_an_end_and_sees_everybodys(
    admin: User, editor_client: Client, runs: tuple[Run, Run], client: Client
) -> None:
    path = share(editor_client, subject(runs), title="Of the editor")
    admin_client, other = make_client(admin), make_client(make_member("editor", "other"))
    share(admin_client, subject(runs), title="Of the admin", expiry="never")
    assert ShareLink.objects.get(title="Of the admin").expires_at is None
    address = reverse("runs:share-list")
    assert "Of the editor" in text_of(admin_client.get(address))
    assert "Of the admin" not in text_of(editor_client.get(address))
    assert "No link has been made" in text_of(other.get(address))
    link = ShareLink.objects.get(title="Of the editor")
    revoke = reverse("runs:share-revoke", args=[link.pk])
    assert other.post(revoke).status_code == 404
    assert client.get(path).status_code == 200
    assert admin_client.post(revoke).status_code == 302
    assert client.get(path).status_code == 404
    assert "Revoked" in text_of(editor_client.get(address))
    deeds = AuditEntry.objects.filter(object_type="share").order_by("pk")
    assert [(one.action, one.actor_name, one.object_name) for one in deeds] == [
        ("share", "mia-mark", "Of the editor"),
        ("share", "admin", "Of the admin"),
        ("revoke", "admin", "Of the editor"),
    ]
    audit = text_of(admin_client.get(reverse("runs:audit")))
    assert "revoked" in audit
    assert "Share link" in audit


def test_the_link_is_shown_once(editor_client: Client, runs: tuple[Run, Run]) -> None:
    path = share(editor_client, subject(runs))
    assert path not in editor_client.get(reverse("runs:share-list")).text


def test_a_link_that_waits_to_be_shown_cannot_be_read_in_the_database(
    editor_client: Client, runs: tuple[Run, Run]
) -> None:
    fields, listed = subject(runs, "run"), reverse("runs:share-list")
    page = editor_client.get(reverse("runs:share-new"), fields).text
    editor_client.post(reverse("runs:share-new"), sent(page, fields))
    kept = repr(Session.objects.get().get_decoded())
    assert "/s/" not in kept
    editor_client.head(listed)
    shown = re.search(r"/s/([\w-]{43})/", editor_client.get(listed).text)
    assert shown
    assert shown[1] not in kept


@pytest.mark.parametrize("role", ["viewer", "reviewer"])
def test_who_may_not_share_gets_no_button_and_a_clear_refusal(
    runs: tuple[Run, Run], role: str
) -> None:
    client = make_client(make_member(role))
    for address in ("/shares/", "/shares/new/", "/shares/preview/"):
        assert client.get(address, subject(runs)).status_code == 403
    slug = runs[0].suite.slug
    pages = (
        f"/compare/?baseline={slug}:1&candidate={slug}:2",
        f"/suites/{slug}/runs/2/",
        f"/suites/{slug}/runs/2/KEY-mark/1/",
    )
    editor = make_client(make_member("editor"))
    for page in pages:
        assert "/shares/" not in client.get(page).text
        found = re.search(r'href="(/shares/new/\?[^"]+)"', editor.get(page).text)
        assert found, page
        shown = editor.get(html.unescape(found[1]))
        assert "What a stranger sees" in text_of(shown)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "from its own page"),
        ({"kind": "run", "run": "nobody:1"}, "not there any more"),
        ({"kind": "run", "run": "x"}, "not there any more"),
        ({"kind": "result", "run": "suite-mark-slug:1", "case": "C-404"}, "not there"),
        (
            {
                "kind": "result",
                "run": "suite-mark-slug:1",
                "case": "KEY-mark",
                "repetition": "9" * 30,
            },
            "not there",
        ),
        (
            {
                "kind": "comparison",
                "baseline": "suite-mark-slug:1",
                "candidate": "suite-mark-slug:1",
            },
            "twice",
        ),
    ],
)
def test_what_is_not_there_is_not_shared(
    editor_client: Client, runs: tuple[Run, Run], fields: dict[str, str], reason: str
) -> None:
    assert reason in text_of(editor_client.get(reverse("runs:share-new"), fields))
    assert reason in text_of(editor_client.get(reverse("runs:share-preview"), fields))
    assert editor_client.post(reverse("runs:share-new"), fields).status_code == 422


def test_what_goes_on_is_shared_when_it_is_over(
    editor_client: Client, runs: tuple[Run, Run]
) -> None:
    Run.objects.filter(pk=runs[1].pk).update(status="running")
    page = text_of(editor_client.get(reverse("runs:share-new"), subject(runs, "run")))
    assert "Share it when it is over" in page


def test_the_address_of_a_link_is_the_one_people_type(
    editor_client: Client, runs: tuple[Run, Run], settings: Settings
) -> None:
    fields, address = subject(runs, "run"), reverse("runs:share-new")

    def made(**headers: str) -> str:
        page = editor_client.get(address, fields).content.decode()
        editor_client.post(address, sent(page, fields), headers=headers)
        listed = editor_client.get(reverse("runs:share-list")).text
        return re.findall(r'value="([^"]+)/s/', listed)[0]

    proxied = {"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "https"}
    assert made(**proxied) == "http://testserver"
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    assert made(**proxied, Host="testserver").startswith("https://testserver")
    settings.SITE_URL = "https://evals.example.com/"
    assert made(**proxied) == "https://evals.example.com"


def test_links_are_listed_page_by_page_in_two_queries_at_most(
    editor: User, editor_client: Client, django_assert_max_num_queries: Any
) -> None:
    links = [
        ShareLink(token_hash=str(n), kind="run", title=f"Link {n}", created_by=editor, frozen={})
        for n in range(60)
    ]
    ShareLink.objects.bulk_create(links)
    address = reverse("runs:share-list")
    with django_assert_max_num_queries(9):
        first = editor_client.get(address).text
    assert "Link 59<" in first.replace(" <small", "<")
    later = re.search(r'href="(\?after=\d+)"', first)
    assert later
    second = text_of(editor_client.get(address + later[1]))
    assert "Link 9 run" in second
    assert "Link 10 run" not in second
