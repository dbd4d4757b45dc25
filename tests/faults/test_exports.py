from __future__ import annotations

import signal
from pathlib import Path

from tests.faults.installations import Installation
from tests.faults.suite import CASES, SUITE
from tests.services.visitor import Visitor

LINES = f"/suites/{SUITE}/runs/1/results.jsonl"
WRITING = "SELECT count(*) = 1 FROM runs_export WHERE state = 'writing' AND done_count > 0"
READY = "SELECT count(*) = 1 FROM runs_export WHERE state = 'ready'"


