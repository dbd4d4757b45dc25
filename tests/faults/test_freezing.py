from __future__ import annotations

from tests.faults.books import assert_all_right
from tests.faults.installations import Installation

HOLDS_ROWS = (
    "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database()"
    " AND state = 'idle in transaction' AND backend_xid IS NOT NULL"
)


def test_a_worker_frozen_while_it_writes_holds_nobody_up(cluster: Installation):
    [frozen] = cluster.begin_workers(1)
    frozen.freeze()
    while not cluster.database.says(HOLDS_ROWS):
        frozen.wake()
        frozen.freeze()
    cluster.robbed += 1
    cluster.site.begin_worker()
    cluster.wait_for_the_end()
    frozen.wake()

    assert_all_right(cluster)
