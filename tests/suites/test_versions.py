"""The pages of versions: what each changed, what it said, what differs between two, bringing one back."""

from __future__ import annotations

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from runs.models.suites import Suite, SuiteVersion
from runs.suites.drafts import change_draft, get_draft, save_draft
from runs.suites.edits import Add, Configure, Describe, Move, SetPolicy, SetWeight
from runs.suites.services import record_version
from tests.support.factories import make_case, make_model, make_run, make_suite, make_user

pytestmark = pytest.mark.django_db
LIST = "/suites/shop/versions/"
COMPARE = f"{LIST}compare/"
ODD = '<script>alert("x")</script>'


@pytest.fixture
def shop() -> Suite:
    """Make a suite at its third version: cases were added, then a draft of ada's was saved."""
    ada = make_user(name="ada")
    suite = make_suite(slug="shop", title="The shop")
    make_case(suite=suite, key="C-1", position=1)
    old = make_case(suite=suite, key="C-2", position=2)
    record_version(suite, author=ada, gathers=True)
    old.is_current = False
    old.save()
    make_case(
        suite=suite, key="C-2", revision=2, position=2, criteria="Short", content_hash="other"
    )
    make_case(suite=suite, key=ODD[:8], position=3)
    draft = get_draft(suite, ada)
    operations = (
        *(SetWeight("n2", 4), SetPolicy({"pass_threshold": 0.85, "count_reviews": True})),
        *(Describe(description=f"For the {ODD} desk"), Configure("n2", {"prompt": "Is it rude?"})),
        *(Add("composite", "n1", name="facts"), Move("n3", "n4")),
    )
    draft = change_draft(draft, draft.stamp, *operations)
    save_draft(draft, draft.stamp, note=f"Tone counts {ODD}")
    return Suite.objects.get(pk=suite.pk)


def page(client: Client, address: str, status: int = 200) -> str:
    response = client.get(address)
    assert response.status_code == status
    found = response.content.decode()
    assert "<script>alert" not in found
    return " ".join(found.split())


class TestList:
    def test_each_version_says_who_what_and_which_runs(
        self, viewer_client: Client, shop: Suite
    ) -> None:
        make_run(suite=shop)
        make_run(suite=shop)
        found = page(viewer_client, LIST)
        assert "Tone counts &lt;script&gt;" in found
        assert "1 case added, 1 case changed, " in found
        assert "2 evaluators added, 1 evaluator changed, 1 evaluator moved" in found
        assert "2 policy values changed, 1 text changed" in found
        assert "2 cases added" in found
        assert "first version" in found
        assert found.index(">v3</a>") < found.index(">v2</a>") < found.index(">v1</a>")
        assert '/suites/shop/runs/2/">#2</a> <span class="quiet">and 1 more' in found
        assert 'href="/suites/shop/file/2/"' in found

    def test_long_lists_are_paged_in_the_same_number_of_queries(
        self,
        viewer_client: Client,
        shop: Suite,
        django_assert_max_num_queries: DjangoAssertNumQueries,
    ) -> None:
        content = shop.versions.get(number=3).content
        for number in range(4, 30):
            SuiteVersion.objects.create(
                suite=shop, number=number, content=content, content_hash="x", note=f"n{number}"
            )
        with django_assert_max_num_queries(12):
            found = page(viewer_client, LIST)
        assert "?after=10" in found
        assert ">n10<" in found
        assert ">n9<" not in found
        assert "nothing" in found
        older = page(viewer_client, f"{LIST}?after=10")
        assert ">n9<" in older
        assert "first version" in older
        assert "No older versions" in page(viewer_client, f"{LIST}?after=1")

    def test_a_suite_that_keeps_none_says_so(self, viewer_client: Client, shop: Suite) -> None:
        shop.versions.all().delete()
        assert "No versions yet" in page(viewer_client, LIST)


class TestReading:
    def test_a_version_shows_what_it_was(self, viewer_client: Client, shop: Suite) -> None:
        make_run(suite=shop)
        found = page(viewer_client, f"{LIST}3/")
        assert "0.85" in found
        assert "Override verdicts" in found
        assert "For the &lt;script&gt;" in found
        assert "?revision=2" in found
        assert "/suites/shop/runs/1/" in found
        assert "restore" not in found

        early = page(viewer_client, f"{LIST}2/")
        assert "0.80" in early
        assert "changed or removed" in early
        assert f"{COMPARE}?from=2&amp;to=3" in early
        assert "This version has no cases" in page(viewer_client, f"{LIST}1/")

    def test_versions_and_suites_there_are_not(self, viewer_client: Client, shop: Suite) -> None:
        for address in (f"{LIST}9/", f"{COMPARE}?from=1&to=9", "/suites/none/versions/"):
            page(viewer_client, address, status=404)
        assert shop.version == 3

    def test_a_judge_that_is_gone_is_said(self, viewer_client: Client, shop: Suite) -> None:
        version = shop.versions.get(number=2)
        version.content["judge"] = "strict"
        version.save()
        assert "Its judge no longer exists" in page(viewer_client, f"{LIST}2/")


class TestComparing:
    def test_every_value_is_told_with_old_and_new(self, viewer_client: Client, shop: Suite) -> None:
        found = page(viewer_client, f"{COMPARE}?from=2&to=3")
        for words in (
            *("Pass from", "0.80", "0.85", "Human reviews override verdicts"),
            *("<code>tone</code>", "×2", "×4", "<ins>rude</ins>"),
            *("<code>facts/refund</code>", "moved", "from <code>refund</code>"),
            *("Differs in", "criteria", "?revision=1", "?revision=2"),
        ):
            assert words in found, words
        back = page(viewer_client, f"{COMPARE}?from=3&to=2")
        assert "removed" in back

    def test_nothing_differs_from_itself(self, viewer_client: Client, shop: Suite) -> None:
        assert "No differences" in page(viewer_client, f"{COMPARE}?from=2&to=2")

    def test_of_very_many_long_texts_the_first_are_compared(
        self, viewer_client: Client, shop: Suite
    ) -> None:
        for number, word in ((4, "kind"), (5, "rude")):
            prompt = "It is so.\n" * 290 + f"Is it {word}?"
            leaves = [
                {"name": f"e{n}", "kind": "llm_judge", "config": {"prompt": prompt}}
                for n in range(60)
            ]
            content = shop.versions.get(number=3).content
            content["evaluators"] |= {"children": leaves}
            SuiteVersion.objects.create(
                suite=shop, number=number, content=content, content_hash=word
            )

        found = page(viewer_client, f"{COMPARE}?from=4&to=5")

        compared = found.count("<ins>rude</ins>")
        assert 10 <= compared < 60
        assert found.count("Not compared word by word") == 60 - compared
        assert found.count("Is it rude?") == 60 - compared

    def test_two_ticked_versions_become_an_address(
        self, viewer_client: Client, shop: Suite
    ) -> None:
        response = viewer_client.get(f"{COMPARE}?version=3&version=1")
        assert response["Location"] == f"{COMPARE}?from=1&to=3"
        for ticked in ("version=3", "version=1&version=2&version=3", "version=x&version=3"):
            response = viewer_client.get(f"{COMPARE}?{ticked}", follow=True)
            assert "Tick two versions to compare them." in response.content.decode()

    def test_of_many_cases_a_page_is_shown(self, viewer_client: Client, shop: Suite) -> None:
        version = shop.versions.get(number=3)
        many = [{"key": f"K-{n:03}", "revision": 1, "hash": str(n)} for n in range(250)]
        version.content["cases"] = many
        version.save()
        found = page(viewer_client, f"{COMPARE}?from=2&to=3")
        assert "1 to 100 of 252" in found
        assert "K-099" in found
        assert "K-100" not in found
        assert "K-100" in page(viewer_client, f"{COMPARE}?from=2&to=3&case=100")
        assert "no longer stored" in page(viewer_client, f"{LIST}3/?case=200")


class TestRestoring:
    def test_it_shows_what_it_changes_and_does_it_once(
        self, editor_client: Client, shop: Suite
    ) -> None:
        address = f"{LIST}2/restore/"
        found = page(editor_client, address)
        assert "v3 stays" in found
        assert "0.85" in found

        sent = {"seen": "3", "note": "Too harsh"}
        response = editor_client.post(address, sent, follow=True)
        said = response.content.decode()
        assert "v4 has the content of v2. Restored version 2: Too harsh." in said
        again = editor_client.post(address, sent)
        assert again.status_code == 422
        assert "Version 4 was saved since this page was opened" in again.content.decode()
        shop.refresh_from_db()
        assert (shop.version, shop.policy.pass_threshold) == (4, 0.8)
        assert "Nothing to restore" in page(editor_client, address)

    def test_what_is_in_the_way_is_said(self, editor_client: Client, shop: Suite) -> None:
        version = shop.versions.get(number=2)
        version.content["judge"] = "strict"
        version.save()
        response = editor_client.post(f"{LIST}2/restore/", {"seen": "3"})
        assert response.status_code == 422
        said = response.content.decode()
        assert "&#x27;strict&#x27;" in said
        assert "Not restored" in said
        make_model(slug="strict")
        assert editor_client.post(f"{LIST}2/restore/", {"seen": "3"}).status_code == 302

    def test_viewers_read_and_editors_restore(
        self, viewer_client: Client, editor_client: Client, shop: Suite
    ) -> None:
        assert viewer_client.get(f"{LIST}2/restore/").status_code == 403
        assert viewer_client.post(f"{LIST}2/restore/", {"seen": "3"}).status_code == 403
        assert f"{LIST}2/restore/" in page(editor_client, f"{LIST}2/")
        assert f"{LIST}3/restore/" not in page(editor_client, f"{LIST}3/")
