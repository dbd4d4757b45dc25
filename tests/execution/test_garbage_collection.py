"""A process that works spares the garbage collector what stays loaded, and nothing else."""

from __future__ import annotations

import gc
import weakref

import pytest

from runs.execution.run_worker import MAX_FREEZES, RunLoop, freeze_loaded_objects, work_on_run


class Knot:
    """Holds itself, so that only the garbage collector can free it."""

    def __init__(self) -> None:
        self.itself = self


def test_what_is_loaded_is_spared_and_garbage_of_later_is_not() -> None:
    freeze_loaded_objects()
    assert gc.get_freeze_count() > 50_000

    later = weakref.ref(Knot())
    gc.collect()
    assert later() is None


def test_only_the_first_few_times_count() -> None:
    for _ in range(MAX_FREEZES):
        freeze_loaded_objects()
    spared = gc.get_freeze_count()

    kept = [Knot() for _ in range(10_000)]
    freeze_loaded_objects()

    assert gc.get_freeze_count() < spared + len(kept)


@pytest.mark.django_db(transaction=True)
def test_what_a_run_leaves_in_cycles_goes_at_the_latest_with_the_next_run(start_recorded):
    for _ in range(MAX_FREEZES + 3):
        work_on_run(start_recorded("a refund").pk)
    left = [one for one in gc.get_objects() if isinstance(one, RunLoop)]
    assert len(left) <= 1
