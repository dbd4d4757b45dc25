"""What is refused of targets that judge before a run begins, who may start them, and what is warned of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from evaluators.model_calls.models import encrypt
from evaluators.sandbox import probe
from evaluators.sandbox.probe import SandboxOffer
from runs.compare.rules import RunFacts, differences
from runs.engine.plan import read_plan
from runs.files.importing import import_suite
from runs.formats import suite_files
from runs.models.runs import Run, RunStatus
from runs.models.suites import Suite, Target
from runs.running.checks import AgentNotReadyError, ScriptsRefusedError
from runs.running.retrying import resume_run, retry_results, stop_run
from runs.running.services import start_run
from runs.suites.references import UnknownJudgeError
from tests.support.factories import make_case, make_model, make_suite, make_target
from tests.support.members import make_member
from tests.support.trees import JUDGED, tree

pytestmark = pytest.mark.django_db
LEAF = {"weight": 1.0, "required": False, "required_below": None, "negate": False, "children": []}
QUALITY = {**LEAF, "name": "quality", "kind": "agent_judge", "config": {"agent": "reviewer"}}
TONE = {**QUALITY, "name": "tone", "config": {"agent": "second", "samples": 2}}
# A panel of the same agent and the suite's judge.
PANEL = {**QUALITY, "kind": "deliberation", "config": {"agents": ["reviewer"], "judges": 1}}
HTTP = {"url": "http://127.0.0.1:9/ask"}
WITH_SECRET = {**HTTP, "headers": [{"name": "Authorization", "secret": True}]}
WITH_VARIABLE = {**HTTP, "headers": [{"name": "X", "value": "{{EVALSITE_TARGET_SECRET_GONE}}"}]}


@pytest.fixture(autouse=True)
def bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this machine have a sandbox."""
    monkeypatch.setattr(probe, "find_sandbox", lambda: SandboxOffer("bubblewrap", "0.11.0"))


def suite_of(*nodes: dict[str, Any], **case: Any) -> Suite:
    suite = make_suite(tree=tree(*(nodes or (QUALITY,))))
    make_case(suite=suite, key="A", recorded_output={"output": "hi"}, **case)
    return suite


def start(suite: Suite, target: Target | None = None, user: User | None = None) -> Run:
    return start_run(suite=suite, target=target or make_target(), started_by=user)


def reviewer(**columns: Any) -> Target:
    return make_target(**{"name": "reviewer", "kind": "http", "config": HTTP} | columns)


def with_lost_key() -> Target:
    model = make_model(slug="keyed", name="Keyed", encrypted_key="not to be read")
    return reviewer(kind="chat", config={}, model=model)


UNFIT: list[tuple[Callable[[], object], list[str]]] = [
    (lambda: None, ["there is no target of that name", "Add it under Targets, or name another"]),
    (lambda: reviewer(archived_at=timezone.now()), ["is archived"]),
    (
        lambda: reviewer(kind="recorded", config={}),
        ["recorded or pushed outputs", "Name a chat model"],
    ),
    (lambda: reviewer(kind="chat", config={}), ["no language model", "Choose one"]),
    (lambda: reviewer(config={}), ["url"]),
    (lambda: reviewer(config=WITH_SECRET), ["Authorization has no value stored", "Enter it"]),
    (lambda: reviewer(config=WITH_VARIABLE), ["EVALSITE_TARGET_SECRET_GONE is not set"]),
    (with_lost_key, ["Keyed: "]),
]


@pytest.mark.parametrize(("make", "said"), UNFIT)
@pytest.mark.parametrize("is_of_case", [False, True])
@pytest.mark.parametrize("node", [QUALITY, PANEL], ids=["agent judge", "panel"])
def test_a_target_that_cannot_judge_is_refused_with_evaluator_and_remedy(
    make: Callable[[], object], said: list[str], is_of_case: bool, node: dict[str, Any]
) -> None:
    make()
    if is_of_case:
        check = {**LEAF, "name": "x", "kind": "text_check", "config": {"operator": "is_json"}}
        suite = suite_of(check, evaluators=tree(node))
    else:
        suite = suite_of(node)

    with pytest.raises(AgentNotReadyError) as refusal:
        start(suite)

    assert str(refusal.value).startswith("Evaluator quality asks the target 'reviewer' to judge")
    for words in said:
        assert words in str(refusal.value)
    assert not Run.objects.exists()


def test_what_judges_is_frozen_without_secrets_and_its_model_with_it() -> None:
    http = reviewer(config=WITH_SECRET, encrypted_secrets={"authorization": encrypt("t0p-s3cret")})
    model = make_model(slug="mild")
    second = make_target(name="second", kind="chat", model=model, config={"system_prompt": "Hm."})

    run = start(suite_of(QUALITY, TONE))

    plan = read_plan(run.snapshot)
    assert {name: (one.id, one.kind, one.model) for name, one in plan.agents.items()} == {
        "reviewer": (http.pk, "http", ""),
        "second": (second.pk, "chat", "mild"),
    }
    assert list(plan.models) == ["mild"]
    assert run.judge_name == "reviewer, second"
    assert "s3cret" not in str(run.snapshot)
    assert read_plan(plan.as_json()) == plan


def test_agents_too_many_to_name_are_named_whole_as_far_as_they_go() -> None:
    names = [f"reviewer number {number}" for number in range(9)]
    for name in names:
        reviewer(name=name)
    asked = [{**QUALITY, "name": name, "config": {"agent": name}} for name in names]

    run = start(suite_of(*asked))

    assert run.judge_name.endswith("reviewer number 4, reviewer number 5, …")


def test_the_run_says_who_judges_beside_its_judge(viewer_client: Client) -> None:
    reviewer()
    make_target(name="second", kind="http", config=HTTP)
    run = start_run(
        suite=suite_of(QUALITY, TONE, {**JUDGED}),
        target=make_target(),
        judge=make_model(slug="usual"),
        started_by=None,
    )

    page = viewer_client.get(reverse("runs:run", args=[run.suite.slug, run.number]))

    text = page.content.decode()
    assert "judge: usual" in text
    assert "judge agents: reviewer, second" in text
    assert "agent judge, ×1, by second" in text


def test_a_snapshot_from_before_there_were_agents_is_read() -> None:
    check = {**LEAF, "name": "x", "kind": "text_check", "config": {"operator": "is_json"}}
    run = start(suite_of(check))

    assert "agents" not in run.snapshot
    assert read_plan(run.snapshot).agents == {}


def test_an_agent_that_was_set_up_anew_is_told_before_two_runs_are_compared() -> None:
    agent, suite = reviewer(), suite_of()
    first = start(suite)
    agent.config = HTTP | {"output_path": "said"}
    agent.save()
    second = start(suite)

    [found] = differences(RunFacts(first.snapshot), RunFacts(second.snapshot))
    assert (found.what, found.text) == ("judge", "settings of the agent reviewer differ")
    assert differences(RunFacts(first.snapshot), RunFacts(first.snapshot)) == ()


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ("type: agent-judge, agent: reviewer", "agent"),
        ("type: deliberation, agents: [second, reviewer]", "agents"),
    ],
)
def test_an_import_refuses_recorded_outputs_as_judge_and_takes_a_target_that_is_to_come(
    settings: str, field: str
) -> None:
    text = f"""\
name: s
evaluators: [{{name: quality, {settings}}}]
tests: [{{id: a, input: hi, output: ho}}]
"""
    content = suite_files.read_suite(text.encode())
    import_suite(content, imported_by=None)
    reviewer(kind="recorded", config={})

    with pytest.raises(
        UnknownJudgeError, match=f"evaluator quality: {field}: .*recorded or pushed outputs"
    ):
        import_suite(content, imported_by=None)


@pytest.fixture
def program() -> Target:
    """Give a program that judges."""
    return reviewer(kind="command", config={"command": "true"})


@pytest.mark.parametrize("way", ["start", "resume", "retry", "retry scoring"])
@pytest.mark.parametrize("config", [None, {"agents": ["reviewer", "reviewer"]}])
def test_a_program_that_judges_starts_for_those_alone_who_may_run_scripts(
    way: str, config: dict[str, Any] | None, program: Target, settings: Any
) -> None:
    node = {**PANEL, "config": config} if config else QUALITY
    suite, settings.SCRIPTS = suite_of(node), True
    member = make_member("editor")
    go: Callable[[User | None], object]
    if way == "start":
        go = lambda user: start(suite, user=user)  # noqa: E731 - one of four ways
    else:
        run = start(suite)
        if way == "resume":
            stop_run(run, stopped_by=None)
            go = lambda user: resume_run(run, resumed_by=user)  # noqa: E731
        else:
            Run.objects.update(status=RunStatus.COMPLETED, done_count=1, error_count=1)
            run.results.update(status="error", error="x")
            keeps = way == "retry scoring"
            go = lambda user: retry_results(run, asked_by=user, keep_output=keeps)  # noqa: E731
        # What the run was started with counts, not what the target is now.
        Target.objects.filter(pk=program.pk).update(kind="http", config=HTTP)

    with pytest.raises(ScriptsRefusedError, match="quality by the target reviewer.*you may not"):
        go(member)
    settings.SCRIPTS = False
    with pytest.raises(ScriptsRefusedError, match="switched off"):
        go(None)
    settings.SCRIPTS = True
    member.user_permissions.add(Permission.objects.get(codename="run_scripts"))
    go(User.objects.get(pk=member.pk))


def test_the_form_counts_the_calls_of_agents_and_warns_of_one_that_judges_itself(
    editor_client: Client,
) -> None:
    model = make_model(slug="mild", model_id="maker/mild-2")
    own = make_target(name="second", kind="chat", model=model)
    alike = make_target(name="cousin", kind="chat", model=make_model(slug="m", model_id="mild-1"))
    other = make_target(name="outsider", kind="http", config=HTTP)
    suite = suite_of(TONE)
    own_tree = tree({**QUALITY, "config": {"agent": "outsider"}})
    make_case(suite=suite, key="B", evaluators=own_tree, evaluators_append=True)
    check = {**LEAF, "name": "x", "kind": "text_check", "config": {"operator": "is_json"}}
    make_case(suite=suite, key="C", evaluators=tree(check))
    voter = make_target(name="voter", kind="http", config=HTTP)
    panel = {**PANEL, "name": "panel", "config": {"agents": ["voter", "outsider"], "rounds": 1}}
    make_case(suite=suite, key="D", evaluators=tree(panel))
    address = reverse("runs:run-new", args=[suite.slug])

    def page(target: Target) -> str:
        return editor_client.get(address, {"target": target.pk}).content.decode()

    assert "Target second would judge its own answers, asked by “tone”." in page(own)
    assert "Target voter would judge its own answers, asked by “panel”." in page(voter)
    assert "same model family as target cousin" in page(alike)
    assert "Target outsider would judge its own answers, asked by “quality”, “panel”." in page(
        other
    )
    shown = page(make_target(kind="http", config=HTTP))
    # Two samples for each of two cases, one that a case adds, and two rounds of a panel of two.
    assert "up to 9<br>" in shown
    assert "own answers" not in shown
    assert "same model family" not in shown
