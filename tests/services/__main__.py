"""`python -m tests.services missing` tells what to install; `with-postgresql COMMAND` runs one.

`missing` prints the Debian packages that are not there. `with-postgresql` runs the command with
`DATABASE_URL` naming a fresh server, which ends with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence

from tests.services.chromium import installed_chromium
from tests.services.postgresql import installed_binaries, postgresql_server
from tests.services.processes import end_what_was_started_when_told_to_end
from tests.services.redis import installed_redis

# Not every Debian has it: scripts/test then installs the whole browser.
SMALL_BROWSER = "chromium-headless-shell"


def missing() -> list[str]:
    """Return the Debian packages of the servers and the browser that are not installed."""
    found = {
        "postgresql": installed_binaries(),
        "redis-server": installed_redis(),
        "nginx": shutil.which("nginx"),
        SMALL_BROWSER: installed_chromium(),
    }
    absent = [package for package, path in found.items() if path is None]
    # Debian's browser only recommends a font, and without one pages have no text to measure.
    return ["fonts-liberation", *absent] if SMALL_BROWSER in absent else absent


def run(env: Mapping[str, str], command: Sequence[str]) -> int:
    """Run a command and return its exit code; told to end, first give the command time to."""
    child = subprocess.Popen(command, env=env)
    try:
        return child.wait()
    finally:
        child.terminate()
        child.wait()


def main(arguments: list[str]) -> int:
    """Do what the arguments say and return the exit code."""
    end_what_was_started_when_told_to_end()
    match arguments:
        case ["missing"]:
            sys.stdout.write(" ".join(missing()))
            return 0
        case ["with-postgresql", *command] if command:
            with postgresql_server() as url:
                return run({**os.environ, "DATABASE_URL": url}, command)
    sys.stderr.write(f"{__doc__}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
