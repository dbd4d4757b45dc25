"""Let faults befall runs of 300 in a row, each picked by chance, and stop at the first that ends wrong.

A line tells what befell a run, what it cost, and what that might have been.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.faults.installations import Installation, Workshop

HEADERS = (
    *("round", "faults", "killed", "robbed", "lost", "repeated", "bound"),
    *("in the ledger", "at the models", "seconds"),
)
WIDTHS = (5, 42, 6, 6, 4, 8, 5, 13, 13, 7)
TWO_FAULTS = 0.4


@dataclass
class Round:
    """One run, and what befalls it."""

    number: int
    seed: str

    def befall(self, shop: Workshop) -> str:
        """Carry a run out, let faults befall it, and return a line; raises AssertionError when it ends wrong."""
        # Their modules ask Django for settings, which have to be there first.
        from tests.faults.befalling import ON_A_CLUSTER, ON_A_SINGLE_PROCESS

        chance = random.Random(self.seed)
        name = chance.choice([*ON_A_CLUSTER, *ON_A_SINGLE_PROCESS])
        if name in ON_A_SINGLE_PROCESS:
            with shop.single() as site:
                site.begin_web()
                return self._judge(site, [name], chance)
        names = [name, chance.choice([*ON_A_CLUSTER])] if chance.random() < TWO_FAULTS else [name]
        with shop.cluster() as site:
            site.begin_workers()
            return self._judge(site, names, chance)

    def _judge(self, site: Installation, names: list[str], chance: random.Random) -> str:
        from tests.faults.befalling import ON_A_CLUSTER, ON_A_SINGLE_PROCESS, keep_two_workers
        from tests.faults.books import assert_all_right

        begun = time.perf_counter()
        try:
            for name in names:
                {**ON_A_CLUSTER, **ON_A_SINGLE_PROCESS}[name](site, chance)
                if name in ON_A_CLUSTER:
                    keep_two_workers(site)
            site.wait_for_the_end()
            assert_all_right(site)
        except Exception as error:
            error.add_note(f"Befallen by {' and '.join(names)}. The logs:\n{site.logs()}")
            raise
        return self._line(site, names, time.perf_counter() - begun)

    def _line(self, site: Installation, names: list[str], seconds: float) -> str:
        from tests.faults import books

        ledger = sum(books.ledger_usd(site, purpose) for purpose in books.PURSES)
        spent = sum(books.spent_usd(site, purpose) for purpose in books.PURSES)
        return line(
            *(self.number, " + ".join(names), site.killed, site.robbed),
            *(books.lost_calls(site), books.repeated_calls(site), books.most_repeated(site)),
            *(f"${ledger.normalize():f}", f"${spent.normalize():f}", f"{seconds:.1f}"),
        )


def line(*cells: object) -> str:
    """Return a line of the table."""
    pairs = zip(cells, WIDTHS, strict=True)
    return "  ".join(f"{cell!s:<{width}}" for cell, width in pairs).rstrip() + "\n"


def main() -> None:
    """Carry the rounds out."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", default=secrets.token_hex(4), help="picks the same faults again")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="evalsite-settings-") as folder:
        os.environ["EVALSITE_DATA_DIR"] = folder
        os.environ["DJANGO_SETTINGS_MODULE"] = "evalsite.settings"
        import django

        django.setup()
        from tests.faults.installations import workshop

        sys.stdout.write(f"seed {chosen.seed}\n{line(*HEADERS)}")
        with workshop() as shop:
            for number in range(1, chosen.rounds + 1):
                sys.stdout.write(Round(number, f"{chosen.seed}-{number}").befall(shop))
                sys.stdout.flush()


if __name__ == "__main__":
    main()
