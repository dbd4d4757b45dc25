"""Backup and restore by the commands of the README."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.production.readme import readme_commands
from tests.services.database import SQLITE, Database
from tests.services.postgresql import installed_binaries, postgresql_server, wheel_binaries
from tests.services.processes import scratch_folder, wait_until
from tests.services.site import Site
from tests.support.model_server import ModelServer, good

pytestmark = [pytest.mark.slow, pytest.mark.processes]

CASES = 60
KEY = "sk-kept-by-the-backup"
STORE = """
from evaluators.model_calls.models import encrypt
from evaluators.models import LanguageModel
from runs.models.suites import Case, Suite
from runs.models.suites import Target
from runs.specs.suites import SuiteSpec
from runs.running import services
model = LanguageModel(
    slug="mock", name="mock", model_id="mock", base_url="{base_url}", concurrency=4,
    input_price_usd_per_mtok=1, output_price_usd_per_mtok=2,
)
model.encrypted_key = encrypt("{key}")
model.save()
suite = Suite(slug="kept")
suite.write(SuiteSpec.model_validate({{"title": "Kept", "judge": "mock", "evaluators": {{
    "name": "all", "kind": "composite", "children": [
        {{"name": "right", "kind": "llm_judge", "config": {{"prompt": "Is it right?"}}}}
    ]}}}}))
for number in range({cases}):
    Case.objects.create(
        suite=suite, key=f"C-{{number}}", position=number, content_hash=str(number),
        input=[{{"role": "user", "content": "Where is it?"}}],
    )
target = Target.objects.create(name="agent", kind="chat", model=model)
services.start_run(suite=suite, target=target, started_by=None)
"""


def store(site: Site, model_server: ModelServer) -> None:
    model_server.behave(then=good(seconds=0.05))
    code = STORE.format(base_url=model_server.base_url, key=KEY, cases=CASES)
    site.manage("shell", "--verbosity", "0", "-c", code)


def carry_out(commands: str, folder: Path, **env: str) -> None:
    here = commands.replace(".venv/bin/python", sys.executable)
    subprocess.run(["sh", "-e", "-c", here], cwd=folder, env={**os.environ, **env}, check=True)


def assert_all_done(database: Database, model_server: ModelServer) -> None:
    wait_until(lambda: database.says("SELECT status = 'completed' FROM runs_run"))
    assert database.row("SELECT done_count, pass_count FROM runs_run") == (CASES, CASES)
    keys = {chat.headers["Authorization"] for chat in model_server.chats}
    assert keys == {f"Bearer {KEY}"}


def test_a_run_that_was_on_when_sqlite_was_backed_up_goes_on_after_the_restore(
    model_server: ModelServer,
) -> None:
    with scratch_folder("backup") as folder:
        data = folder / "data"
        data.mkdir()
        site = Site(data)
        site.migrate()
        store(site, model_server)
        back_up, restore = readme_commands("(umask 077\n").split("\n\n")
        database = Database(f"{SQLITE}{data / 'evalsite.sqlite3'}")
        try:
            site.web.start()
            wait_until(lambda: database.says("SELECT done_count >= 10 FROM runs_run"))
            carry_out(back_up, folder)
            wait_until(lambda: database.says("SELECT status = 'completed' FROM runs_run"))
            site.kill()
            database.execute("DELETE FROM runs_score")
            database.close()

            carry_out(restore, folder)
            assert database.says("SELECT status = 'running' AND done_count < 60 FROM runs_run")
            model_server.requests.clear()
            site.web.start()
            assert_all_done(database, model_server)
            assert database.value("SELECT count(*) FROM runs_score") == 2 * CASES
        finally:
            site.kill()
            database.close()


def test_what_was_stored_in_postgresql_is_there_after_the_restore(
    model_server: ModelServer,
) -> None:
    programs = installed_binaries() or wheel_binaries()
    with scratch_folder("backup") as folder, postgresql_server() as url:
        env = {
            "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
            "DATABASE_URL": url.replace("://evalsite@", "://evalsite:never-shown@"),
        }
        site = Site(folder, DATABASE_URL=url)
        site.migrate()
        store(site, model_server)
        address, back_up, restore = readme_commands("export PGPASSWORD").split("\n\n")
        arguments = folder / "arguments"
        for name in ("pg_dump", "pg_restore"):
            noting = folder / name
            noting.write_text(f'#!/bin/sh\necho "$@" >> {arguments}\nexec {programs}/{name} "$@"\n')
            noting.chmod(0o700)
        database = Database(url)
        try:
            site.web.start()
            wait_until(lambda: database.says("SELECT done_count >= 10 FROM runs_run"))
            carry_out(f"{address}\n{back_up}", folder, **env)
            wait_until(lambda: database.says("SELECT status = 'completed' FROM runs_run"))
            site.kill()
            database.execute("TRUNCATE runs_suite, evaluators_languagemodel CASCADE")
            database.close()

            carry_out(f"{address}\n{restore}", folder, **env)
            assert "evalsite@" in arguments.read_text()
            assert "never-shown" not in arguments.read_text()
            assert database.says("SELECT status = 'running' AND done_count < 60 FROM runs_run")
            site.web.start()
            assert_all_done(database, model_server)
        finally:
            site.kill()
            database.close()
