"""The suites of the demo, one for each profile: what comes out is what their READMEs say."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from runs.execution.run_worker import work_on_run
from runs.formats import suite_files
from runs.formats.bundles import bundles_at
from runs.formats.finding import read_suites
from runs.management.commands.load_examples import EXAMPLES, SUITES
from runs.models.runs import Run
from runs.specs.profiles import all_profiles, get_profile
from tests.examples.scripted_server import ScriptedServer
from tests.support.factories import make_model

pytestmark = pytest.mark.one_database

PROFILES = {"travel-desk": "metrics", "harbour-office": "tasks", "repo-chores": "hybrid"}
# What the file of the suite writes itself, as a share; the rest is the profile's.
OWN = {"metrics_pass_threshold", "cases_pass_threshold"}


@pytest.mark.parametrize(("folder", "name"), PROFILES.items())
def test_a_suite_starts_from_its_profile_and_survives_export(folder: str, name: str) -> None:
    [found] = read_suites(bundles_at([EXAMPLES / folder / "suite.yaml"])).suites
    content, profile = found.content, get_profile(name)

    assert (content.evaluators, content.warnings, len(content.cases) >= 20) == (
        profile.root,
        (),
        True,
    )
    policy, usual = content.policy.as_json(), profile.policy.as_json()
    assert {key for key in policy if policy[key] != usual[key]} <= OWN
    assert suite_files.read_suite(suite_files.write_suite(content), files=content.files) == content


def test_there_is_a_suite_for_every_profile() -> None:
    told = {one.slug for one in SUITES}
    assert {*PROFILES, "support-agent"} <= told
    for slug in told:
        assert f"({slug}/README.md)" in (EXAMPLES / "README.md").read_text()


@pytest.fixture
def _demo(settings: Any, scripted_server: ScriptedServer) -> None:
    settings.SCRIPTS, settings.AGENTS_DIR = True, str(EXAMPLES)
    call_command("load_examples", "--judge-url", scripted_server.base_url)
    for run in Run.objects.filter(suite__slug__in=PROFILES):
        work_on_run(run.pk)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_demo")
def test_what_comes_out_is_what_the_readmes_say(viewer_client: Client) -> None:
    for run in Run.objects.filter(suite__slug__in=PROFILES).select_related("suite"):
        assert (run.status, run.error_count) == ("completed", 0), run
        readme = (EXAMPLES / run.suite.slug / "README.md").read_text()
        row = cells(readme, run.target_name)
        verdicts = Counter(run.results.values_list("verdict", flat=True))
        assert row["pass"] == str(verdicts["pass"])
        for verdict in ("borderline", "fail"):
            assert said(row.get(verdict), run, verdict), (run, verdict)
        if "mean" in row:
            assert row["mean"] == shown(run.summary["weighted_metrics_score_pct"])
        for gate, figure in (
            ("metrics", "weighted_metrics_score_pct"),
            ("cases", "cases_pass_rate_pct"),
        ):
            if f"{gate} gate" in row:
                word = "passed" if run.summary[f"{gate}_passed"] else "failed"
                assert row[f"{gate} gate"] == f"{shown(run.summary[figure])}, {word}"
        if "flaky cases" in row:
            assert row["flaky cases"].split(", ") == flaky_cases(run)
        costs = (run.run_cost_usd, run.evaluation_cost_usd)
        assert all(cost is not None and cost > 0 for cost in costs), run
        place = {"slug": run.suite.slug, "number": run.number}
        assert viewer_client.get(reverse("runs:run", kwargs=place)).status_code == 200


CASE = {
    "id": "TD-15",
    "input": "I use a wheelchair. Can I travel on SJ 430 on the 20th?",
    "expected_output": "Yes, place 3W is free",
    "expected_outcomes": ["Looks for the wheelchair place", "Says until when help is ordered"],
    "criteria": "Looks first and says what has to be ordered.",
    "output": "Yes, place 3W is free. Help is ordered 24 hours before.",
}


@pytest.mark.django_db(transaction=True)
def test_cases_alone_are_run_by_any_profile(
    scripted_server: ScriptedServer, tmp_path: Path, quick_watching: None
) -> None:
    make_model(slug="judge", base_url=scripted_server.base_url, send_trace_headers=True)
    for profile in all_profiles():
        cases = tmp_path / f"{profile.name}.jsonl"
        cases.write_text(json.dumps(CASE))
        with suppress(SystemExit):
            call_command(
                *("evaluate", str(cases), "--profile", profile.name),
                *("--target", "recorded", "--judge", "judge"),
            )

    runs = {run.suite.slug: run for run in Run.objects.select_related("suite")}
    assert {slug: run.error_count for slug, run in runs.items()} == {
        profile.name: 0 for profile in all_profiles()
    }
    decided = {slug: run.results.get().decided_by for slug, run in runs.items()}
    assert decided["metrics"] == "1 of 2 outcomes missed"
    scales = {slug: run.suite.scale for slug, run in runs.items()}
    assert scales == {"verdicts": 1, "metrics": 100, "tasks": 100, "hybrid": 10}


def cells(readme: str, target: str) -> dict[str, str]:
    """Return the row of a target by the heads of its table."""
    lines = readme.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith(f"| {target} |"))
    first = next(n for n in range(at, 0, -1) if lines[n].startswith("|---")) - 1
    heads, row = ([cell.strip() for cell in lines[n].split("|")] for n in (first, at))
    return dict(zip(heads, row, strict=True))


def said(told: str | None, run: Run, verdict: str) -> bool:
    """Tell whether a cell names the cases of a verdict, or how many there are."""
    if told is None:
        return True
    keys = run.results.filter(verdict=verdict).order_by("case__key")
    found = list(keys.values_list("case__key", flat=True))
    return told == str(len(found)) or re.findall(r"[A-Z]{2}-\d+", told) == found


def flaky_cases(run: Run) -> list[str]:
    verdicts = defaultdict(set)
    for key, verdict in run.results.values_list("case__key", "verdict"):
        verdicts[key].add(verdict)
    return sorted(key for key, found in verdicts.items() if len(found) > 1)


def shown(figure: float) -> str:
    """Return a figure to one place, rounded down as pages show it."""
    return f"{int(figure * 10) / 10:.1f}"
