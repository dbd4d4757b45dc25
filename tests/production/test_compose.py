"""The services of `compose.yaml`: order of their end, rights, networks, variables."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from evalsite import gunicorn, settings
from runs.execution import active_runs
from tests.production.composed import FILE, Container, image, read, services
from tests.production.readme import readme_commands
from tests.services.database import Database
from tests.services.postgresql import postgresql
from tests.services.processes import (
    ROOT,
    Process,
    children,
    free_port,
    running,
    scratch_folder,
    wait_until,
)
from tests.services.redis import installed_redis, redis_server, wheel_redis
from tests.services.site import is_healthy

OURS = ("prepare", "web", "worker")
ONCE = ("prepare",)
OF_THE_IMAGE = {
    *("EVALSITE_DATA_DIR", "EVALSITE_EXPORTS_DIR", "EVALSITE_LISTEN", "EVALSITE_HEARTBEAT_FILE"),
    *("EVALSITE_DEMO", "EVALSITE_DEBUG"),
}
# A folder or program of the machine, which a container sees only once it is mounted.
WITH_A_MOUNT = {"EVALSITE_AGENTS_DIR", "EVALSITE_SCRIPT_FOLDERS", "EVALSITE_SCRIPT_PYTHON"}
NAMED_BY_THE_OPERATOR = {"EVALSITE_MODEL_KEY_*", "EVALSITE_TARGET_SECRET_*"}
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")

STORE = """

from runs.models.suites import Case, Suite
from runs.models.suites import Target
from runs.specs.suites import SuiteSpec
from runs.running import services
suite = Suite(slug="support")
suite.write(SuiteSpec.model_validate({"title": "Support", "evaluators": {
    "name": "all", "kind": "text_check", "config": {"operator": "contains", "value": "refund"}}}))
for number in range(20):
    Case.objects.create(
        suite=suite, key=f"C-{number}", position=number, content_hash=str(number), input=[],
        recorded_output={"output": "a refund"},
    )
target = Target.objects.create(name="agent", kind="recorded")
services.start_run(suite=suite, target=target, started_by=None)
"""


def test_calls_in_flight_end_before_a_process_that_is_told_to_end_is_killed() -> None:
    for name in ("web", "worker"):
        grace = services()[name]["stop_grace_period"]
        assert grace in (f"{settings.STOP_S}s", f"${{EVALSITE_STOP_S:-{settings.STOP_S}}}s")
    assert active_runs.LAST_REPLIES_S < gunicorn.graceful_timeout < settings.STOP_S


@pytest.mark.parametrize("name", sorted(services()))
def test_every_service_starts_again_shows_its_health_and_keeps_its_log_short(name: str) -> None:
    service = services()[name]
    assert service["restart"] in ("unless-stopped", "on-failure")
    assert "privileged" not in service
    assert service["logging"]["options"].keys() == {"max-size", "max-file"}
    if name not in ONCE:
        assert service["healthcheck"]["test"]
        assert service["deploy"]["resources"]["limits"].keys() == {"memory", "pids"}


@pytest.mark.parametrize("name", sorted(services()))
def test_no_service_has_rights_that_it_does_not_need(name: str) -> None:
    service = services()[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["read_only"]
    # The image of ours names its user itself.
    assert name in OURS or service["user"] == "999:999"


def test_database_and_broker_reach_nothing_outside() -> None:
    networks = {name: service["networks"] for name, service in services().items()}
    assert read()["networks"]["inside"] == {"internal": True}
    assert networks["postgres"] == networks["redis"] == networks["prepare"] == ["inside"]
    assert networks["web"] == networks["worker"] == ["inside", "outside"]


@pytest.mark.parametrize("name", OURS)
def test_every_variable_is_one_that_is_read(name: str) -> None:
    known = {known for known in settings.ENV.names if not known.endswith("*")}
    secrets = {f"{known}_FILE" for known in known}
    assert services()[name]["environment"].keys() <= known | secrets


def test_what_dot_env_sets_reaches_the_containers() -> None:
    text, secrets = FILE.read_text(encoding="utf-8"), services()["web"]["environment"].keys()
    passed = {
        name for name in settings.ENV.names if f"${{{name}:-" in text or f"{name}_FILE" in secrets
    }
    assert set(settings.ENV.names) - passed == OF_THE_IMAGE | WITH_A_MOUNT | NAMED_BY_THE_OPERATOR


def test_every_secret_is_a_file_and_every_one_is_used() -> None:
    composed = read()
    named = {
        secret for service in composed["services"].values() for secret in service.get("secrets", ())
    }
    assert named == composed["secrets"].keys()
    for name, secret in composed["secrets"].items():
        assert secret == {"file": f"./secrets/{name}"}
    parts = ("environment", "command")
    text = str([[service.get(part) for part in parts] for service in composed["services"].values()])
    assert set(re.findall(r"/run/secrets/(\w+)", text)) == named


def test_nothing_but_the_web_process_can_be_reached_and_only_from_this_machine() -> None:
    published = {
        name: service["ports"] for name, service in services().items() if "ports" in service
    }
    assert published == {"web": ["127.0.0.1:8000:8000"]}


def test_everything_waits_for_what_it_needs() -> None:
    needs = {name: service.get("depends_on", {}) for name, service in services().items()}
    prepared = {"condition": "service_completed_successfully"}
    healthy = {"condition": "service_healthy"}
    assert needs["prepare"] == {"postgres": healthy}
    assert needs["web"] == needs["worker"] == {"prepare": prepared, "redis": healthy}


def test_secrets_data_and_history_stay_out_of_the_image(tmp_path: Path) -> None:
    inside = {path.name for path in image(tmp_path).iterdir()}
    assert inside == {
        *("manage.py", "pyproject.toml", "requirements.lock", "requirements-uv.lock", "README.md"),
        *("sbom.cdx.json", ".env.example"),
        *("evalsite", "runs", "evaluators", "templates", "static", "examples"),
    }


def test_the_image_is_made_as_the_scripts_make_theirs_and_runs_without_root() -> None:
    setup = (ROOT / "scripts" / "setup").read_text(encoding="utf-8")
    for script in (setup, DOCKERFILE):
        assert "--require-hashes -r requirements-uv.lock" in script
    assert "--require-hashes -r pyproject.toml -c requirements.lock" in DOCKERFILE
    assert re.findall(r"^USER (.+)$", DOCKERFILE, flags=re.MULTILINE) == ["10001:10001"]
    assert commands_of("CMD") == [services()["web"]["command"]]


def test_the_image_knows_when_its_web_process_is_well() -> None:
    [(python, option, code)] = commands_of("HEALTHCHECK .* CMD")
    assert (python, option) == ("python", "-c")
    compile(code, "the health check", "exec")
    assert "/healthz?parts=database,broker" in code


def commands_of(instruction: str) -> list[list[str]]:
    """Return what an instruction of the Dockerfile runs, with its lines joined as the builder does."""
    joined = DOCKERFILE.replace("\\\n", "")
    found = re.findall(rf"^{instruction} (\[.*\])$", joined, flags=re.MULTILINE)
    return [json.loads(command) for command in found]


class Composed:
    """The services of compose.yaml as processes of this machine."""

    def __init__(self, folder: Path, url: str, broker: str) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.code = folder / "app"
        self.code.mkdir()
        image(self.code)
        self._make_secrets(url, broker)
        self.places = {
            "/run/secrets": str(folder / "secrets"),
            "http://127.0.0.1:8000": self.url,
            '"127.0.0.1", 8000': f'"127.0.0.1", {self.port}',
            "0.0.0.0": "127.0.0.1",
            "/tmp/worker-heartbeat": str(folder / "beat"),
        }

    def container(self, name: str) -> Container:
        service = services()[name]
        # The one environment that a port is free in differs from machine to machine.
        if name == "web":
            service["environment"]["PORT"] = str(self.port)
        return Container(service, self.code, self.places)

    def run_once(self, process: Process) -> int:
        process.begin()
        return process.wait(60)

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _make_secrets(self, url: str, broker: str) -> None:
        """Make them by the commands of the README, but for the addresses of database and broker."""
        make_secrets(self.folder)
        secrets = self.folder / "secrets"
        (secrets / "database_url").write_text(f"{url}\n")
        (secrets / "broker_url").write_text(f"{broker}\n")


def make_secrets(folder: Path) -> None:
    """Make them by the commands of the README."""
    commands = readme_commands("mkdir -m 700 secrets").partition("docker compose")[0]
    subprocess.run(["sh", "-c", commands], cwd=folder, check=True)


@pytest.fixture(scope="module")
def composed() -> Iterator[Composed]:
    with scratch_folder("compose") as folder, postgresql() as server, redis_server() as broker:
        yield Composed(folder, server.create("evalsite"), broker)


@pytest.mark.slow
@pytest.mark.processes
def test_redis_takes_its_settings_and_answers_those_who_know_the_password() -> None:
    program = installed_redis() or wheel_redis()
    assert program
    name, file, *settings_given = services()["redis"]["command"]
    assert (name, file) == ("redis-server", "/run/secrets/redis_conf")
    port = free_port()
    with scratch_folder("redis") as folder:
        make_secrets(folder)
        secrets = folder / "secrets"
        conf = str(secrets / "redis_conf")
        command = [program, conf, *settings_given, "--port", str(port), "--dir", folder]
        url = (
            (secrets / "broker_url").read_text().strip().replace("redis:6379", f"localhost:{port}")
        )
        client = redis.Redis.from_url(url, decode_responses=True)
        server = Process(command, log=folder / "log", is_ready=lambda: answers(client))
        with running(server), client:
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
            assert client.config_get("save") == {"save": ""}
            with redis.Redis(port=port) as stranger, pytest.raises(redis.AuthenticationError):
                stranger.ping()


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


@pytest.mark.slow
@pytest.mark.processes
def test_the_secrets_of_the_readme_are_for_the_containers_alone(composed: Composed) -> None:
    folder = composed.folder / "secrets"
    assert {path.name for path in folder.iterdir()} == read()["secrets"].keys()
    # The user in the container is another than the one who owns the files: they must be readable,
    # and the folder keeps the machine's other users from them.
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o644}


@pytest.mark.slow
@pytest.mark.processes
def test_the_services_start_work_a_run_off_and_show_their_health(composed: Composed) -> None:
    assert composed.run_once(composed.container("prepare").process(composed.log("prepare"))) == 0, (
        composed.log("prepare").read_text()
    )
    web, worker = composed.container("web"), composed.container("worker")
    web_process, worker_process = (
        web.process(composed.log("web")),
        worker.process(composed.log("worker")),
    )
    # Asked to fork, a worker does not: its children would share the connections of its pool.
    forking = worker.process(composed.log("forking"), "--pool", "prefork", "--hostname", "two@%h")
    try:
        worker_process.begin()
        forking.begin()
        web_process.begin()
        wait_until(lambda: is_healthy(composed.url))
        assert composed.run_once(web.check(composed.log("web-check"))) == 0
        assert len(children(web_process.pid)) == int(web.env["EVALSITE_WEB_PROCESSES"])
        wait_until(lambda: (composed.folder / "beat").exists())
        assert composed.run_once(worker.check(composed.log("worker-check"))) == 0

        subprocess.run(
            ["python", "manage.py", "shell", "--verbosity", "0", "-c", STORE],
            cwd=composed.code,
            env=web.env,
            check=True,
        )
        database = Database((composed.folder / "secrets" / "database_url").read_text().strip())
        wait_until(lambda: database.says("SELECT status = 'completed' FROM runs_run"))
        assert database.row("SELECT done_count, pass_count FROM runs_run") == (20, 20)
        wait_until(lambda: database.says("SELECT count(*) = 2 FROM runs_workerprocess"))
        assert children(forking.pid) == []
        database.close()
    finally:
        for process in (web_process, worker_process, forking):
            process.end()
    assert composed.run_once(web.check(composed.log("web-check"))) != 0
    old = 100
    os.utime(composed.folder / "beat", (old, old))
    assert composed.run_once(worker.check(composed.log("worker-check"))) != 0
