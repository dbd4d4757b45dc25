"""Saved views: saved from what is on screen, shared, as defaults, changed by two people, and gone."""

from __future__ import annotations

import html
import re
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from evalsite.access.members import erase_member, personal_data
from evaluators.models import AuditEntry
from runs.models.runs import Run
from runs.models.saved_views import SavedView
from runs.models.suites import Suite
from runs.saved_views import services
from tests.support.factories import make_scored_run, make_suite

pytestmark = [pytest.mark.django_db, pytest.mark.each_database]


@pytest.fixture
def run() -> Run:
    return make_scored_run(verdicts=["pass", "fail", "error"])


def page_of(run: Run) -> str:
    return reverse("runs:run", args=(run.suite.slug, run.number))


def rows(run: Run, query: str = "") -> str:
    return reverse("runs:run-results", args=(run.suite.slug, run.number)) + query


def views_of(suite: Suite) -> str:
    return reverse("runs:suite-views", args=(suite.slug,))


def save(
    client: Client, run: Run, name: str, screen: str = "verdict=fail", **sent: str
) -> SavedView:
    data = {"on": "results", "run": str(run.number), "name": name, "screen": screen, **sent}
    response = client.post(views_of(run.suite), data)
    assert response.status_code == 302, response.text
    number = parse_qs(urlsplit(response["Location"]).query)["view"][0]
    return SavedView.objects.get(pk=number)


def menu(client: Client, run: Run, query: str = "") -> str:
    here = f"{views_of(run.suite)}?on=results&run={run.number}{query}"
    return client.get(here, headers={"HX-Request": "true"}).text


def links(page: str) -> list[str]:
    return [html.unescape(link) for link in re.findall(r'href="([^"]*\bview=\d[^"]*)"', page)]


def test_a_view_is_an_address_that_says_everything(viewer_client: Client, run: Run) -> None:
    screen = "?verdict=fail&sort=-cost&columns=case,cost&density=compact&group=tag"
    menu_page = menu(viewer_client, run, "&" + screen[1:] + "&view=&tag=&after=1~2")
    kept = re.search(r'name="screen" value="([^"]*)"', menu_page)
    assert kept is not None
    view = save(viewer_client, run, "  Costly   failures ", html.unescape(kept[1]))
    assert view.name == "Costly failures"
    (link,) = links(menu(viewer_client, run))
    assert urlsplit(link).path == page_of(run)
    assert {name: value for name, (value,) in parse_qs(urlsplit(link).query).items()} == {
        **{"view": str(view.pk), "verdict": "fail", "sort": "-cost", "group": "tag"},
        **{"columns": "case,cost", "density": "compact"},
    }
    shown = viewer_client.get(link).text
    assert "Costly failures" in shown
    assert "modified" not in shown
    # The screen differs from the view, which stays in the address of every step.
    changed = viewer_client.get(rows(run, f"?verdict=error&view={view.pk}")).text
    assert "modified" in changed
    assert link in links(changed)
    # It opens on the last run from anywhere, and the palette finds it.
    address = reverse("runs:saved-view", args=(run.suite.slug, view.pk))
    assert viewer_client.get(address)["Location"] == link
    places = viewer_client.get(reverse("runs:palette"), {"q": "costly"}).json()["places"]
    assert [place["url"] for place in places] == [address]


def test_views_are_their_owners_until_they_are_shared_by_an_editor(
    viewer_client: Client, reviewer_client: Client, editor_client: Client, run: Run
) -> None:
    own = save(viewer_client, run, "Mine", is_shared="on", is_default="on")
    assert not own.is_shared
    shared = save(editor_client, run, "Ours", is_shared="on")
    assert "Mine" not in menu(reviewer_client, run)
    assert "Ours" in menu(reviewer_client, run)
    audit = editor_client.get(reverse("runs:audit-file")).getvalue().decode()
    assert (audit.count('"create"'), "Mine" in audit, "Ours" in audit) == (2, False, True)
    place = (run.suite.slug, own.pk)
    for name in ("saved-view", "saved-view-edit"):
        assert editor_client.get(reverse(f"runs:{name}", args=place)).status_code == 404
    for name in ("saved-view-update", "saved-view-delete"):
        assert editor_client.post(reverse(f"runs:{name}", args=place)).status_code == 404
    # An address with another member's view shows the rest of it.
    note = reviewer_client.get(rows(run, f"?view={own.pk}&verdict=fail")).text
    assert "deleted or is not shared" in note
    assert "C-002" in note
    assert "C-001" not in note
    # Who may not change the suite does not change what others see.
    place = (run.suite.slug, shared.pk)
    assert viewer_client.get(reverse("runs:saved-view-edit", args=place)).status_code == 403
    viewer_client.post(reverse("runs:saved-view-delete", args=place))
    viewer_client.post(
        reverse("runs:saved-view-update", args=place), {"screen": "q=x", "revision": "1"}
    )
    shared.refresh_from_db()
    assert shared.query == "verdict=fail"


def test_the_api_lists_the_views_that_a_member_sees(
    viewer_client: Client, editor_client: Client, run: Run
) -> None:
    own = save(viewer_client, run, "Mine", is_own_default="on")
    shared = save(editor_client, run, "Ours", is_shared="on", is_own_default="on")
    save(editor_client, run, "Theirs")
    address = f"/api/suites/{run.suite.slug}/views"
    first, second = viewer_client.get(address).json()["results"]
    assert [first["name"], second["name"]] == ["Ours", "Mine"]
    # The own default of another member is nothing to the reader.
    assert (first["is_shared"], first["is_own_default"]) == (True, False)
    assert second == {
        **{"id": own.pk, "page": "results", "name": "Mine", "query": "verdict=fail"},
        **{"owner": own.owner.username, "is_shared": False, "is_default": False},
        **{"is_own_default": True, "changed_at": second["changed_at"]},
        "url": reverse("runs:saved-view", args=(run.suite.slug, own.pk)),
    }
    rest = viewer_client.get(f"{address}?limit=1").json()["next"]
    assert [row["id"] for row in viewer_client.get(rest).json()["results"]] == [own.pk]
    assert viewer_client.get(f"{address}?page=results").json()["results"]
    assert viewer_client.get(f"{address}?page=nowhere").status_code == 400
    assert viewer_client.get(first["url"])["Location"].count(f"view={shared.pk}") == 1


def test_a_default_opens_where_the_address_names_nothing(
    viewer_client: Client, editor_client: Client, run: Run
) -> None:
    suite_view = save(editor_client, run, "Failures", is_default="on")
    assert suite_view.is_shared
    opened = viewer_client.get(page_of(run))
    assert opened["Location"] == f"{page_of(run)}?view={suite_view.pk}&verdict=fail"
    # Without a filter the address says that no view is meant, so that a reload shows the same.
    plain = viewer_client.get(rows(run))
    assert plain["HX-Push-Url"].endswith("?view=all")
    assert viewer_client.get(f"{page_of(run)}?view=all").status_code == 200
    # A member's own default goes before that of the suite; there is one of each.
    own = save(viewer_client, run, "Errors", "verdict=error", is_own_default="on")
    assert f"view={own.pk}" in viewer_client.get(page_of(run))["Location"]
    assert f"view={suite_view.pk}" in editor_client.get(page_of(run))["Location"]
    other = save(editor_client, run, "Costly", "sort=-cost", is_default="on")
    assert list(SavedView.objects.filter(is_default=True)) == [other]
    # A default that is no longer shared is none.
    edit = reverse("runs:saved-view-edit", args=(run.suite.slug, other.pk))
    editor_client.post(edit, {"name": "Costly", "revision": "1"})
    assert editor_client.get(page_of(run)).status_code == 200


LIMITED = "&cases=shared&max_pass_rate_drop=0.5"


def test_views_of_a_comparison_keep_its_filter_and_order_for_any_two_runs(
    viewer_client: Client, editor_client: Client, run: Run
) -> None:
    make_scored_run(suite=run.suite, verdicts=["pass", "pass", "fail"])
    slug = run.suite.slug
    pair = f"baseline={slug}:1&candidate={slug}:2"
    here = f"{reverse('runs:compare')}?{pair}"
    page = viewer_client.get(f"{here}{LIMITED}&show=improved&sort=difference&q=C-002").text
    opened = html.unescape(re.search(r'hx-get="([^"]*on=comparison[^"]*)"', page)[1])
    # Which runs are compared, and by which limits, is no part of the view, but stays in its address here.
    sent = dict(parse_qsl(urlsplit(opened).query))
    assert sent == {"on": "comparison", **dict(parse_qsl(pair + LIMITED))}
    screen = f"{pair}{LIMITED}&show=improved&sort=difference&q=C-002&page=2"
    view = save(editor_client, run, "Better", screen, **sent, is_default="on")
    assert view.page == "comparison"
    assert view.query == "q=C-002&show=improved&sort=difference"
    (link, *_) = links(viewer_client.get(opened, headers={"HX-Request": "true"}).text)
    assert link == f"{here}{LIMITED}&view={view.pk}&{view.query}"
    shown = viewer_client.get(link).text
    assert f"View <strong><bdi>{view.name}" in shown
    assert "modified" not in shown
    assert "C-002" in shown
    assert "modified" in viewer_client.get(f"{here}&view={view.pk}&show=all").text
    # As the default it opens for these two runs, and for the last one and what it is compared with.
    assert viewer_client.get(here)["Location"] == f"{here}&view={view.pk}&{view.query}"
    assert viewer_client.get(here + LIMITED)["Location"] == link
    address = reverse("runs:saved-view", args=(slug, view.pk))
    found = dict(parse_qsl(viewer_client.get(address, follow=True).request["QUERY_STRING"]))
    assert found == dict(parse_qsl(f"{pair}&view={view.pk}&{view.query}"))
    # The chip of the usual filter leaves the view too.
    plain = viewer_client.get(f"{here}&view=all").text
    assert f'"{here[9:]}&view=all#changes"' in html.unescape(plain)
    listed = viewer_client.get(f"/api/suites/{slug}/views?page=comparison").json()["results"]
    assert [row["page"] for row in listed] == ["comparison"]
    assert viewer_client.get(page_of(run)).status_code == 200


def test_views_of_the_cases_of_a_suite(
    viewer_client: Client, editor_client: Client, run: Run
) -> None:
    here = reverse("runs:suite-cases", args=(run.suite.slug,))
    view = save(editor_client, run, "Failing", "verdict=fail&sort=key", on="cases", is_default="on")
    shown = viewer_client.get(here, follow=True)
    assert shown.redirect_chain == [(f"{here}?view={view.pk}&sort=key&verdict=fail", 302)]
    assert f"View <strong><bdi>{view.name}" in shown.text
    assert "C-001" not in shown.text
    rows_url = reverse("runs:case-rows", args=(run.suite.slug,))
    changed = viewer_client.get(f"{rows_url}?verdict=pass&sort=key&view={view.pk}")
    assert "modified" in changed.text
    plain = viewer_client.get(rows_url)
    assert plain["HX-Push-Url"] == f"{here}?view=all"
    assert "C-001" in viewer_client.get(f"{here}?view=all").text
    # A change of tags comes back to the list that it was made from.
    tagged = {"case": "C-002", "tags": "late", "action": "tag", "view": "all"}
    back = editor_client.post(reverse("runs:case-bulk", args=(run.suite.slug,)), tagged)
    assert back["Location"] == f"{here}?view=all"
    for kind in ("results", "cases"):
        page = viewer_client.get(f"{views_of(run.suite)}?on={kind}").text
        assert links(page) == [f"{here}?view={view.pk}&sort=key&verdict=fail"]


def test_two_editors_do_not_overwrite_what_they_have_not_seen(
    editor_client: Client, admin_client: Client, run: Run
) -> None:
    view = save(editor_client, run, "Ours", is_shared="on")
    place = (run.suite.slug, view.pk)
    update = reverse("runs:saved-view-update", args=place)
    editor_client.post(update, {"screen": "q=first", "revision": "1", "run": str(run.number)})
    refused = admin_client.post(
        update, {"screen": "q=second", "revision": "1", "run": str(run.number)}, follow=True
    )
    assert "changed this view meanwhile" in refused.text
    # What was on screen stays there.
    assert 'value="second"' in refused.text
    edit = reverse("runs:saved-view-edit", args=place)
    refused = admin_client.post(edit, {"name": "Theirs", "revision": "1"})
    assert refused.status_code == 422
    assert "changed this view meanwhile" in refused.text
    view.refresh_from_db()
    assert (view.name, view.query, view.is_shared) == ("Ours", "q=first", True)
    # The form has the present revision now, so sending it again is meant.
    sent = re.search(r'name="revision" value="(\d+)"', refused.text)
    assert sent is not None
    admin_client.post(edit, {"name": "Theirs", "revision": sent[1], "is_shared": "on"})
    editor_client.post(reverse("runs:saved-view-delete", args=place))
    assert admin_client.post(edit, {"name": "Late", "revision": "3"}).status_code == 404
    actions = AuditEntry.objects.filter(object_type="saved_view").order_by("pk")
    assert [entry.action for entry in actions] == [
        *("create", "change", "change", "delete"),
    ]


def test_names_are_refused_or_drawn_as_they_are(
    viewer_client: Client, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(viewer_client, run, "Straße")
    data = {"on": "results", "run": "1", "screen": ""}
    for name, why in (
        ("Straße", "already"),
        ("\u200b \u202e", "readable name"),
        ("", "required"),
        ("x" * 101, "at most 100"),
    ):
        refused = viewer_client.post(views_of(run.suite), {**data, "name": name})
        assert refused.status_code == 422
        assert why in refused.text
    for name in ("<script>alert(1)</script>", "{{ 7 }} \"' &", "\u202egnol", "👩‍💻 日本"):
        save(viewer_client, run, name)
    page = viewer_client.get(views_of(run.suite)).text + menu(viewer_client, run)
    assert "<script>alert" not in page
    assert "<bdi>\u202egnol</bdi>" in page
    long = {**data, "name": "Long", "screen": "q=" + "x" * 5000}
    assert "at most 4,000" in viewer_client.post(views_of(run.suite), long).text
    # What is no parameter of a page is no part of a view: no place to go to, and no other run.
    odd = "javascript:alert(1)=x&baseline=a:1&run=9&on=cases&view=1&q=%00&tag=a"
    assert save(viewer_client, run, "Odd", odd).query == "tag=a"
    monkeypatch.setattr(services, "MAX_VIEWS", SavedView.objects.count())
    assert "Delete one" in viewer_client.post(views_of(run.suite), {**data, "name": "More"}).text


def test_a_view_of_what_is_gone_says_so(viewer_client: Client, run: Run) -> None:
    gone = "columns=case,evaluator.gone,meta.gone&group=nothing&sort=metric.gone"
    view = save(viewer_client, run, "Old", gone)
    (link,) = links(menu(viewer_client, run))
    page = viewer_client.get(link).text
    assert "Not in this run" in page
    assert "C-001" in page
    SavedView.objects.filter(pk=view.pk).update(query="q=gone+%3C+0.5")
    (link,) = links(menu(viewer_client, run))
    assert "cannot be read" in viewer_client.get(link).text


def test_views_go_with_their_owner_and_their_suite(
    viewer: User, viewer_client: Client, editor: User, editor_client: Client, run: Run
) -> None:
    save(viewer_client, run, "Private")
    save(editor_client, run, "Shared", is_shared="on")
    save(editor_client, run, "Own")
    assert personal_data(editor).views == 1
    erase_member(editor, actor=None)
    assert "by <bdi>" in menu(viewer_client, run)
    assert set(SavedView.objects.values_list("name", flat=True)) == {"Private", "Shared"}
    empty = make_suite(cases=0)
    assert "No views yet" in viewer_client.get(views_of(empty)).text


def test_views_of_runs_side_by_side_keep_filter_and_order_for_any_runs(
    viewer_client: Client, editor_client: Client, run: Run
) -> None:
    make_scored_run(suite=run.suite, verdicts=["pass", "pass", "fail"])
    make_scored_run(suite=run.suite, verdicts=["fail", "pass", "fail"])
    slug = run.suite.slug
    here = f"{reverse('runs:compare-many')}?runs={slug}:1,{slug}:3&baseline={slug}:3"
    page = viewer_client.get(f"{here}&q=C-001&sort=-1&differences=1").text
    opened = html.unescape(re.search(r'hx-get="([^"]*on=runs[^"]*)"', page)[1])
    place = dict(parse_qsl(urlsplit(opened).query))
    assert place == {"on": "runs", "runs": f"{slug}:1,{slug}:3", "baseline": f"{slug}:3"}
    screen = f"{urlsplit(here).query}&q=C-001&sort=-1&differences=1&after=x"
    view = save(editor_client, run, "First", screen, **place, is_default="on")
    assert view.query == "differences=1&q=C-001&sort=-1"
    shown = viewer_client.get(here, follow=True)
    assert shown.redirect_chain == [(f"{here}&view={view.pk}&{view.query}", 302)]
    assert f"View <strong><bdi>{view.name}" in shown.text
    assert "modified" not in shown.text
    assert "C-001" in shown.text
    assert "C-002" not in shown.text
    assert "modified" in viewer_client.get(f"{here}&view={view.pk}&q=C-002").text
    assert "C-002" in viewer_client.get(f"{here}&view=all").text
    # From anywhere else it opens on the newest runs of the suite.
    address = reverse("runs:saved-view", args=(slug, view.pk))
    found = viewer_client.get(address, follow=True)
    assert dict(parse_qsl(found.request["QUERY_STRING"])) == {
        "runs": f"{slug}:1,{slug}:2,{slug}:3",
        "view": str(view.pk),
        **dict(parse_qsl(view.query)),
    }
    assert f"View <strong><bdi>{view.name}" in found.text
    listed = viewer_client.get(f"/api/suites/{slug}/views?page=runs").json()["results"]
    assert [row["url"] for row in listed] == [address]
