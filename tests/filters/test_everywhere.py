"""One table of filters through every place that takes one: the same answers and the same refusals."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from decimal import Decimal

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from runs.models.reviews import ReviewItem
from runs.models.runs import Run
from tests.support.factories import (
    make_case,
    make_result,
    make_run,
    make_score,
    make_snapshot,
    make_suite,
    make_target,
    refresh_cases,
)
from tests.support.trees import CHECK, LEAF, tree

pytestmark = pytest.mark.django_db
TREE = tree(
    {**CHECK, "name": "tone"},
    {**CHECK, "name": "slang", "negate": True},
    {**LEAF, "name": "better", "kind": "pairwise", "weight": 0.0, "config": {}},
)
ALL = {"A", "B", "C"}
# What a case itself has; the rest asks about its results.
OF_CASES = [
    ("parcel", {"A"}),
    ("case = A, C", {"A", "C"}),
    ("title = late", {"B"}),
    ("expected = voucher", {"C"}),
    ("tag = billing", {"A", "B"}),
    ("tag = none", {"C"}),
    ("meta.channel != chat", {"A", "C"}),
    ("verdict != pass", {"B", "C"}),
    ("-parcel (tag = billing or expected = voucher)", {"B", "C"}),
]
OF_RESULTS = [
    ("refund", {"A"}),
    ("reasoning = curt", {"B"}),
    ("score = none", {"C"}),
    ("not score < 0.5", {"A", "C"}),
    ("slang > 0.5", {"A"}),
    ("grounding < 3", {"B"}),
    ("metric.grounding = none", {"C"}),
    ("closeness = 4.5, 1", {"A"}),
    ("not closeness != 4.5 grounding >= 4", {"A"}),
    ("closeness >= 4.5", {"A"}),
    ("latency > 2s", {"B"}),
    ("tool = find", {"A"}),
    ("error = target", {"C"}),
    ("verdict = error", {"C"}),
    ("verdict = waiting, running, cancelled", set()),
    ("missed = sorry", {"B"}),
    ("met = sorry", set()),
    ("outcomes < 50%", {"B"}),
    ("review = none", {"B", "C"}),
    ("refund review = waiting", {"A"}),
    ("review = decided", set()),
    ("cost > 0.01", {"B"}),
    ("cost = none", {"C"}),
    ("tokens > 100", {"B"}),
    ("tokens = none", {"C"}),
    ("flaky = yes", {"A"}),
    ("pairwise.better = loss", {"B"}),
    ("not pairwise.better = loss, inconclusive", {"C"}),
]
# The one change between the two runs; a place with one run refuses to look for it.
OF_CHANGES = [("tone fell", {"A"}), ("tone rose", set()), ("score changed", set())]
# The part of each refusal that is the same wherever it is asked.
REFUSED = [
    ("verdict = good", "verdict is one of"),
    ("(tag = x", "This “(” has no “)”."),
    ("tag < 3", "tag is not a number"),
    ("pairwise.better = lost", "is one of win, tie, loss, inconclusive"),
    ("scoer < 0.5", "Did you mean score?"),
]


@pytest.fixture
def runs() -> tuple[Run, Run]:
    """Make two runs of three cases: one passes, one fails, one has an error. The later tone of the first is lower."""
    suite = make_suite(slug="support", tree=TREE)
    say = {"role": "user", "content": "Where is my parcel?"}
    hello = {"role": "user", "content": "Hello"}
    cases = [
        make_case(suite=suite, key="A", title="First", tags=["billing"], input=[say]),
        make_case(
            suite=suite, key="B", title="Too late", tags=["billing"], input=[hello],
            metadata={"channel": "chat"}, expected_outcomes=["Says sorry"],
        ),
        make_case(
            suite=suite, key="C", title="Third", tags=[], input=[hello],
            expected_outcomes=["Offers a voucher"],
        ),
    ]  # fmt: skip
    made = []
    for best in (0.9, 0.8):
        target = make_target()
        snapshot = make_snapshot(suite=suite, target=target, tree=TREE)
        run = make_run(
            suite=suite, target=target, snapshot=snapshot, status="completed", case_count=3
        )
        trace = [{"type": "tool", "name": "find"}]
        first = make_result(
            run=run, case=cases[0], verdict="pass", score=0.9, latency_ms=500,
            output={"text": "Your refund", "trace": trace},
            run_cost_usd=Decimal("0.01"), evaluation_cost_usd=0, input_tokens=60, output_tokens=20,
        )  # fmt: skip
        second = make_result(
            run=run, case=cases[1], verdict="fail", score=0.3, latency_ms=3000, outcome_marks="0",
            run_cost_usd=Decimal("0.02"), evaluation_cost_usd=Decimal("0.01"), input_tokens=150,
        )  # fmt: skip
        make_result(
            run=run, case=cases[2], status="error", error="502", error_stage="target", score=None,
            latency_ms=None, run_cost_usd=None, evaluation_cost_usd=None,
        )  # fmt: skip
        for result, tone in ((first, best), (second, 0.2)):
            make_score(result=result, path="tone", score=tone, reasoning="")
            reasoning = "Too curt" if result is second else ""
            make_score(result=result, path="slang", score=1 - tone, reasoning=reasoning)
            metric = {"key": "grounding", "name": "Grounding", "score": tone * 5}
            other = {"key": "delivery", "name": "Delivery", "score": None}
            make_score(
                result=result, path="judge", kind="metrics_judge", score=tone,
                details={"metrics": [other, metric]},
            )  # fmt: skip
        dimension = {"key": "closeness", "name": "Closeness", "final": 4.5}
        make_score(
            result=first, path="hybrid", kind="hybrid_judge", score=0.9,
            details={"dimensions": [dimension]},
        )  # fmt: skip
        for result, won, score in ((first, "inconclusive", None), (second, "loss", 0.0)):
            make_score(
                result=result, path="better", kind="pairwise", score=score, details={"verdict": won}
            )
        refresh_cases(run)
        run.cases.filter(case=cases[0]).update(is_flaky=True)
        made.append(run)
    ReviewItem.objects.create(run=run, result=first, reasons=" borderline ", sampling_rate=1.0)
    return made[0], made[1]


class Places:
    """Every place that takes a filter: each returns the keys of the cases that it lists, or why it lists none."""

    def __init__(
        self, client: Client, capsys: pytest.CaptureFixture[str], runs: tuple[Run, Run]
    ) -> None:
        self.client, self.capsys = client, capsys
        self.baseline, self.run = runs
        self.names = [f"support:{run.number}" for run in runs]

    def _table(self, path: str, text: str, *args: object, **parameters: str) -> set[str] | str:
        answer = self.client.get(reverse(path, args=args), {"q": text, **parameters})
        context = answer.context
        table = context["table"] if "table" in context else context["page"]
        return str(table.problem) if table.problem else {row.key for row in table.rows}

    def run_page(self, text: str) -> set[str] | str:
        return self._table("runs:run-results", text, "support", self.run.number)

    def suite_cases(self, text: str) -> set[str] | str:
        return self._table("runs:case-rows", text, "support")

    def side_by_side(self, text: str) -> set[str] | str:
        answer = self.client.get(
            reverse("runs:compare-many"), {"runs": ",".join(self.names), "q": text}
        )
        many = answer.context["page"]
        return str(many.problem) if many.problem else {row.key for row in many.rows}

    def comparison(self, text: str) -> set[str] | str:
        sides = {"baseline": self.names[0], "candidate": self.names[1], "show": "all"}
        # The table is made from the same cases as the page, which says what is wrong.
        table = self.client.get(reverse("runs:comparison-table"), {**sides, "q": text})
        if table.status_code == 200:
            body = b"".join(table.streaming_content).decode()
            return {row["case"] for row in csv.DictReader(io.StringIO(body))}
        page = self.client.get(reverse("runs:compare"), {**sides, "q": text}).context["page"]
        return str(page.table.problem)

    def search(self, text: str) -> set[str] | str:
        page = self.client.get(reverse("runs:search"), {"q": text, "suite": "support"}).context[
            "page"
        ]
        if page.problem:
            return str(page.problem)
        return {row.key for row in page.rows if row.number == self.run.number}

    def api(self, text: str) -> set[str] | str:
        answer = self.client.get(f"/api/runs/{self.names[1]}/results", {"filter": text})
        if answer.status_code == 400:
            return str(answer.json())
        return {row["case"] for row in answer.json()["results"]}

    def table_file(self, text: str) -> set[str] | str:
        answer = self.client.get(
            reverse("runs:run-results-table", args=["support", self.run.number]), {"q": text}
        )
        body = b"".join(answer.streaming_content).decode()
        return {row["case"] for row in csv.DictReader(io.StringIO(body))}

    def command_line(self, text: str) -> set[str] | str:
        try:
            call_command("results", f"support#{self.run.number}", "--filter", text, "--out", "-")
        except CommandError as error:
            return str(error)
        lines = self.capsys.readouterr().out.splitlines()
        return {json.loads(line)["eval_id"] for line in lines}


@pytest.fixture
def places(
    viewer_client: Client, capsys: pytest.CaptureFixture[str], runs: tuple[Run, Run]
) -> Places:
    """Open all places as a viewer."""
    return Places(viewer_client, capsys, runs)


def of_results(places: Places) -> Mapping[str, Callable[[str], set[str] | str]]:
    """Return the places that list results."""
    names = "run_page side_by_side comparison search api command_line"
    return {name: getattr(places, name) for name in names.split()}


def test_every_place_gives_the_same_answers(places: Places) -> None:
    everywhere = {**of_results(places), "table_file": places.table_file}
    for text, keys in (*OF_CASES, *OF_RESULTS):
        found = {name: ask(text) for name, ask in everywhere.items()}
        assert found == dict.fromkeys(everywhere, keys), text
    for text, keys in OF_CASES:
        assert places.suite_cases(text) == keys, text


def test_changes_are_asked_for_where_there_are_two_runs(places: Places) -> None:
    with_baseline = ("side_by_side", "comparison")
    for text, keys in OF_CHANGES:
        for name, ask in of_results(places).items():
            if name in with_baseline:
                assert ask(text) == keys, (text, name)
            else:
                assert "needs two runs" in str(ask(text)), (text, name)


def test_every_place_refuses_in_the_same_words(places: Places) -> None:
    for text, reason in REFUSED:
        for name, ask in of_results(places).items():
            assert reason in str(ask(text)), (text, name)
    for text, reason in REFUSED[:-2]:
        assert reason in str(places.suite_cases(text)), text
    assert "cannot be used here" in str(places.suite_cases("pairwise.better = loss"))
