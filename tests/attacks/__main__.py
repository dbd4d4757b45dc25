"""Send hostile requests, picked by chance, to a fresh site in this process, and tell what it did wrong.

A line tells of each part: the requests it sent, the addresses of the site that they reached, the seconds of CPU that
it took, and its findings, which follow what became of each family of things sent. The command fails when there is any. With
`--postgresql` the site is on PostgreSQL, which refuses values that SQLite stores.
"""

from __future__ import annotations

import argparse
import logging
import os
import secrets
import sys
import tempfile
from contextlib import ExitStack

import django
from django.core.management import call_command
from django.test.utils import setup_test_environment

from tests.services.postgresql import postgresql_server

MAX_CPU_S = 2.0


def main() -> None:
    """Run the parts."""
    # Before anything that asks for settings.
    databases = argparse.ArgumentParser(add_help=False)
    databases.add_argument("--postgresql", action="store_true", help="as the site's database")
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="evalsite-attacks-"))
        os.environ.pop("DATABASE_URL", None)
        if databases.parse_known_args()[0].postgresql:
            os.environ["DATABASE_URL"] = stack.enter_context(postgresql_server())
        os.environ["EVALSITE_DATA_DIR"] = folder
        os.environ["EVALSITE_SCRIPTS"] = "1"
        # All that is sent takes longer than a login is fresh.
        os.environ["EVALSITE_CONFIRM_MINUTES"] = "10000"
        os.environ["DJANGO_SETTINGS_MODULE"] = "evalsite.settings"
        django.setup()
        # What asks for settings can only be loaded once they are there.
        from django.conf import settings

        from tests.attacks.rounds import PARTS, run_part
        from tests.attacks.site import AttackedSite
        from tests.conftest import FOR_TESTS

        parser = argparse.ArgumentParser(
            prog="python -m tests.attacks", description=__doc__, parents=[databases]
        )
        parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS], metavar="PART")
        parser.add_argument("--seed", default=secrets.token_hex(4), help="picks the same again")
        parser.add_argument("--share", type=float, default=1.0, help="of all requests, say 0.1")
        chosen = parser.parse_args()
        for name, value in FOR_TESTS.items():
            setattr(settings, name, value)
        setup_test_environment()
        logging.disable()
        call_command("migrate", verbosity=0)
        sys.stdout.write(f"seed {chosen.seed}\n")
        found = 0
        site = AttackedSite(max_cpu_s=MAX_CPU_S)
        site.warm_up()
        for name in chosen.parts:
            line, findings = run_part(name, site, seed=chosen.seed, share=chosen.share)
            found += len(findings)
            sys.stdout.write("\n  ".join([line, *map(str, findings)]) + "\n")
            sys.stdout.flush()
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
