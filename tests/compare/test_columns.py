"""The table of changed cases as chosen: ordered by any evaluator or metric, with columns, density and views."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from django.test import Client
from django.urls import reverse

from tests.support.factories import (
    make_case,
    make_result,
    make_run,
    make_score,
    make_snapshot,
    make_suite,
    make_target,
)
from tests.support.trees import CHECK, tree

pytestmark = [pytest.mark.django_db, pytest.mark.each_database]

# By case the tone before and now: it fell in C-2, rose in C-1, and C-3 has it in one run only.
TONES = {"C-1": (0.2, 0.9), "C-2": (0.8, 0.1), "C-3": (0.5, None), "C-4": (0.4, 0.4)}


def make_pair(
    slug: str = "support", tones: dict[str, tuple[float | None, float | None]] = TONES
) -> None:
    """Make two runs with an evaluator, a negated one and a metric that is 5 before and 1 now."""
    suite, target = make_suite(slug=slug, cases=0), make_target()
    evaluators = [{**CHECK, "name": "tone"}, {**CHECK, "name": "rude", "negate": True}]
    snapshot = make_snapshot(suite=suite, target=target, tree=tree(*evaluators))
    cases = {
        key: make_case(suite=suite, key=key, tags=["late"], metadata={"channel": "chat"})
        for key in tones
    }
    for place in (0, 1):
        run = make_run(suite=suite, target=target, snapshot=snapshot)
        for key, case in cases.items():
            result = make_result(
                run=run, case=case, verdict="pass", score=0.9, input_tokens=100 * (1 + place)
            )
            make_score(result=result, path="rude", score=0.25 + place / 2)
            parts = {"metrics": [{"key": "clarity", "score": 5 - 4 * place}]}
            make_score(result=result, path="rubric", score=0.5, kind="metrics_judge", details=parts)
            if (tone := tones[key][place]) is not None:
                make_score(result=result, path="tone", score=tone)


PAIR = {"baseline": "support:1", "candidate": "support:2", "show": "all"}


def table(client: Client, name: str = "runs:compare", **query: str) -> str:
    address = f"{reverse(name)}?{urlencode(PAIR | query)}"
    headers = {"HX-Request": "true", "HX-Target": "changes"}
    return client.get(address, headers=headers).text


def keys(page: str) -> list[str]:
    return re.findall(r"<code>(C-\d+)</code>", page)


def heads(page: str) -> list[str]:
    found = re.findall(
        r"<th\s[^>]*scope=\"col\"[^>]*>(.*?)</th>", page.split("<tbody")[0], re.DOTALL
    )
    return [" ".join(re.sub(r"<[^>]*>", " ", head).split()) for head in found]


def first_row(page: str) -> list[str]:
    row = page.split("<tbody")[1].split("</tr>")[0]
    cells = re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL)
    return [" ".join(re.sub(r"<[^>]*>", " ", cell).split()) for cell in cells]


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("evaluator.tone", ["C-2", "C-4", "C-1", "C-3"]),
        ("-evaluator.tone", ["C-1", "C-4", "C-2", "C-3"]),
        ("metric.clarity", ["C-1", "C-2", "C-3", "C-4"]),
        ("-tokens", ["C-1", "C-2", "C-3", "C-4"]),
        ("evaluator.gone", ["C-1", "C-2", "C-3", "C-4"]),
    ],
)
def test_cases_are_sorted_by_what_changed_and_those_of_one_run_come_last(
    viewer_client: Client, sort: str, order: list[str]
) -> None:
    make_pair()
    page = table(viewer_client, sort=sort)
    assert keys(page) == order
    assert (
        "Not in these runs, so not shown: evaluator.gone"
        in " ".join(re.sub("<[^>]*>", "", page).split())
    ) == ("gone" in sort)
    if "gone" not in sort:
        direction = "descending" if sort.startswith("-") else "ascending"
        assert f'aria-sort="{direction}"' in page
        # Results that are opened from the list are stepped through in its order, and its file has it too.
        place = {**PAIR, "sort": sort, "case": order[0]}
        step = viewer_client.get(f"{reverse('runs:compare-step')}?{urlencode(place)}").text
        assert f"case={order[1]}" in html.unescape(step)
        file = viewer_client.get(
            f"{reverse('runs:comparison-table')}?{urlencode(PAIR | {'sort': sort})}"
        )
        lines = b"".join(file).decode("utf-8-sig").splitlines()
        assert [line.split(",")[0] for line in lines[1:]] == order


def test_columns_have_the_order_of_the_address_and_values_of_both_runs(
    viewer_client: Client,
) -> None:
    make_pair()
    chosen = "case,evaluator.tone,evaluator.rude,metric.clarity,tokens,tag,meta.channel"
    page = table(viewer_client, columns=chosen, sort="case", density="compact")
    assert heads(page) == ["Case", "tone", "rude", "clarity", "Tokens", "Tags", "channel"]
    assert first_row(page) == [
        *("C-1 Case C-1", "0.20 → 0.90", "0.75 → 0.25", "5.0 → 1.0", "+100.0%", "late", "chat"),
    ]
    assert 'data-density="compact"' in page
    # What the table is sorted by is shown, and every address of the table says how it is displayed.
    shown = table(viewer_client, columns="verdict", sort="-cost")
    assert heads(shown) == ["Case", "Cost", "Verdict #1 → #2"]
    assert "columns=verdict" in re.search(r'id="chip-improved"\s+href="([^"]*)"', shown)[1]


def test_the_choices_set_the_address_and_views_keep_it(viewer_client: Client) -> None:
    make_pair()
    choices = table(
        viewer_client, "runs:compare-display", columns="case,score", up="score", q="late"
    )
    assert re.findall(r'value="([^"]*)"\s+checked', choices.split("columns-chosen")[1]) == [
        *("score", "case"),
    ]
    offered = set(re.findall(r'name="column"\s+value="([^"]*)"', choices))
    assert {"evaluator.tone", "evaluator.rude", "metric.clarity", "meta.channel", "tool"} <= offered
    assert "Group by" not in choices
    sent = {"by": "evaluator.tone", "order": "down", "density": "compact", "column": "verdict"}
    address = f"{reverse('runs:compare')}?{urlencode(PAIR | sent)}&column=case"
    swap = viewer_client.get(address, headers={"HX-Request": "true", "HX-Target": "changes"})
    screen = urlsplit(swap["HX-Push-Url"]).query
    displayed = {"sort": "-evaluator.tone", "columns": "verdict,case", "density": "compact"}
    assert dict(parse_qsl(screen)) == PAIR | displayed
    assert heads(swap.text) == ["Verdict #1 → #2", "Case", "tone"]
    views = reverse("runs:suite-views", args=("support",))
    place = {**PAIR, "on": "comparison", "name": "Tone first", "screen": screen}
    opened = viewer_client.get(viewer_client.post(views, place)["Location"])
    assert heads(opened.text.split('id="changes"')[1]) == ["Verdict #1 → #2", "Case", "tone"]
    assert "modified" not in opened.text.split('id="view-state"')[1].split("</p>")[0]


@pytest.mark.parametrize(
    "query",
    [
        {"sort": "evaluator.tone"},
        {"columns": "evaluator.tone,evaluator.rude,metric.clarity,tokens,tool,tag"},
    ],
)
def test_queries_do_not_grow_with_cases(
    viewer_client: Client,
    django_assert_max_num_queries: Callable[[int], AbstractContextManager[Any]],
    query: dict[str, str],
) -> None:
    for count in (3, 60):
        slug = f"of-{count}"
        make_pair(slug, {f"C-{number}": (0.1, 0.2) for number in range(count)})
        pair = {"baseline": f"{slug}:1", "candidate": f"{slug}:2"}
        with django_assert_max_num_queries(31):
            assert len(keys(table(viewer_client, **query, **pair))) == count
