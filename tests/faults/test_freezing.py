"""A worker or session that stands still holds nobody up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.faults.installations import Installation
from tests.faults.ledger_checks import assert_all_right

HOLDS_ROWS = (
    "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database()"
    " AND state = 'idle in transaction' AND backend_xid IS NOT NULL"
)


def test_a_worker_frozen_while_it_writes_holds_nobody_up(cluster: Installation):
    [frozen] = cluster.begin_workers(1)
    cluster.models.release()
    frozen.freeze()
    while not cluster.database.says(HOLDS_ROWS):
        frozen.wake()
        frozen.freeze()
    cluster.lost_leases += 1
    cluster.site.begin_worker()
    cluster.wait_for_the_end()
    frozen.wake()

    assert_all_right(cluster)


def test_a_session_that_stands_still_in_the_middle_of_a_copy_holds_nobody_up(
    cluster: Installation,
):
    cluster.begin_workers()
    cluster.models.release()
    with standing_still(cluster):
        # Nobody can renew a lease meanwhile.
        cluster.lost_leases += 2
        cluster.wait_for_the_end()

    assert_all_right(cluster)


@contextmanager
def standing_still(site: Installation) -> Iterator[None]:
    """Hold the run's row as a worker does whose process was frozen in the middle of a COPY."""
    with psycopg.connect(site.database.url, application_name="evalsite") as connection:
        connection.execute("SELECT id FROM runs_run FOR NO KEY UPDATE")
        connection.pgconn.send_query(b"COPY runs_runevent (kind) FROM STDIN")
        connection.pgconn.flush()
        yield
        connection.close()
