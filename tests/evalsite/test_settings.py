"""Start the project in processes of their own, as an operator does, and read what it says."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from evalsite import settings
from tests.production.readme import readme_commands
from tests.services.site import run

pytestmark = pytest.mark.processes
ROOT = Path(__file__).resolve().parents[2]


def manage(*arguments: str, **env: str) -> tuple[int, str]:
    """Run a management command in a clean environment; return its exit code and all it printed."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = run(["manage.py", *arguments], env=kept | env)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_deployment_checks_pass(tmp_path: Path) -> None:
    code, output = manage(
        "check", "--deploy", "--fail-level", "WARNING", EVALSITE_DATA_DIR=str(tmp_path)
    )
    assert code == 0, output
    assert "no issues" in output


WRONG_TOGETHER = {
    "EVALSITE_DEBUG": "perhaps",
    "PORT": "eighty",
    "EVALSITE_URL": "evals.example",
    "EVALSITE_SECRET_KEY": "change-me-please-change-me-please-change-me",
    "EVALSITE_ENCRYPTION_KEY": "not base64",
    "EVALSITE_TIME_ZONE": "Mars/Olympus",
    "EVALSITE_LOG_LEVEL": "LOUD",
    "DATABASE_URL": "mysql://localhost/evals",
    "CELERY_BROKER_URL": "amqp://localhost",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    [
        WRONG_TOGETHER,
        {"EVALSITE_URL": "http://evals.example", "EVALSITE_SECRET_KEY": "short"},
        {"EVALSITE_SECRET_KEY_FILE": "/nowhere/secret"},
        {"EVALSITE_DATA_DIR": "/dev/null/data"},
        {
            "EVALSITE_SCRIPTS": "sometimes",
            "EVALSITE_SCRIPTS_NETWORK": "2",
            "EVALSITE_SCRIPT_SECONDS": "0",
            "EVALSITE_SCRIPT_MEMORY_MB": "1 GB",
            "EVALSITE_SCRIPT_PROCESSES": "-1",
            "EVALSITE_SCRIPT_OUTPUT_KB": "much",
            "EVALSITE_SCRIPT_DISK_MB": "0",
            "EVALSITE_SCRIPT_FILES": "0",
            "EVALSITE_SCRIPT_CONCURRENCY": "-1",
            "EVALSITE_SCRIPT_PYTHON": "python3",
            "EVALSITE_SCRIPT_FOLDERS": "/usr,/nowhere",
            "EVALSITE_AGENTS_DIR": "agents",
        },
    ],
)
def test_all_wrong_values_are_reported_at_once_by_variable(
    wrong: dict[str, str], tmp_path: Path
) -> None:
    code, output = manage("check", **{"EVALSITE_DATA_DIR": str(tmp_path), **wrong})
    assert code == 1
    assert set(re.findall(r"\(evalsite\.E\.(\w+)\)", output)) == set(wrong)
    assert "Traceback" not in output


@pytest.mark.slow
def test_plain_http_is_allowed_on_loopback_and_on_request(tmp_path: Path) -> None:
    data = {"EVALSITE_DATA_DIR": str(tmp_path)}
    assert manage("check", EVALSITE_URL="http://127.0.0.1:8001", **data)[0] == 0
    lan = {"EVALSITE_URL": "http://evals.lan", "EVALSITE_PLAIN_HTTP": "1"}
    assert manage("check", **lan, **data)[0] == 0


@pytest.mark.slow
def test_https_without_a_trusted_proxy_causes_a_warning(tmp_path: Path) -> None:
    data = {"EVALSITE_DATA_DIR": str(tmp_path), "EVALSITE_URL": "https://evals.example"}
    assert "EVALSITE_TRUST_PROXY" in manage("check", **data)[1]
    assert "no issues" in manage("check", EVALSITE_TRUST_PROXY="1", **data)[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://evals.example", "__Host-evalsite_session __Host-evalsite_csrf True"),
        ("http://127.0.0.1:8001", "evalsite_session evalsite_csrf False"),
    ],
)
def test_by_https_cookies_are_bound_to_the_host(tmp_path: Path, url: str, expected: str) -> None:
    code = (
        "from django.conf import settings as s;"
        "print(s.SESSION_COOKIE_NAME, s.CSRF_COOKIE_NAME, s.SESSION_COOKIE_SECURE)"
    )
    data = {"EVALSITE_DATA_DIR": str(tmp_path), "EVALSITE_URL": url, "EVALSITE_TRUST_PROXY": "1"}
    assert expected in manage("shell", "--verbosity", "0", "-c", code, **data)[1]


@pytest.mark.slow
def test_a_shared_broker_needs_shared_keys(tmp_path: Path) -> None:
    data = {"EVALSITE_DATA_DIR": str(tmp_path), "CELERY_BROKER_URL": "redis://localhost:6379/0"}
    code, output = manage("check", **data)
    assert code == 0
    assert "EVALSITE_ENCRYPTION_KEY" in output


def test_several_web_processes_need_a_shared_broker(tmp_path: Path) -> None:
    data = {"EVALSITE_DATA_DIR": str(tmp_path), "EVALSITE_WEB_PROCESSES": "3"}
    code, output = manage("check", **data)
    assert code != 0
    assert "EVALSITE_WEB_PROCESSES is 3" in output
    assert "CELERY_BROKER_URL" in output
    code, _ = manage("check", **data, CELERY_BROKER_URL="redis://localhost:6379/0")
    assert code == 0


@pytest.mark.slow
def test_the_web_process_loads_no_heavy_libraries(tmp_path: Path) -> None:
    # psycopg is not among them: the framework of the API looks for it wherever it is installed.
    script = (
        "import gc, sys; import evalsite.asgi, evalsite.urls;"
        "from django.urls import get_resolver; get_resolver().url_patterns;"
        "heavy = {'openai', 'scipy', 'plotly', 'redis'} & set(sys.modules);"
        "print(sorted(heavy), gc.isenabled())"
    )
    env = {**os.environ, "EVALSITE_DATA_DIR": str(tmp_path), "DATABASE_URL": ""}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**env, "DJANGO_SETTINGS_MODULE": "evalsite.settings"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[] True"


@pytest.mark.slow
def test_only_the_web_process_beside_separate_workers_limits_statements(tmp_path: Path) -> None:
    script = (
        "import evalsite; evalsite.load(); from django.db import connection;"
        "has_limit = lambda: 'statement_timeout=5s' in connection.settings_dict['OPTIONS']['options'];"
        "before = has_limit(); import evalsite.asgi; print(before, has_limit())"
    )
    env = {
        "EVALSITE_DATA_DIR": str(tmp_path),
        "EVALSITE_MAX_STATEMENT_S": "5",
        "DATABASE_URL": "postgresql://ada@db.example/evals",
    }
    for broker, limits in (("redis://localhost:6379/0", "False True"), ("", "False False")):
        done = run(["-c", script], env={**os.environ, **env, "CELERY_BROKER_URL": broker})
        assert done.stdout.strip() == limits, done.stderr


@pytest.mark.slow
def test_the_objects_of_a_large_page_are_not_walked_again_and_again(tmp_path: Path) -> None:
    script = (
        "import evalsite, gc; evalsite.load(); walks = [];"
        "gc.callbacks.append(lambda phase, facts: walks.append(phase));"
        "kept = [[] for _ in range(300_000)]; print(walks.count('start'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "EVALSITE_DATA_DIR": str(tmp_path), "DATABASE_URL": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 10


def documented_variables() -> set[str]:
    text = (ROOT / ".env.example").read_text()
    return set(re.findall(r"^# ([A-Z][A-Z0-9_]*\*?)=", text, flags=re.MULTILINE))


def test_exactly_the_documented_variables_are_read() -> None:
    assert documented_variables() == set(settings.ENV.names)


def test_every_variable_is_read_once() -> None:
    assert len(settings.ENV.names) == len(set(settings.ENV.names))


def test_the_readme_links_the_variables() -> None:
    assert ".env.example" in (ROOT / "README.md").read_text()


READS_ENVIRONMENT = re.compile(r"os\.(environ(?!\.setdefault)|getenv)")


def reads_environment(path: Path) -> bool:
    """Tell whether the code does; what its texts show to users does not count."""
    source = path.read_text()
    if not READS_ENVIRONMENT.search(source):
        return False
    return bool(READS_ENVIRONMENT.search(ast.unparse(without_texts(ast.parse(source)))))


def without_texts(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return tree


# What `evalsite up` hands on to the server that it becomes, before there are settings.
PASSES_IT_ON = {"evalsite/cli.py", "evalsite/gunicorn.py", "evalsite/management/commands/up.py"}
# These work in the environment of an agent, far from the site.
ELSEWHERE = {"evalsite/client.py", "evalsite/pytest_plugin.py", "evalsite/remote/agents.py"}


@pytest.mark.parametrize("package", ["evalsite", "runs", "evaluators"])
def test_only_the_settings_read_the_environment(package: str) -> None:
    readers = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / package).rglob("*.py")
        if reads_environment(path)
    }
    assert readers - PASSES_IT_ON - ELSEWHERE == (
        {"evalsite/env.py"} if package == "evalsite" else set()
    )


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["Keycloak", "Microsoft Entra", "Google"])
def test_the_examples_of_providers_in_the_readme_pass_the_checks(
    provider: str, tmp_path: Path
) -> None:
    (tmp_path / "oidc_secret").write_text("secret")
    example = readme_commands(f"# {provider}").replace("/etc/evalsite", str(tmp_path))
    done = subprocess.run(
        ["sh", "-c", f"set -a\n{example}\nexec {sys.executable} manage.py check --tag environment"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "EVALSITE_DATA_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert "no issues" in done.stdout, done.stderr
