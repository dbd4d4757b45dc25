"""The units of systemd in examples/deploy: what they start exists, and what shuts them in stays."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from evalsite import settings
from tests.production.readme import README, readme_commands
from tests.services.processes import ROOT

FOLDER = ROOT / "examples" / "deploy"
UNITS = ("evalsite-web.service", "evalsite-worker@.service")
PROGRAMS = "programs.conf"
# What bubblewrap, and the programs in it, cannot do without.
LOOSENED = {
    *("RestrictNamespaces", "PrivateUsers", "ProtectHostname", "ProtectProc", "ProcSubset"),
    *("ProtectKernelTunables", "ProtectKernelLogs", "MemoryDenyWriteExecute"),
    *("RestrictAddressFamilies", "SystemCallFilter", "MemoryHigh", "MemoryMax", "TasksMax"),
}


def lines(name: str) -> list[tuple[str, str]]:
    """Return the settings of a unit in their order."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    return re.findall(r"^(\w+)=(.*)$", text, flags=re.MULTILINE)


def shut_in(name: str) -> dict[str, list[str]]:
    """Return the settings that shut a unit in, those that may stand twice with every value."""
    found: dict[str, list[str]] = {}
    for key, value in lines(name):
        if re.match(
            r"Protect|Private|Restrict|System|Memory|Tasks|No|Cap|Ambient|Lock|UMask|State", key
        ):
            found.setdefault(key, []).append(value)
    return found


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_starts_what_is_installed_and_waits_for_calls_in_flight(name: str) -> None:
    unit = dict(lines(name))
    folder = unit["WorkingDirectory"]
    for command in (unit["ExecStart"], unit.get("ExecStartPre", "")):
        program = command.partition(" ")[0]
        assert (ROOT / Path(program).relative_to(folder)).exists() if program else True
    assert unit["TimeoutStopSec"] == str(settings.STOP_S)
    assert f"/var/lib/{unit['StateDirectory']}" in unit["Environment"]
    assert (unit["User"], unit["EnvironmentFile"]) == ("evalsite", "/etc/evalsite.env")


def test_web_and_workers_are_shut_in_alike() -> None:
    web, worker = map(shut_in, UNITS)
    assert web == worker
    assert web["CapabilityBoundingSet"] == [""]
    assert web["SystemCallFilter"] == ["@system-service", "~@privileged @resources"]
    assert {web[key][0] for key in ("NoNewPrivileges", "RestrictNamespaces", "PrivateDevices")} == {
        "yes"
    }
    assert web["ProtectSystem"] == ["strict"]


def test_only_what_programs_of_users_need_is_loosened_for_them() -> None:
    assert {key for key, _ in lines(PROGRAMS)} == LOOSENED
    assert {key for key, _ in lines(UNITS[0])} >= LOOSENED


def test_the_readme_installs_them() -> None:
    assert "cp examples/deploy/evalsite-*.service /etc/systemd/system/" in README
    assert f"examples/deploy/{PROGRAMS} '/etc/systemd/system/evalsite-worker@.service.d/" in README


def test_an_upgrade_brings_the_loosened_units_up_to_date(tmp_path: Path) -> None:
    upgrade = readme_commands("systemctl stop evalsite-web")
    [line] = [line for line in upgrade.splitlines() if line.startswith("find ")]
    old = tmp_path / "evalsite-worker@.service.d" / PROGRAMS
    other = tmp_path / "nginx.service.d" / PROGRAMS
    for path in (old, other):
        path.parent.mkdir()
        path.write_text("old")
    command = line.replace("/etc/systemd/system", str(tmp_path))
    subprocess.run(["sh", "-e", "-c", command], cwd=ROOT, check=True)
    assert old.read_bytes() == (FOLDER / PROGRAMS).read_bytes()
    assert other.read_text() == "old"
