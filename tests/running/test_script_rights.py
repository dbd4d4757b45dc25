"""Who may run scripts: the switch, the right and the sandbox, over start, resume and retry."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from evaluators.sandbox import probe
from evaluators.sandbox.probe import SandboxOffer
from evaluators.scoring.tree import EvaluatorSpec
from runs.files.importing import import_suite
from runs.formats.suite_files import read_suite
from runs.models.results import Result
from runs.models.runs import Run, RunStatus
from runs.models.suites import Suite
from runs.running.checks import ScriptsRefusedError, check_scripts, scripts_problem
from runs.running.retrying import resume_run, retry_results, stop_run
from runs.running.services import start_run
from runs.specs.suites import SuiteWithCases
from runs.suites.services import ProgramsRefusedError, restore_version
from runs.target_kinds import target_kinds
from tests.support.factories import make_case, make_suite, make_target
from tests.support.members import make_client, make_member
from tests.support.worker_lines import make_worker

pytestmark = pytest.mark.django_db

LEAF = {"weight": 1.0, "required": False, "required_below": None, "negate": False, "children": []}
SCRIPT = {**LEAF, "name": "pii", "kind": "script", "config": {"command": ["true"]}}
CONTAINS = {"operator": "contains", "value": "refund"}
CHECK = {**LEAF, "name": "refund", "kind": "text_check", "config": CONTAINS}
CODE_JUDGE = {"type": "code_judge", "command": ["true"]}
Go = Callable[[Suite, User | None], object]


def tree(*children: dict[str, Any], aggregator: dict[str, Any] | None = None) -> dict[str, Any]:
    config = {"aggregator": aggregator or {"type": "weighted_average"}}
    return {**LEAF, "name": "all", "kind": "composite", "config": config, "children": [*children]}


@pytest.fixture(autouse=True)
def bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this machine have a sandbox."""
    monkeypatch.setattr(probe, "find_sandbox", lambda: SandboxOffer("bubblewrap", "0.11.0"))


def member(*, allowed: bool) -> User:
    made = make_member("editor")
    if allowed:
        made.user_permissions.add(Permission.objects.get(codename="run_scripts"))
    return User.objects.get(pk=made.pk)


def suite_of(nodes: dict[str, Any] | None = None, **case: Any) -> Suite:
    made = make_suite(tree=nodes or tree(SCRIPT))
    make_case(suite=made, key="A", recorded_output={"output": "hi"}, **case)
    return made


def start(suite: Suite, user: User | None) -> Run:
    target = make_target()
    return start_run(suite=suite, target=target, started_by=user)


def ended(suite: Suite, settings: Any, status: RunStatus) -> Run:
    """Make a run that somebody who may started, and that ended."""
    switched, settings.SCRIPTS = settings.SCRIPTS, True
    run = start(suite, None)
    settings.SCRIPTS = switched
    if status == RunStatus.STOPPED:
        stop_run(run, stopped_by=None)
    else:
        Run.objects.filter(pk=run.pk).update(status=status, done_count=1, error_count=1)
        Result.objects.filter(run=run).update(status="error", error="x")
    run.refresh_from_db()
    return run


@pytest.fixture(params=["start", "resume", "retry"])
def go(request: pytest.FixtureRequest, settings: Any) -> Go:
    """Give every way to have scripts run."""
    ways: dict[str, Go] = {
        "start": start,
        "resume": lambda suite, user: resume_run(
            ended(suite, settings, RunStatus.STOPPED), resumed_by=user
        ),
        "retry": lambda suite, user: retry_results(
            ended(suite, settings, RunStatus.COMPLETED), asked_by=user
        ),
    }
    return ways[request.param]


@pytest.mark.parametrize(
    ("switch", "right", "refusal"),
    [
        (False, "role", "EVALSITE_SCRIPTS=1"),
        (False, "nobody", "EVALSITE_SCRIPTS=1"),
        (False, "own", "EVALSITE_SCRIPTS=1"),
        (False, "none", "EVALSITE_SCRIPTS=1"),
        (True, "none", "you may not run scripts. An admin can allow it"),
        (True, "own", ""),
        (True, "role", ""),
        (True, "nobody", ""),
    ],
)
@pytest.mark.writes_results
def test_the_switch_and_the_right_decide(
    go: Go, settings: Any, switch: bool, right: str, refusal: str
) -> None:
    settings.SCRIPTS = switch
    users = {
        "role": lambda: make_member("admin"),
        "nobody": lambda: None,
        "own": lambda: member(allowed=True),
        "none": lambda: member(allowed=False),
    }
    suite, user = suite_of(), users[right]()
    before = Run.objects.count()

    if not refusal:
        assert go(suite, user)
        return
    with pytest.raises(ScriptsRefusedError) as refused:
        go(suite, user)

    assert refusal in str(refused.value)
    assert "1 evaluator runs a script (pii)" in str(refused.value)
    open_ones = Result.objects.filter(status="pending", run__status__in=("queued", "running"))
    assert not open_ones.exists()
    assert Run.objects.count() <= before + 1


def test_without_a_sandbox_nothing_starts(
    go: Go, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SCRIPTS = True
    suite = suite_of()
    none = SandboxOffer("none", reason="bubblewrap is not installed")

    def offered() -> SandboxOffer:
        return none if settings.REFUSES else SandboxOffer("bubblewrap")

    settings.REFUSES = False
    run = ended(suite, settings, RunStatus.STOPPED)
    settings.REFUSES = True
    monkeypatch.setattr(probe, "find_sandbox", offered)

    with pytest.raises(ScriptsRefusedError, match="bubblewrap is not installed"):
        resume_run(run, resumed_by=None)
    with pytest.raises(ScriptsRefusedError, match="no sandbox works on this machine"):
        start(suite, None)


@pytest.mark.parametrize(
    ("nodes", "case", "named"),
    [
        (tree(tree(SCRIPT)), {}, "all/pii"),
        (tree(CHECK, aggregator=CODE_JUDGE), {}, "the whole suite's aggregator"),
        (tree(tree(CHECK, aggregator=CODE_JUDGE)), {}, "(all)"),
        (tree(CHECK), {"evaluators": tree(SCRIPT)}, "pii"),
        (tree(CHECK), {"evaluators": tree(SCRIPT), "evaluators_append": True}, "pii"),
    ],
)
def test_scripts_are_found_wherever_they_stand(
    settings: Any, nodes: dict[str, Any], case: dict[str, Any], named: str
) -> None:
    settings.SCRIPTS = False
    with pytest.raises(ScriptsRefusedError) as refused:
        start(suite_of(nodes, **case), None)
    assert named in str(refused.value)


def test_runs_without_scripts_ask_nobody(go: Go, settings: Any) -> None:
    settings.SCRIPTS = False
    assert go(suite_of(tree(CHECK)), member(allowed=False))


@pytest.mark.parametrize("path", ["pii", "refund"])
def test_scoring_again_by_another_evaluator_is_held_to_the_same(settings: Any, path: str) -> None:
    settings.SCRIPTS = True
    # Where the guard lets the output pass now, the script behind it runs for the first time.
    gate = tree(CHECK, SCRIPT, aggregator={"type": "safety_gate", "required": ["refund"]})
    run = ended(suite_of(gate), settings, RunStatus.COMPLETED)

    with pytest.raises(ScriptsRefusedError, match="you may not run scripts"):
        retry_results(run, asked_by=member(allowed=False), paths=[path])
    assert retry_results(run, asked_by=None, paths=[path]) == 1


def test_a_target_that_runs_a_program_is_held_to_the_same(settings: Any) -> None:
    command = replace(target_kinds()["recorded"], uses_sandbox=True)
    settings.SCRIPTS = True

    check_scripts((), command, None)
    with pytest.raises(ScriptsRefusedError, match="The target runs a program of its own, and you"):
        check_scripts((), command, member(allowed=False))


def page_of(suite: Suite, client: Client) -> str:
    return client.get(reverse("runs:run-new", args=[suite.slug])).content.decode()


def test_the_start_form_says_it_before_and_after(settings: Any) -> None:
    settings.SCRIPTS = True
    suite, target = suite_of(), make_target()
    refused, allowed = make_client(member(allowed=False)), make_client(make_member("admin"))

    assert "This cannot be started." in page_of(suite, refused)
    assert "May run scripts" in page_of(suite, refused)
    assert "This cannot be started." not in page_of(suite, allowed)

    sent = {"target": target.pk, "cases": "all", "repetitions": 1, "concurrency": 1}
    address = reverse("runs:run-new", args=[suite.slug])
    answer = refused.post(address, sent)
    assert answer.status_code == 422
    assert "you may not run scripts" in answer.content.decode()
    assert not Run.objects.exists()
    assert allowed.post(address, sent).status_code == 302


@pytest.mark.writes_results
def test_the_retry_form_and_the_resume_button_say_it(settings: Any) -> None:
    settings.SCRIPTS = True
    client = make_client(member(allowed=False))
    done = ended(suite_of(), settings, RunStatus.COMPLETED)
    stopped = ended(suite_of(), settings, RunStatus.STOPPED)

    retry = reverse("runs:run-retry", args=[done.suite.slug, done.number])
    assert "This cannot be rerun." in client.get(f"{retry}?which=errored").content.decode()
    assert client.post(retry, {"which": "errored"}).status_code == 422
    # On the page, and in the part that replaces it when the run has ended.
    for name in ("runs:run", "runs:run-live"):
        page = client.get(reverse(name, args=[stopped.suite.slug, stopped.number]))
        assert "It cannot be resumed now." in page.content.decode()
    resume = reverse("runs:run-resume", args=[stopped.suite.slug, stopped.number])
    answer = client.post(resume, {}, follow=True)
    assert "you may not run scripts" in answer.content.decode()
    stopped.refresh_from_db()
    assert stopped.status == RunStatus.STOPPED


@pytest.mark.parametrize(
    ("shown", "refused"),
    [
        ((), ""),
        (("none: bubblewrap is not installed",), "no running worker can run them"),
        (("scripts off; bubblewrap 0.11.0",), "no running worker can run them"),
        (("none: bubblewrap is not installed", "bubblewrap 0.11.0"), ""),
    ],
)
def test_where_workers_are_on_machines_of_their_own_theirs_is_the_sandbox_that_counts(
    settings: Any, monkeypatch: pytest.MonkeyPatch, shown: tuple[str, ...], refused: str
) -> None:
    settings.SCRIPTS, settings.IS_EMBEDDED = True, False
    monkeypatch.setattr(probe, "find_sandbox", lambda: SandboxOffer("none", reason="a slim image"))
    for number, words in enumerate(shown):
        make_worker(pid=number + 1, sandbox=words)

    said = scripts_problem([EvaluatorSpec.model_validate(tree(SCRIPT))], None, member(allowed=True))
    assert refused in said
    assert bool(said) is bool(refused)


FILE = b"""
name: graded
evaluators:
  - {name: ok, type: code_judge, script: [python, ./judges/check.py]}
tests: [{id: a, input: hi, expected_output: hi}]
"""


def suite_from(files: dict[str, bytes]) -> SuiteWithCases:
    return read_suite(files["graded.yaml"], files=files, file="graded.yaml")


@pytest.mark.parametrize(
    "changed",
    [
        {"judges/check.py": b"print('planted')"},
        {"judges/helper.py": b"print('planted')"},
        {
            "graded.yaml": FILE.replace(
                b"input: hi", b"input: [{role: user, content: [{type: file, value: ./json.py}]}]"
            ),
            "json.py": b"print('planted')",
        },
        {"graded.yaml": FILE.replace(b"check.py]", b"check.py, --planted]")},
        {
            "graded.yaml": FILE.replace(
                b"expected_output: hi",
                b'expected_output: hi, evaluators: [{type: script, script: "echo planted"}]',
            )
        },
    ],
    ids=["its file", "a file beside it", "a file elsewhere", "its command", "the script of a case"],
)
def test_a_member_who_may_not_run_scripts_cannot_change_those_of_a_suite(
    changed: dict[str, bytes],
) -> None:
    files = {"graded.yaml": FILE, "judges/check.py": b"print(1)", "readme.md": b"one"}
    admin, editor = make_member("admin"), make_member("editor")
    import_suite(suite_from(files), imported_by=admin)

    with pytest.raises(ProgramsRefusedError, match="you may not run scripts, so you cannot add or"):
        import_suite(suite_from(files | changed), imported_by=editor)
    assert import_suite(suite_from(files | changed), imported_by=admin).version == 2


@pytest.mark.parametrize("name", ["prüfung.py", "Bob's.py", 'the "check".py'])
def test_a_script_is_found_by_any_name(name: str) -> None:
    named = FILE.decode().replace(
        "[python, ./judges/check.py]", f"[python, {json.dumps(f'./judges/{name}')}]"
    )
    files = {"graded.yaml": named.encode(), f"judges/{name}": b"print(1)"}
    import_suite(suite_from(files), imported_by=make_member("admin"))
    with pytest.raises(ProgramsRefusedError):
        import_suite(
            suite_from(files | {f"judges/{name}": b"print(2)"}), imported_by=make_member("editor")
        )


def test_a_member_who_may_not_run_scripts_cannot_restore_an_earlier_script() -> None:
    files = {"graded.yaml": FILE, "judges/check.py": b"print(1)"}
    admin, editor = make_member("admin"), make_member("editor")
    for content in (b"print(1)", b"print(2)"):
        suite = import_suite(suite_from(files | {"judges/check.py": content}), imported_by=admin)
    with pytest.raises(ProgramsRefusedError):
        restore_version(suite, 1, by=editor)
    assert restore_version(suite, 1, by=admin).number == 3


def test_a_member_who_may_not_run_scripts_changes_the_rest_of_a_suite_with_some() -> None:
    files = {"graded.yaml": FILE, "judges/check.py": b"print(1)"}
    import_suite(suite_from(files), imported_by=make_member("admin"))
    more = {"graded.yaml": FILE + b"description: Graded by a script\n"}
    assert import_suite(suite_from(files | more), imported_by=make_member("editor")).version == 2


def test_a_file_may_go_from_a_suite_with_scripts_by_a_member_who_may_not_run_them() -> None:
    attached = b"input: [{role: user, content: [{type: file, value: ./order.pdf}]}]"
    files = {
        "graded.yaml": FILE.replace(b"input: hi", attached),
        "judges/check.py": b"print(1)",
        "order.pdf": b"a",
    }
    import_suite(suite_from(files), imported_by=make_member("admin"))
    without = import_suite(
        suite_from(files | {"graded.yaml": FILE}), imported_by=make_member("editor")
    )
    assert without.version == 2
    assert [file.path for file in without.files.all()] == ["judges/check.py"]


def test_a_member_who_may_not_run_scripts_cannot_change_the_command_of_a_target() -> None:
    target = make_target(name="agent", kind="command", config={"command": "python3 agent.py"})
    client = make_client(make_member("editor"))
    address = reverse("runs:target-edit", args=[target.pk])
    form = client.get(address).context["form"]
    same = {name: form[name].value() for name in form.fields if form[name].value() is not None}
    planted = same | {"command": "python3 planted.py"}
    for place in (address, "/targets/new/?kind=command"):
        answer = client.post(place, planted | {"name": "planted"})
        assert answer.status_code == 422
        assert "This target runs a program, and you may not" in answer.content.decode()
    target.refresh_from_db()
    assert (target.name, target.config["command"]) == ("agent", "python3 agent.py")

    assert make_client(make_member("admin")).post(address, planted).status_code == 302
    target.refresh_from_db()
    rest = {"command": "python3 planted.py", "description": "Ours", "seen": ""}
    assert client.post(address, same | rest).status_code == 302
