"""Measure how fast runs and pages are, in fresh processes and several rounds, and print one table.

The rows: 1 to 3 runs of 500 judged, 2,000 and 20,000 checked cases; 4 two workers; 5 pages while a
run is on; 6 many results in the browser; 7 pages of runs with 20,000 results; 8 what-if; 9 models
that fail; 10 pages while slow clients hold connections; 11 commands as whole processes; 12 spans
of agents by OpenTelemetry; 13 outputs pushed by the Python client; 14 stored outputs judged again by a
judge of usual latency, 15 by one so fast that this process is the limit; 16 calls that are sent again
after a kill; 17 pages while five large files are made and downloaded; 18 pages of a site with a million results.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tests.benchmarks import (
    big_pages,
    commands,
    downloads,
    in_browser,
    interrupted,
    pages_meanwhile,
    provider_faults,
    pushed,
    runs_alone,
    slow_clients,
    traces,
    two_workers,
    what_if,
)
from tests.benchmarks.figures import Measured, read, save, table, yardstick_ms
from tests.benchmarks.servers import servers
from tests.services.processes import end_what_was_started_when_told_to_end

ROUNDS = 3
# The first measurements of what was slow then, on a machine that others used too.
BEFORE = Path(__file__).with_name("before.json")
ROWS = (
    runs_alone.judged,
    runs_alone.checked,
    runs_alone.many,
    two_workers.lines,
    pages_meanwhile.lines,
    in_browser.lines,
    big_pages.lines,
    what_if.lines,
    provider_faults.lines,
    slow_clients.lines,
    commands.lines,
    traces.lines,
    pushed.lines,
    runs_alone.again,
    runs_alone.again_at_once,
    interrupted.lines,
    downloads.lines,
    big_pages.among_a_million,
)
NOTES = (
    "Limit is the least the calls take however fast we are, goal is what we set ourselves. Runs count from their "
    "start to their finish, in a process as warm as a worker that is up; CPU is that of the process "
    "or processes that work, the database server's not. Figures are medians of the rounds. The yardstick is what a "
    "fixed piece of Python took before the row: goals in seconds are of a machine where it takes 38 ms, so compare "
    "yardsticks before figures."
)


def main() -> None:
    """Measure the rows asked for, all by default, and print the table."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of each row")
    parser.add_argument("--quick", action="store_true", help="one round")
    numbers = range(1, len(ROWS) + 1)
    parser.add_argument("--rows", type=int, nargs="*", choices=numbers, help="which rows")
    parser.add_argument("--save", type=Path, help="keep the figures in a file")
    parser.add_argument(
        "--before", type=Path, default=BEFORE, help="a file of --save, shown beside them"
    )
    chosen = parser.parse_args()
    end_what_was_started_when_told_to_end()
    before = read(chosen.before)
    rounds = 1 if chosen.quick else chosen.rounds
    found: list[Measured] = []
    try:
        with servers() as running:
            for number in chosen.rows or numbers:
                yardstick = yardstick_ms()
                for line in ROWS[number - 1](running, rounds):
                    sys.stderr.write(f"{number}  {line.work}: {line.cells()[4]}\n")
                    found.append(Measured(number, yardstick, line))
    finally:
        # Of what takes many minutes, what was measured stays when it is interrupted.
        if chosen.save:
            save((measured.line for measured in found), chosen.save)
        sys.stdout.write(
            f"{os.cpu_count()} cores, rounds: {rounds}. {NOTES}\n\n{table(found, before)}\n"
        )


if __name__ == "__main__":
    main()
