"""Runs in a row, each with one or two faults that chance picks, and a kill among them."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence

from tests.faults import ledger_checks
from tests.faults.happenings import (
    KILLING,
    ON_A_CLUSTER,
    ON_A_SINGLE_PROCESS,
    by_name,
    dismiss_a_worker,
    freeze_a_worker,
    keep_two_workers,
    kill_a_worker,
    replace_the_web,
)
from tests.faults.installations import Installation, Workshop, workshop

COLUMNS = {
    **{
        "round": 5,
        "faults": 48,
        "killed": 6,
        "cut off": 7,
        "lost leases": 11,
        "lost": 4,
        "repeated": 8,
        "bound": 5,
    },
    **{"in the ledger": 13, "at the models": 13, "seconds": 7},
}
TWO_FAULTS = 0.4
# Meanwhile the others may end the run, so these come last.
LAST = {freeze_a_worker.__name__, dismiss_a_worker.__name__}
BY_NAME = {**ON_A_CLUSTER, **ON_A_SINGLE_PROCESS, **by_name(replace_the_web)}

FAULTS = {
    "sqlite": (*ON_A_SINGLE_PROCESS,),
    "postgresql": (*ON_A_CLUSTER,),
    "both": (*ON_A_CLUSTER, *ON_A_SINGLE_PROCESS),
}


def run_rounds(rounds: int, *, seed: str, database: str) -> Iterator[str]:
    """Yield the head of a table and a line a round; raises AssertionError when a run ends wrong."""
    yield line(*COLUMNS)
    with workshop() as shop:
        for number in range(1, rounds + 1):
            chance = random.Random(f"{seed}-{number}")
            yield run_round(shop, number, pick_faults(chance, FAULTS[database]), chance)


def run_round(shop: Workshop, number: int, names: list[str], chance: random.Random) -> str:
    """Execute a run, inject faults, check the ledger, and return a line."""
    is_single = names[-1] in ON_A_SINGLE_PROCESS
    with shop.single() if is_single else shop.cluster() as site:
        begun = time.perf_counter()
        try:
            inject(site, names, chance, is_single=is_single)
            site.wait_for_the_end()
            ledger_checks.assert_all_right(site)
            ledger_checks.assert_kills_cut_work_off(site)
        except Exception as error:
            error.add_note(f"Faults: {' and '.join(names)}. The logs:\n{site.logs()}")
            raise
        return line(number, " + ".join(names), *figures(site), f"{time.perf_counter() - begun:.1f}")


def pick_faults(chance: random.Random, faults: Sequence[str]) -> list[str]:
    """Return the names of one or two faults, after a kill where none of them kills.

    Only a cluster outlives two for certain.
    """
    first = chance.choice(faults)
    names = {first}
    if first in ON_A_CLUSTER and chance.random() < TWO_FAULTS:
        names.add(chance.choice([*ON_A_CLUSTER]))
    if names == LAST:
        names = {first}
    kill = kill_a_worker if first in ON_A_CLUSTER else replace_the_web
    kills = [] if names & KILLING else [kill.__name__]
    return kills + sorted(names, key=lambda name: (name in LAST, name))


def inject(site: Installation, names: list[str], chance: random.Random, *, is_single: bool) -> None:
    """Begin the work, and let one fault after the other happen."""
    if is_single:
        site.begin_web()
    else:
        site.begin_workers()
    for name in names:
        BY_NAME[name](site, chance)
        if not is_single:
            keep_two_workers(site)


def figures(site: Installation) -> list[str]:
    """Return what a run cost and what that might have been."""
    counts = (
        ledger_checks.lost_calls(site),
        ledger_checks.repeated_calls(site),
        ledger_checks.most_repeated(site),
    )
    ledger = sum(ledger_checks.ledger_usd(site, purpose) for purpose in ledger_checks.COSTS)
    spent = sum(ledger_checks.spent_usd(site, purpose) for purpose in ledger_checks.COSTS)
    cut_off = ledger_checks.cut_off(site)
    return [str(count) for count in (site.killed, sum(cut_off), site.lost_leases, *counts)] + [
        f"${usd:.7f}" for usd in (ledger, spent)
    ]


def line(*cells: object) -> str:
    """Return a line of the table."""
    pairs = zip(cells, COLUMNS.values(), strict=True)
    return "  ".join(f"{cell!s:<{width}}" for cell, width in pairs).rstrip()
