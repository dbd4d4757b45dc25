"""The `evalsite` command as somebody meets it who has never seen it."""

from __future__ import annotations

import os
import re
import sys
import urllib.request
from pathlib import Path

import pytest
from django.core.management import load_command_class

from evalsite import version
from evalsite.cli import (
    WORKER,
    command_name,
    main,
    overview,
    own_commands,
    set_demo_variables,
    set_local_address,
    unknown_command_message,
)
from evalsite.management.commands.demo import _follow_up
from tests.services.processes import ROOT, Process, free_port, wait_until
from tests.services.site import is_healthy, run

APPS = {"evalsite": "evalsite", "evalsite/access": "evalsite.access", "runs": "runs"}


def app_of(name: str) -> str:
    [folder] = (f for f in APPS if (ROOT / f / "management" / "commands" / f"{name}.py").exists())
    return APPS[folder]


COMMANDS = [name for name in own_commands() if name != WORKER]


@pytest.mark.parametrize("words", [[], ["--help"], ["help"], ["-h"]])
def test_help_lists_our_commands_without_importing_them(capsys, words):
    main(["evalsite", *words])
    output = capsys.readouterr().out
    assert output == overview()
    lines = [line for line in output.splitlines() if line.startswith("  ") and line[2] != " "]
    names = [line.split()[0] for line in lines]
    assert names[:5] == ["demo", "up", "createadmin", "login_link", "import"]
    assert set(names) == {*COMMANDS, WORKER}
    assert max(map(len, output.splitlines())) <= 100


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_documents_exit_codes_and_examples(name):
    text = load_command_class(app_of(name), name).create_parser("evalsite", name).format_help()
    assert "exit codes:\n  0  " in text
    assert "\nexample" in text
    assert f"\n  evalsite {name}" in text
    assert "--settings" not in text
    assert "--verbosity" not in text
    assert "--skip-checks" not in text


def test_help_of_the_worker_is_ours(capsys):
    main(["evalsite", "worker", "--help"])
    output = capsys.readouterr().out
    assert "usage: evalsite worker" in output
    assert "exit codes:\n  0  " in output
    assert "--app=proj" not in output
    assert max(map(len, output.splitlines())) <= 100


def test_a_command_can_be_written_with_hyphens():
    assert command_name("login-link") == "login_link"
    assert command_name("no-such") == "no-such"


def test_a_similar_command_is_suggested():
    assert unknown_command_message("evalute", ()) == (
        "There is no command 'evalute'. Did you mean evaluate? evalsite --help lists them."
    )
    assert "Did you mean migrate?" in unknown_command_message("migrat", ["migrate"])
    assert (
        unknown_command_message("xyzzy", ())
        == "There is no command 'xyzzy'. evalsite --help lists them."
    )


def test_an_unknown_command_has_its_own_exit_code(capsys):
    with pytest.raises(SystemExit) as end:
        main(["evalsite", "evalute", "support-agent"])
    assert end.value.code == 2
    assert "Did you mean evaluate?" in capsys.readouterr().err


def test_ctrl_c_while_a_command_loads_ends_with_a_sentence(capsys, monkeypatch):
    def interrupt(argv):
        raise KeyboardInterrupt

    monkeypatch.setattr("django.core.management.execute_from_command_line", interrupt)
    with pytest.raises(SystemExit) as end:
        main(["evalsite", "evaluate", "support-agent"])
    assert end.value.code == 130
    assert capsys.readouterr().err == "\nInterrupted by Ctrl-C.\n"


def test_commands_of_django_work_too(capsys):
    main(["evalsite", "diffsettings", "--all"])
    assert "INSTALLED_APPS" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("before", "address"),
    [
        ({}, "http://127.0.0.1:8000"),
        ({"PORT": "8001", "EVALSITE_URL": " "}, "http://127.0.0.1:8001"),
        ({"EVALSITE_URL": "https://evals.example.com"}, "https://evals.example.com"),
    ],
)
def test_a_site_without_an_address_gets_a_local_one(before, address):
    environment = dict(before)
    set_local_address(environment)
    assert environment["EVALSITE_URL"] == address


def test_the_process_beside_the_demo_writes_what_failed_in_it(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("EVALSITE_DATA_DIR", str(tmp_path))
    monkeypatch.delenv("DATABASE_URL", raising=False)
    assert _follow_up("http://127.0.0.1:9/v1").wait() == 3
    assert str(tmp_path) in capfd.readouterr().err


def test_the_demo_has_a_folder_of_its_own_unless_one_is_named():
    environment = {"EVALSITE_DATA_DIR": "/srv/demo", "EVALSITE_SCRIPTS": "0"}
    set_demo_variables(environment)
    assert environment == {
        "EVALSITE_DATA_DIR": "/srv/demo",
        "EVALSITE_SCRIPTS": "0",
        "EVALSITE_DEMO": "1",
        "EVALSITE_AGENTS_DIR": str(ROOT / "examples"),
    }
    environment = {}
    set_demo_variables(environment)
    assert environment["EVALSITE_DATA_DIR"] == str(ROOT / "data" / "demo")


@pytest.mark.parametrize("word", ["--version", "-V", "version"])
def test_the_version_is_ours(capsys, word):
    main(["evalsite", word])
    assert capsys.readouterr().out == f"evalsite {version()}\n"


@pytest.mark.slow
@pytest.mark.processes
def test_up_prepares_the_site_and_prints_its_address(tmp_path: Path):
    port = free_port()
    env = {**os.environ, "PORT": str(port), "EVALSITE_DATA_DIR": str(tmp_path / "data")}
    env |= {"DATABASE_URL": "", "EVALSITE_URL": "", "CELERY_BROKER_URL": ""}
    url = f"http://127.0.0.1:{port}"
    server = Process(
        [sys.executable, ROOT / "manage.py", "up"],
        log=tmp_path / "log",
        is_ready=lambda: is_healthy(url),
        env=env,
    )
    server.start()
    try:
        wait_until(lambda: "Ctrl-C stops it" in server.tail(4000))
        assert f"Evalsite {version()} is at {url}." in server.tail(4000)
        assert f"\n  {url}/login/" in server.tail(4000)
        # One style sheet under a name that can be kept for good, also where nothing was prepared before.
        with urllib.request.urlopen(f"{url}/login/") as page:
            sheets = re.findall(r'href="/static/css/([^"]+)"', page.read().decode())
        assert [re.sub(r"\.\w{12}\.", ".hash.", name) for name in sheets] == ["app.hash.css"]
        beside = {
            name: value for name, value in env.items() if name not in ("PORT", "EVALSITE_URL")
        }
        link = run(["manage.py", "login_link"], env=beside)
        assert link.stdout.startswith(f"{url}/login/")
        taken = run(["manage.py", "up"], env=env)
        assert taken.returncode == 3
        assert f"Port {port} is taken or not allowed" in taken.stderr
        assert f"PORT={port + 1}." in taken.stderr
    finally:
        server.end()
    assert not server.is_running


@pytest.mark.slow
def test_up_names_a_wrong_setting(tmp_path: Path):
    env = {**os.environ, "PORT": "eighty", "EVALSITE_DATA_DIR": str(tmp_path / "data")}
    done = run(["manage.py", "up"], env=env)
    assert done.returncode == 3
    assert "PORT" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_command_that_is_started_with_closed_outputs_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    main(["evalsite", "--version"])
    with pytest.raises(SystemExit) as ended:
        main(["evalsite", "nosuch"])
    assert ended.value.code == 2
    sys.stdout.close()
    sys.stderr.close()
