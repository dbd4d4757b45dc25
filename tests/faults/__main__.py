"""Inject faults, picked by chance, into runs of 100 in a row, and stop at the first that ends wrong.

A line tells what befell a run, what it cost, and what that might have been: `killed` processes with
work, at least one a run, and the results that this `cut off` between claim and write, as the database
says; workers that lost their leases (`lost leases`), answers `lost` to the ledger, calls
`repeated` and how many might have been, dollars in the ledger and at the models.
With --soak a site works for minutes under faults of its models, and a line tells what each process holds;
with --read-on its clients read on without new runs, so that what grows with the data stands still then.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import tempfile

import django

from tests.services.processes import end_what_was_started_when_told_to_end


def main() -> None:
    """Run the rounds."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", default=secrets.token_hex(4), help="picks the same faults again")
    parser.add_argument("--database", choices=("sqlite", "postgresql", "both"), default="both")
    parser.add_argument(
        "--soak", type=float, metavar="MINUTES", help="let a site work so long instead"
    )
    parser.add_argument(
        "--read-on", type=float, default=0, metavar="MINUTES", help="after a soak, without new runs"
    )
    chosen = parser.parse_args()
    end_what_was_started_when_told_to_end()
    with tempfile.TemporaryDirectory(prefix="evalsite-settings-") as folder:
        os.environ["EVALSITE_DATA_DIR"] = folder
        os.environ["DJANGO_SETTINGS_MODULE"] = "evalsite.settings"
        django.setup()
        # What asks for settings can only be loaded once they are there.
        from tests.faults.rounds import run_rounds
        from tests.faults.soak import soak

        if chosen.soak:
            lines = soak(chosen.soak, read_on=chosen.read_on)
        else:
            sys.stdout.write(f"seed {chosen.seed}\n")
            lines = run_rounds(chosen.rounds, seed=chosen.seed, database=chosen.database)
        for line in lines:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
