"""How the pages behind links are served: who may open them, what they keep to themselves, and for how long."""

from __future__ import annotations

import hashlib
import html
import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import Settings

from evaluators.models import AuditEntry
from runs.execution.reaper import reap
from runs.models.results import Result
from runs.models.runs import Run
from runs.models.sharing import ShareLink, token_hash
from tests.sharing.linked import sent, share, subject
from tests.support.factories import make_case, make_result, make_run, make_suite
from tests.support.white_space import text_of

pytestmark = pytest.mark.django_db


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
    assert told["og:description"].startswith("Pass rate and mean score regressed. ")
    assert told["og:description"].endswith(
        " Both gates of #2 failed: mean score 40.0% of 80% needed, pass rate 0.0% of 100% needed."
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
    # Find the link, count the view, look for an entry of the audit and at its rows: no session, no member.
    client.get(path)
    for visitor in (client, editor_client):
        with django_assert_max_num_queries(5):
            response = visitor.get(path, headers={"cookie": cookies} if cookies else {})
        assert not response.cookies
        assert "evalsite_" not in response.text
    assert client.get(path).content == editor_client.get(path).content
    for address in ("/s/wrong/", f"{path}download", "/s/a/b/c"):
        assert not editor_client.get(address, headers={"cookie": "evalsite_session=x"}).cookies


def test_no_copy_of_a_closed_link_is_kept(
    editor_client: Client, client: Client, runs: tuple[Run, Run]
) -> None:
    expired, revoked, open_ = (share(editor_client, subject(runs), "traces") for _ in range(3))
    links = list(ShareLink.objects.order_by("pk"))
    ShareLink.objects.filter(pk=links[0].pk).update(expires_at=timezone.now())
    editor_client.post(reverse("runs:share-revoke", args=[links[1].pk]))

    reap(now=timezone.now())
    kept = [str(link.frozen) for link in ShareLink.objects.order_by("pk")]
    assert ["OUTPUT-mark" in copy for copy in kept] == [False, False, True]
    assert [client.get(path).status_code for path in (expired, revoked, open_)] == [404, 404, 200]
    assert editor_client.get(reverse("runs:share-list")).text.count("Revoked") == 1


def test_a_link_that_expired_by_a_clock_that_was_ahead_stays_closed(
    editor_client: Client, client: Client, runs: tuple[Run, Run]
) -> None:
    path = share(editor_client, subject(runs))
    reap(now=timezone.now() + timedelta(days=400))
    assert [client.get(address).status_code for address in (path, f"{path}download")] == [404, 404]


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
        *(f"/s/{token_hash(right)}/", f"/s/{links[1].pk}/", "/s/wrong/download", "/s/"),
    ]
    answers = [client.get(address) for address in addresses]
    alike = {(one.status_code, one.content, repr(sorted(one.headers.items()))) for one in answers}
    assert len(alike) == 1
    assert answers[0].status_code == 404
    assert "This link does not work" in text_of(answers[0])
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
    # Who calls themselves a bot leaves a trace as well.
    counts = '<td class="num">2</td><td class="num">3</td>'
    assert counts in editor_client.get("/shares/").text
    opened = AuditEntry.objects.filter(action="open").order_by("id")
    assert [(entry.actor_name, entry.after) for entry in opened] == [
        ("a visitor", {"counted": False}),
        ("a visitor", {"counted": True}),
    ]


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
    page = client.get(path).text
    assert "has since changed" not in page
    # A review that only agrees with the machine is not repeated beside its verdict.
    assert ("with reviews pass" in page, "with reviews fail" in page) == (True, False)
    for result, word in zip(results, reversed(words), strict=True):
        Result.objects.filter(pk=result.pk).update(reviewed_verdict=word)
    assert "has since changed" in client.get(path).text


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
