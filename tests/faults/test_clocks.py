"""Workers whose clocks are wrong agree on a run."""

from __future__ import annotations

import random

from tests.faults.happenings import freeze_a_worker, pick_a_moment
from tests.faults.installations import Installation
from tests.faults.ledger_checks import assert_all_right

HOUR_S = 3600
TIMES = (
    "SELECT table_name, column_name FROM information_schema.columns"
    " WHERE table_schema = 'public' AND data_type = 'timestamp with time zone'"
)
# Nothing in these tests is older than half an hour, and nothing is from the future.
WRONG = (
    "SELECT '{table}.{column}', {column} - now() FROM {table}"
    " WHERE {column} NOT BETWEEN now() - interval '30 min' AND now() + interval '1 min' LIMIT 1"
)

# On a slow machine a lease may run out while its worker stands still; none may be taken before.
NOTE_EARLY = """
    CREATE TABLE early (result bigint, lease interval);
    CREATE FUNCTION note_early() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN INSERT INTO early VALUES (OLD.id, OLD.lease_until - now()); RETURN NEW; END $$;
    CREATE TRIGGER early BEFORE UPDATE ON runs_result FOR EACH ROW
        WHEN (OLD.lease_until > now() AND NEW.status = 'pending') EXECUTE FUNCTION note_early();
"""


def test_workers_whose_clocks_are_an_hour_off_agree(cluster: Installation, chance: random.Random):
    cluster.database.execute(NOTE_EARLY)
    cluster.begin_workers(clocks_off_by_s=(HOUR_S, -HOUR_S))
    pick_a_moment(cluster, chance)
    assert times_that_are_wrong(cluster) == []
    assert cluster.database.rows("SELECT * FROM early") == []
    assert cluster.database.value("SELECT count(*) FROM runs_workerprocess") == 2
    freeze_a_worker(cluster, chance)

    assert_all_right(cluster)
    assert times_that_are_wrong(cluster) == []


def times_that_are_wrong(site: Installation) -> list[tuple[str, object]]:
    """Return the columns with a time that the database's clock calls wrong, and by how much."""
    return [
        row
        for table, column in site.database.rows(TIMES)
        if not table.startswith("django_")
        for row in site.database.rows(WRONG.format(table=table, column=column))
    ]
