"""End database sessions of ours that stand still inside a transaction, because their process was frozen.

PostgreSQL's own time-out for idle transactions is not asked everywhere: not in the middle of a COPY,
not always in a pipeline. Without this a stopped process would hold up all others for as long as it sleeps.
"""

from __future__ import annotations

import logging

from django.db import connection

from runs.models.clock import LEASE

logger = logging.getLogger(__name__)

END_SESSIONS = """
    SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND usename = current_user
      AND application_name = current_setting('application_name') AND application_name <> ''
      AND pid <> pg_backend_pid() AND backend_xid IS NOT NULL
      AND wait_event = 'ClientRead' AND state_change < clock_timestamp() - make_interval(secs => %s)
"""


def end_sessions_at_a_standstill() -> int:
    """End sessions that have written and then waited a whole lease for their process; returns how many.

    The process, should it wake, finds its connection lost and repeats what was not committed.
    """
    if connection.vendor != "postgresql":
        return 0
    with connection.cursor() as cursor:
        cursor.execute(END_SESSIONS, [LEASE.total_seconds()])
        ended = [pid for pid, _ in cursor.fetchall()]
    if ended:
        logger.warning(
            "Database sessions %s stood still inside a transaction and were ended", ended
        )
    return len(ended)
