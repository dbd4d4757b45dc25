"""Every page of runs and results, wide and narrow, light and dark: without messages, complete and accessible."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from evaluators.models import AuditEntry
from evaluators.scoring.types import Verdict
from runs.documents import DetailLevel
from runs.engine.plan import JUDGED_AGAIN
from runs.files.importing_results import import_results
from runs.finishing import summarise_run
from runs.models.database import database_now
from runs.models.results import Attempt, Retry
from runs.models.reviews import ReviewItem
from runs.models.runs import Campaign, RunEvent
from runs.models.sharing import ShareLink, token_hash
from runs.models.suites import Suite, Target
from runs.models.traces import Trace, TraceSpan
from runs.results.case_rows import COLUMNS
from runs.reviews.services import ReviewDecision, decide
from runs.sharing.services import read_subject, share_document, share_sources
from runs.suites.services import record_version
from tests.browser.accessibility import WIDE, violations_in_every_look
from tests.formats.test_agentv_results import NESTED
from tests.results.test_result_page import judged
from tests.support.factories import (
    STARTED,
    change_suite,
    make_call,
    make_case,
    make_model,
    make_result,
    make_run,
    make_score,
    make_scored_run,
    make_suite,
    make_target,
    make_user,
)

pytestmark = pytest.mark.django_db(transaction=True)
LogIn = Callable[[str], User]
PAGES = (
    "/account/tokens/",
    "/audit/",
    "/exports/",
    "/filters/",
    "/runs/",
    "/runs/?target=nobody",
    "/runs/new/",
    "/compare/",
    "/compare/?baseline=support:1&candidate=support:3",
    "/compare/case/?baseline=support:1&candidate=support:3&case=C-002",
    "/import/results/",
    "/review/import/",
    "/suites/elsewhere/runs/1/",
    "/suites/support/runs/1/measure-judge/",
    "/suites/elsewhere/runs/1/greeting/1/",
    "/suites/support/agreement/",
    "/suites/support/agreement/people/",
    "/suites/support/agreement/judges/",
    "/suites/support/agreement/align/",
    "/suites/elsewhere/agreement/",
    "/suites/elsewhere/agreement/judges/",
    "/suites/support/charts/",
    "/suites/support/charts/?target=nobody",
    "/campaigns/",
    "/campaigns/1/",
    "/campaigns/2/",
    "/suites/elsewhere/charts/",
    "/suites/support/evaluators/",
    "/suites/support/evaluators/add/",
    "/suites/support/evaluators/n2/",
    "/suites/support/what-if/",
    "/suites/support/what-if/?run=77",
    "/suites/support/evaluators/n2/try/",
    "/suites/support/case-import/",
    "/suites/support/draft-cases/",
    "/new-suite/from-table/",
    "/suites/support/cases/new/",
    "/suites/support/cases/C-001/edit/",
    "/suites/support/cases/C-001/delete/",
    "/suites/support/versions/",
    "/suites/support/versions/1/",
    "/suites/support/versions/compare/",
    "/suites/support/versions/1/restore/",
    "/suites/support/runs/new/",
    "/suites/support/runs/1/",
    "/suites/support/runs/1/?verdict=borderline",
    "/suites/support/runs/1/?q=nothing",
    "/suites/support/runs/2/",
    "/suites/support/runs/3/",
    "/suites/support/runs/4/",
    "/suites/support/runs/5/",
    "/suites/support/runs/5/C-001/1/",
    "/suites/support/runs/1/C-004/1/",
    "/suites/support/runs/1/retry/?which=errored",
    "/suites/support/runs/1/retry/?which=all_missing&budget=much",
    "/suites/support/runs/5/retry/?path=tone",
    "/suites/support/runs/5/retry/?path=palmistry",
    "/suites/support/runs/5/C-001/1/retry/?path=tone",
    "/suites/support/runs/2/C-003/1/",
    "/suites/support/runs/3/C-002/1/",
    "/review/",
    "/review/1/",
    "/review/?suite=nowhere",
    "/targets/",
    "/targets/1/",
    "/targets/new/",
    "/targets/new/?kind=chat",
    "/targets/1/edit/",
    "/targets/new/?kind=http",
    "/targets/2/",
    "/targets/2/edit/",
    "/traces/",
    "/traces/1/",
    "/traces/2/",
    "/search/",
    "/search/?q=C-0",
    "/search/?q=zzz",
    "/shares/",
    "/shares/new/",
    "/shares/new/?kind=comparison&baseline=support:1&candidate=support:3&detail_level=traces",
    "/shares/new/?kind=run&run=support:1&detail_level=outputs&title=jo@example.com",
    "/shares/new/?kind=result&run=support:5&case=C-001&detail_level=traces",
    "/s/comparison/",
    "/s/run/",
    "/s/result/",
)

OPEN_FOLDS = """() => {
    for (const fold of document.querySelectorAll("main details")) {
        if (fold.querySelector(":scope > summary")?.checkVisibility()) fold.open = true;
    }
}"""


def make_traces(suite: Suite) -> None:
    """Make a trace that no run took, and one whose first span has not arrived."""
    about = {"received_at": STARTED, "changed_at": database_now(), "suite": suite}
    first = Trace.objects.create(
        pk=1, trace_id="1", root_id="1", question="Too small?", problem="Run #1 is over.", **about
    )
    step = {"type": "tool", "name": "find_order", "input": {"order": "1"}, "duration_ms": 4}
    TraceSpan.objects.create(trace=first, span_id="1", step={**step, "cost_usd": "0.02"})
    TraceSpan.objects.create(trace=first, span_id="2", parent_id="1", step=step)
    second = Trace.objects.create(pk=2, trace_id="2", span_count=1, **about)
    TraceSpan.objects.create(trace=second, span_id="2", parent_id="1", step=step)


@pytest.fixture
def site_with_runs(transactional_db: None) -> None:
    """Make runs in every state, with results in every state."""
    suite = make_suite(slug="support", title="Customer support", judge=make_model(slug="juno-2"))
    target = make_target(name="agent 1", pk=1)
    common = {"suite": suite, "target": target}
    together, _ = (Campaign.objects.create(pk=pk, suite=suite) for pk in (1, 2))
    make_scored_run(verdicts=["pass", "borderline", "fail", "error"], campaign=together, **common)
    make_scored_run(verdicts=["pass", "error", "running", "pending"], status="running", **common)
    make_scored_run(verdicts=["pass", "cancelled"], status="stopped", campaign=together, **common)
    make_scored_run(
        verdicts=["error"], status="failed", status_reason="The target refused: 401.", **common
    )
    case = suite.cases.get(key="C-001")
    case.expected_output, case.expected_outcomes = "Here is your money.", ["Names the days"]
    case.tags = ["refunds"]
    case.save()
    run = make_run(suite=suite, target=target, repetitions=2, status="budget_reached", budget_usd=1)
    result = judged(
        suite=suite,
        case=case,
        run=run,
        text_="**Here** is your refund.\n\n| a | b |\n|---|---|\n| 1 | 2 |",
        trace=[
            {
                "type": "tool",
                "name": "find_order",
                "input": {"order": "1"},
                "output": "found",
                "started_ms": 0,
                "duration_ms": 400,
            }
        ],
        outcomes=[{"text": "Names the days", "passed": False, "justification": "It does not."}],
    )
    make_result(run=run, case=case, repetition=2, verdict="pass", score=0.9)
    ReviewItem.objects.create(
        pk=1, run=run, result=result, reasons=" borderline near_threshold ", wanted=2
    )
    make_traces(suite)
    make_call(result=result)
    retry = Retry.objects.create(run=run, asked_by_name="mira", asked_at=STARTED, paths=["tone"])
    Attempt.objects.create(
        result=result,
        retry=retry,
        attempt=1,
        generation=1,
        status="error",
        reason="gone",
        ended_at=STARTED,
    )
    result.generation = 2
    result.save()
    for number in range(12):
        RunEvent.objects.create(
            run=run, kind="model_slowed", text=f"slowed to {number} calls a second"
        )
    # Databases order the values of an entry differently; a line of its longest has room as well.
    after = {"file": "results.jsonl", "sha256": "d" * 64}
    AuditEntry.objects.record("run.import", by=None, object_type="run", after=after)
    make_case(suite=suite, key="C-099")
    change_suite(suite, description="What it answers", pass_threshold=0.85)
    record_version(suite, author=None, note="Asks for more")
    import_and_review()
    for kind, fields in (
        ("comparison", {"baseline": "support:1", "candidate": "support:3"}),
        ("run", {"run": "support:5"}),
        ("result", {"run": "support:5", "case": "C-001"}),
    ):
        share(kind, fields)
    agent = {"url": "https://agent.example/ask", "headers": [{"name": "X-Key", "secret": True}]}
    make_target(name="agent 2", pk=2, kind="http", config=agent)
    tone = {
        "key": "tone",
        "name": "Tone",
        "tier": "overall",
        "score": 3.5,
        "weight": 1,
        "binary": False,
    }
    make_score(
        result=result, path="judge", kind="metrics_judge", score=0.7, details={"metrics": [tone]}
    )
    summarise_run(run.pk)


def import_and_review() -> None:
    """Make a suite of another tool's results, one of which a person decided otherwise than the machine.

    Another judge has judged its output again.
    """
    line = json.dumps({**NESTED, "dataset": "elsewhere"}).encode()
    done = import_results(line, file="results.jsonl", suite=None, imported_by=None)
    result = done.runs[0].results.first()
    item = ReviewItem.objects.create(
        pk=2, run=result.run, result=result, reasons=" borderline ", sampling_rate=0.5
    )
    decide(item, ReviewDecision(Verdict.FAIL, note="Cites no rule"), by=make_user(role="reviewer"))
    agent = Target.objects.get(pk=1)
    again = make_run(suite=result.run.suite, target=agent, source_run=result.run)
    again.snapshot |= {JUDGED_AGAIN: {"run": result.run.number, "results": 1}}
    again.save()
    make_call(result=make_result(run=again, case=result.case, verdict="fail", score=0.2))


def share(kind: str, fields: dict[str, str]) -> None:
    """Make a link of this kind with every detail."""
    subject = read_subject({"kind": kind} | fields)
    ShareLink.objects.create(
        token_hash=token_hash(kind),
        kind=kind,
        title=subject.title,
        detail_level="traces",
        sources=share_sources(subject),
        frozen=share_document(subject, DetailLevel.TRACES, now=STARTED),
    )


WIDTHS = (360, 600, 720, 900, 1024, 1200, 1280, 1440, 1920)
# The titles of heads that are narrower than they must be, tables whose last columns cannot be reached, those that
# scroll sideways although a laptop has room for them, controls of heads under something else, and how far the page
# reaches beyond the window. Columns of each target, of repetitions, or that a reader chose may need more room.
LAYOUT = """() => {
  const narrow = [...document.querySelectorAll(".head > div")].flatMap((title) => {
    const { width } = title.getBoundingClientRect();
    const head = title.parentElement;
    const { paddingLeft, paddingRight } = getComputedStyle(head);
    const room = head.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
    return width < Math.min(320, room) - 1 ? [`title ${Math.round(width)} px`] : [];
  });
  const cut = [...document.querySelectorAll(".panel table")].flatMap((table) => {
    const panel = table.closest(".panel");
    const beyond = Math.round(table.getBoundingClientRect().right - panel.getBoundingClientRect().right);
    const scrolls = getComputedStyle(table.parentElement).overflowX === "auto";
    const may = scrolls && (innerWidth < 1200 || table.matches(".cross, [data-wide], :has(.repeated)"));
    return beyond > 1 && !may && table.checkVisibility() ? [`${table.className} cut by ${beyond} px`] : [];
  });
  const covered = [...document.querySelectorAll(".head menu :is(a, button)")].flatMap((control) => {
    const { x, y, width, height } = control.getBoundingClientRect();
    const hit = control.checkVisibility() && document.elementFromPoint(x + width / 2, y + height / 2);
    return hit && !control.contains(hit) ? [`${control.innerText} under ${hit.outerHTML.slice(0, 80)}`] : [];
  });
  const broad = document.documentElement.scrollWidth - innerWidth;
  return [...narrow, ...cut, ...covered, ...(broad > 0 ? [`${broad} px too broad`] : [])];
}"""


def broken_layouts(page: Page) -> list[tuple[str, int, str]]:
    """Return where a page as it was opened does not hold, and at which width."""
    broken = []
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        broken += [(page.url, width, what) for what in page.evaluate(LAYOUT)]
    return broken


def test_every_page_is_accessible_and_holds_at_every_width(
    page: Page, live_server: LiveServer, log_in: LogIn, site_with_runs: None
) -> None:
    log_in("editor")
    found, broken, checked = [], [], set[str]()
    for path in PAGES:
        page.set_viewport_size(WIDE)
        page.emulate_media(color_scheme="light", reduced_motion="reduce")
        answer = page.goto(f"{live_server.url}{path}")
        assert answer is not None
        assert answer.status == 200, path
        broken += broken_layouts(page)
        page.evaluate(OPEN_FOLDS)
        for box in page.get_by_role("checkbox", name="Choose C-001").all():
            box.check()
        found += violations_in_every_look(page, checked)
    # Their looks are checked with suites of other states, in test_suites.py.
    every_column = f"/suites/support/runs/1/?columns={','.join(COLUMNS)}"
    for path in ("/", "/suites/support/", "/suites/support/cases/", every_column):
        page.goto(f"{live_server.url}{path}")
        broken += broken_layouts(page)
    assert found == []
    assert broken == []


# What people come to a page for: on a laptop it is there before they scroll.
FIRST_SCREENS = {
    "/": "#suite-rows tbody tr",
    "/suites/support/": "#health-title",
    "/suites/support/evaluators/": "#pass_threshold, #what-if .matrix",
    "/suites/support/runs/1/": "#run-verdict, #rows tr",
    "/suites/support/runs/1/C-003/1/": "#verdict",
    "/compare/?baseline=support:1&candidate=support:3": "#changes tbody tr",
}


def test_what_a_page_is_for_is_on_its_first_screen(
    page: Page, live_server: LiveServer, log_in: LogIn, site_with_runs: None
) -> None:
    log_in("editor")
    below = []
    for path, parts in FIRST_SCREENS.items():
        page.goto(f"{live_server.url}{path}")
        for part in parts.split(", "):
            place = page.locator(part).first.bounding_box()
            if place is None or place["y"] + place["height"] > 900:
                below.append((path, part, place))
    assert below == []
    page.goto(f"{live_server.url}/suites/support/")
    headings = page.locator(".split > :first-child h2").all_inner_texts()
    assert headings == ["Health", "Trend", "Worst cases", "Last runs", "Evaluators"]


def test_a_viewer_goes_from_the_list_to_a_result_and_back(
    page: Page, live_server: LiveServer, log_in: LogIn, site_with_runs: None
) -> None:
    log_in("viewer")
    # Wider windows show a result beside its table.
    page.set_viewport_size({"width": 1100, "height": 800})
    page.goto(live_server.url)
    page.get_by_role("link", name="Runs", exact=True).first.click()
    page.get_by_role("link", name="#1 Customer support").click()
    page.get_by_role("link", name="C-002").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("C-002")
    page.get_by_role("link", name="Run #1").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Run #1")
    page.get_by_role("link", name="agent 1").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("agent 1")
    page.get_by_role("link", name="Targets").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Targets")
    for forbidden in ("Cancel run", "Run again", "Start run", "Add a target"):
        expect(page.get_by_text(forbidden)).to_have_count(0)
