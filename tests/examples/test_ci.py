"""The jobs for pipelines to copy: what their lines do, and that our commands take the options in them."""

from __future__ import annotations

import re
import shlex
import subprocess
from argparse import ArgumentParser
from pathlib import Path

import pytest
import yaml

from runs.cli.options import add_compare_options
from tests.examples.reading import EXAMPLES

# Programs in place of the real ones: `compare` writes its comment unless it could not compare.
PROGRAMS = {
    "pip": "exit 0",
    "pytest": "exit $PYTEST",
    "evalsite": "echo $* > compared; [ $COMPARE = 3 ] || echo worse > comment.md; exit $COMPARE",
    "gh": "echo $* > posted",
    "curl": "echo $* > posted",
}


def steps(name: str) -> list[str]:
    """Return the scripts of a job, each of which ends at its first line that fails."""
    file = yaml.safe_load((EXAMPLES / "ci" / f"{name}.yml").read_text(encoding="utf-8"))
    if name == "gitlab":
        return ["\n".join(file["evaluate"]["script"])]
    assert set(file) == {"name", True, "permissions", "env", "jobs"}, "YAML 1.1 reads on as true"
    return [step["run"] for step in file["jobs"]["evaluate"]["steps"] if "run" in step]


@pytest.mark.parametrize("name", ["github", "gitlab"])
@pytest.mark.parametrize(
    ("tests", "compare", "code"), [(0, 0, 0), (1, 0, 1), (0, 1, 1), (0, 2, 2), (0, 3, 3)]
)
def test_a_job_fails_as_its_commands_do_and_posts_the_comment_where_there_is_one(
    name: str, tests: int, compare: int, code: int, tmp_path: Path
) -> None:
    for program, lines in PROGRAMS.items():
        (tmp_path / program).write_text(f"#!/bin/sh\n{lines}\n")
        (tmp_path / program).chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SUITE": "support-agent"}
    env |= {"PYTEST": str(tests), "COMPARE": str(compare)}
    codes = [
        subprocess.run(["sh", "-ec", step], cwd=tmp_path, env=env).returncode
        for step in steps(name)
    ]

    assert max(codes) == code
    command, *words = shlex.split((tmp_path / "compared").read_text())
    parser = ArgumentParser(exit_on_error=False)
    add_compare_options(parser)
    options = parser.parse_args(words)
    assert (command, options.baseline, options.candidate) == (
        "compare",
        "support-agent:baseline",
        "support-agent:latest",
    )
    posted = tmp_path / "posted"
    assert posted.exists() == (compare != 3)
    if posted.exists():
        assert re.search(rf"\b{re.escape(options.markdown.name)}\b", posted.read_text())
