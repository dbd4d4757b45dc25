"""A run and the charts by tag and metadata: what fails most first, n of N, and what is unlikely to be chance."""

from __future__ import annotations

import html
import re
from typing import Any

import numpy as np
import pytest
import scipy
from django.test import Client
from django.urls import reverse

from evaluators.scoring.significance import evidence_apart, fisher
from runs.models.results import ResultStatus
from runs.models.runs import Run, RunStatus
from tests.support.factories import make_case, make_result, make_run, make_suite, make_target
from tests.support.members import make_client, make_member
from tests.support.white_space import text_of

TABLES = [
    (2, 12, 30, 40),
    (0, 10, 5, 60),
    (10, 10, 12, 25),
    (7, 20, 35, 100),
    (250, 700, 9000, 20000),
]


@pytest.mark.parametrize(("passed", "size", "all_passed", "total"), TABLES)
def test_the_p_of_a_group_is_that_of_scipy(
    passed: int, size: int, all_passed: int, total: int
) -> None:
    others = (all_passed - passed, total - size - (all_passed - passed))
    wanted = scipy.stats.fisher_exact([[passed, size - passed], [*others]]).pvalue
    assert fisher(passed, size, all_passed, total) == pytest.approx(wanted, rel=1e-6)


def test_repeated_cases_are_permuted() -> None:
    group, others = {0.0: 4, 0.5: 5, 1.0: 3}, {0.0: 3, 0.5: 6, 1.0: 21}
    found = evidence_apart(group, others, seed=5)
    wanted = scipy.stats.permutation_test(
        [np.repeat([*shares], [*shares.values()]) for shares in (group, others)],
        lambda one, other: one.mean() - other.mean(),
        n_resamples=20_000,
        rng=1,
    )
    assert found.shared == 12
    assert found.p == pytest.approx(wanted.pvalue, abs=0.01)
    assert evidence_apart({1.0: 9}, {0.0: 90}, seed=1).is_too_little


@pytest.fixture
def client(db: None) -> Client:
    return make_client(make_member("viewer"))


@pytest.fixture
def runs(db: None) -> list[Run]:
    """Make runs of two targets over 36 cases: of twelve refunds two pass, one case has an error, all others pass."""
    suite = make_suite(slug="support")
    cases = [
        make_case(
            suite=suite,
            key=f"C-{n:03}",
            tags=["refund", "none"] if n % 3 == 0 else ["parcel"] if n < 30 else [],
            metadata={"tier": "gold" if n < 6 else "silver", "nested": {"no": 1}},
        )
        for n in range(36)
    ]
    made = []
    for name in ("mild", "strict"):
        target = make_target(name=name)
        run = make_run(suite=suite, target=target, status=RunStatus.COMPLETED)
        for n, case in enumerate(cases):
            if n == 35:
                make_result(
                    run=run, case=case, status=ResultStatus.ERROR, error_stage="target", score=None
                )
                continue
            is_worse = n % 3 == 0 and n > 5
            verdict, score = ("fail", 0.2) if is_worse else ("pass", 0.9)
            make_result(run=run, case=case, verdict=verdict, score=score)
        made.append(run)
    return made


def rows(page: str) -> dict[str, str]:
    found = re.findall(r"<tr>\s*<th scope=\"row\".*?</tr>", page, re.DOTALL)
    texts = [" ".join(html.unescape(re.sub(r"<[^>]+>", " ", row)).split()) for row in found]
    return {re.split(r" \d+(?:\.\d)?%? ", text)[0]: text.replace("\u00a0", " ") for text in texts}


@pytest.mark.django_db
@pytest.mark.each_database
def test_a_run_shows_what_fails_most_with_corrected_evidence(
    client: Client, runs: list[Run]
) -> None:
    place = ("support", runs[0].number)
    answer = client.get(reverse("runs:run-breakdown", args=place))
    shown = rows(answer.text)
    assert [*shown] == ["none", "refund", "No tag", "parcel"]
    assert "12 16.6% 2 of 12, 4.6% to 44.8%" in shown["refund"]
    assert "−79.2 pts unlikely to be chance (p < 0.001)" in shown["refund"]
    # Of four cases without a tag one has an error, which has no score.
    assert "4 75.0% 3 of 4" in shown["No tag"]
    assert "too few cases 0.90 3 of 4" in shown["No tag"]
    assert "method for 3 groups" in text_of(answer)
    # The tag named “none” is not what asks for no tag.
    for name, cases in (("refund", 12), ("none", 12), ("No tag", 4)):
        link = re.search(rf'href="([^"]+)#results-title"\s*>{name}<', answer.text)
        assert link, name
        assert len(re.findall(r'id="case-\d+"', client.get(html.unescape(link[1])).text)) == cases

    by_tier = client.get(reverse("runs:run-breakdown", args=place), {"by": "tier"})
    assert [*rows(by_tier.text)] == ["silver", "gold"]
    assert re.findall(r'<option value="([^"]*)"', by_tier.text) == ["", "tier"]


@pytest.mark.django_db
def test_the_page_of_a_run_loads_it_when_it_is_opened(client: Client, runs: list[Run]) -> None:
    address = reverse("runs:run-breakdown", args=("support", runs[0].number))
    page = client.get(reverse("runs:run", args=("support", runs[0].number)))
    assert f'hx-get="{address}"' in page.text
    part = client.get(address, headers={"HX-Request": "true"})
    assert part.text.lstrip().startswith("<div")
    assert "<html" not in part.text
    assert "<h1>Breakdown by tag and metadata</h1>" in client.get(address).text


@pytest.mark.django_db
def test_cases_without_tags_say_so(client: Client) -> None:
    run = make_run(suite=make_suite(slug="support"), status=RunStatus.COMPLETED)
    make_result(run=run, case=make_case(suite=run.suite, key="C-1"), verdict="pass", score=0.9)
    address = reverse("runs:run-breakdown", args=("support", run.number))
    assert "No case of this run has a tag." in text_of(client.get(address))
    charts = client.get(reverse("runs:suite-breakdown", args=["support"]))
    assert "No case of these runs has a tag." in text_of(charts)


@pytest.mark.django_db
@pytest.mark.each_database
def test_charts_show_the_chosen_runs_beside_each_other(
    client: Client, runs: list[Run], django_assert_max_num_queries: Any
) -> None:
    address = reverse("runs:suite-breakdown", args=["support"])
    assert f"{address}?" in client.get(reverse("runs:suite-charts", args=["support"])).text
    answer = client.get(address)
    shown = rows(answer.text)
    assert re.findall(r">#(\d+ \w+)</a>", answer.text) == ["2 strict", "1 mild"]
    assert [*shown] == ["none", "refund", "No tag", "parcel"]
    assert shown["refund"].count("2 of 12, 4.6% to 44.8%") == 2
    assert "mean score 31.6%, 12 of 12" in shown["refund"]
    one = client.get(address, {"target": "mild", "by": "tier"})
    assert re.findall(r">#(\d+ \w+)</a>", one.text) == ["1 mild"]
    assert 'name="target" value="mild"' in one.text
    link = re.search(r'href="([^"]+)#results-title"\s*aria-label="gold in run 1', one.text)
    assert link
    assert len(re.findall(r'id="case-\d+"', client.get(html.unescape(link[1])).text)) == 6
    with django_assert_max_num_queries(14):
        client.get(address)
