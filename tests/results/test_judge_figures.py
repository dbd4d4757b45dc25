"""A judge whose model changed behind its name: told on its run and in a comparison."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from evaluators.model_calls.calls import reply_version
from runs.finishing import renew_figures, summarise_run
from runs.models.runs import Run
from runs.results.judge_figures import change_warnings
from tests.api.site import get
from tests.support.factories import make_call, make_scored_run, make_suite

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("reply", "version"),
    [
        ({"model": "juno-2-0501", "system_fingerprint": "fp_a"}, "juno-2-0501 fp_a"),
        ({"model": "juno-2-0501", "system_fingerprint": None}, "juno-2-0501"),
        ({"system_fingerprint": "fp_a"}, "fp_a"),
        ({"model": ["juno"], "system_fingerprint": 7}, ""),
        ({"error": {"message": "no"}}, ""),
        ("text", ""),
        (None, ""),
    ],
)
def test_a_reply_tells_the_version_of_its_model(reply: Any, version: str) -> None:
    assert reply_version(reply) == version


def page_words(client: Client, address: str) -> str:
    response = client.get(address)
    assert response.status_code == 200
    return " ".join(re.sub(r"<[^>]+>", " ", response.content.decode()).split())


def judged_run(*versions: str, **columns: Any) -> Run:
    """Return a finished run with a call of the judge for each version."""
    run = make_scored_run(
        verdicts=["pass"] * 3, judge_name="juno", summary=None, leaf_scores=None, **columns
    )
    result = run.results.order_by("pk")[0]
    for version in versions:
        make_call(result=result, model_name="Juno", version=version)
    make_call(result=result, purpose="target", model_name="Agent", version="")
    assert summarise_run(run.pk)
    return run


def test_a_changed_version_is_told_on_the_run_and_in_the_comparison(viewer_client: Client) -> None:
    suite = make_suite(slug="support")
    judged_run("juno-0501 fp_a", suite=suite)
    changed = judged_run("juno-0501 fp_a", "juno-0707 fp_b", "juno-0707 fp_b", suite=suite)
    since = "The model behind Juno changed since run #1: juno-0707 fp_b as well as juno-0501 fp_a."
    assert "changed since" not in page_words(viewer_client, "/suites/support/runs/1/")
    said = page_words(viewer_client, "/suites/support/runs/2/")
    assert since in said
    assert (
        "Juno answered by 2 versions of its model: juno-0501 fp_a (1 reply), juno-0707 fp_b (2 replies)."
        in said
    )
    comparison = "/compare/?baseline=support:1&candidate=support:2"
    assert since in page_words(viewer_client, comparison)
    assert "changed since" not in page_words(
        viewer_client, "/compare/?baseline=support:2&candidate=support:1"
    )
    address = "/api/runs/compare?baseline_run_id=support:1&candidate_run_id=support:2"
    assert get(viewer_client, address, "/api/runs/compare")["judge_changes"] == [
        f"{since} Scores may differ for this alone."
    ]
    # The name of a model stands once before its versions.
    judged_run("juno-0707 fp_c", "juno-0707 fp_d", suite=make_suite(slug="sales"))
    said = page_words(viewer_client, "/suites/sales/runs/1/")
    assert "its model: juno-0707 fp_c (1 reply), fp_d (1 reply)." in said
    # Servers that tell no version change nothing, and neither do runs without figures.
    judged_run("", suite=suite)
    assert "changed since" not in page_words(viewer_client, "/suites/support/runs/3/")
    # Only what does not answer any more was replaced.
    [replaced] = change_warnings({"Juno": {"a": 1, "b": 1}}, {"Juno": {"b": 1, "c": 1}}, "")
    assert ": c in place of a." in replaced
    renew_figures(changed.pk)
    assert "changed since" not in page_words(viewer_client, comparison)


def test_of_many_versions_a_page_names_the_first(viewer_client: Client) -> None:
    suite = make_suite(slug="support")
    judged_run("juno", suite=suite)
    judged_run(*(f"fp_{number:02}" for number in range(13)), suite=suite)
    said = page_words(viewer_client, "/suites/support/runs/2/")
    assert "answered by 13 versions of its model: fp_00 (1 reply)," in said
    assert "fp_09 (1 reply) and 3 others." in said
    assert "changed since run #1: fp_00, fp_01" in said
    assert "fp_09 and 3 others in place of juno." in said
    assert "fp_10" not in said
