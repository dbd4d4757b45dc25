"""A worker that is killed in the middle of a job."""

from __future__ import annotations

import os
import signal

from aiohttp import web

from tests.faults.installations import Installation
from tests.reviews.aligning import KIND, SHORT, writes
from tests.services.processes import wait_until
from tests.support.model_server import Request

START = """
from runs.reviews.alignment.planning import AlignmentRequest
from runs.reviews.alignment.services import start_alignment
from tests.reviews.aligning import make_decided_suite
suite, _ = make_decided_suite({base_url!r})
start_alignment(suite, AlignmentRequest("tone", suite.judge, candidates=2), by=None)
"""
# One of the writer, and 15 for each of its candidates.
CALLS, ANSWERED = 31, 12
BOOKED = "SELECT count(*) = {} FROM runs_modelcall WHERE job_id IS NOT NULL"
DONE = "SELECT count(*) = 1 FROM runs_modeljob WHERE state = 'done' AND tries = 0"


async def answer(request: Request) -> web.StreamResponse:
    """Write and judge instructions, as slowly as the test wants."""
    await request.hang()
    return await writes(SHORT, KIND)(request)


def test_an_alignment_whose_worker_is_killed_goes_on_and_pays_again_for_no_answer_that_was_written(
    single: Installation,
):
    single.forget_the_run()
    single.models.on_model("mock", answer)
    start = START.format(base_url=single.models.base_url)
    single.site.manage("shell", "--verbosity", "0", "-c", start)
    single.models.release(ANSWERED)
    single.begin_web()
    single.wait_for(BOOKED.format(ANSWERED))
    wait_until(lambda: single.models.in_flight > 0)
    # Nothing is answered between the last record and the kill.
    assert len(single.models.answered) == ANSWERED
    [victim] = single.site.web_workers()
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: single.site.web_workers() not in ([], [victim]))
    asked = len(single.models.requests)

    single.models.release()
    single.wait_for(DONE)
    assert single.database.says(BOOKED.format(CALLS))
    assert len(single.models.requests) - asked == CALLS - ANSWERED
