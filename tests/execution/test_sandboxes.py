"""Which sandbox the programs of a run get."""

from __future__ import annotations

import asyncio

from evaluators.kinds._base import ScriptCall
from evaluators.sandbox.confinement import ProgramLimits
from runs.scripts import sandbox_in_force


def test_without_the_switch_there_is_no_sandbox(settings):
    settings.SCRIPTS = False
    assert sandbox_in_force() is None


def test_the_administrator_says_what_programs_may_take(settings, tmp_path):
    settings.SCRIPTS = settings.SCRIPTS_NETWORK = True
    settings.SCRIPT_SECONDS, settings.SCRIPT_MEMORY_MB, settings.SCRIPT_PROCESSES = 5, 64, 7
    settings.SCRIPT_OUTPUT_KB, settings.SCRIPT_DISK_MB, settings.SCRIPT_FILES = 1, 2, 9
    settings.SCRIPT_CONCURRENCY, settings.AGENTS_DIR = 3, str(tmp_path)
    settings.SCRIPT_FOLDERS = ["/usr/share"]
    terms = sandbox_in_force().terms
    assert terms.limits == ProgramLimits(5, 64, 7, 1, 2, 9)
    assert (terms.at_once, terms.allows_network, terms.folders) == (3, True, ("/usr/share",))
    assert terms.agents_dir == str(tmp_path)
    assert {str(settings.DATA_DIR), str(settings.BASE_DIR)} <= set(terms.hidden)


def test_a_site_among_installed_packages_hides_its_data_alone(settings, tmp_path):
    settings.SCRIPTS, settings.BASE_DIR = True, tmp_path
    assert sandbox_in_force().terms.hidden == (str(settings.DATA_DIR),)


def test_exports_are_hidden_from_programs_wherever_they_are(settings, tmp_path):
    settings.SCRIPTS, settings.EXPORTS_DIR = True, tmp_path / "exports"
    assert str(tmp_path / "exports") in sandbox_in_force().terms.hidden


def test_all_runs_of_a_process_share_one_sandbox(settings):
    settings.SCRIPTS = True
    assert sandbox_in_force() is sandbox_in_force()


def test_a_program_never_gets_more_time_than_the_administrator_allows(settings):
    settings.SCRIPTS, settings.SCRIPT_SECONDS = True, 1
    call = ScriptCall(("sleep", "1000"), seconds=500)
    result = asyncio.run(sandbox_in_force().run(call))
    assert result.ended_by == "the time limit of 1 s"
