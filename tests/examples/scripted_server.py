"""The scripted judge of the demo as a process of its own, and how to ask it."""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from tests.examples.reading import EXAMPLES
from tests.services.processes import Process, running

SCRIPT = EXAMPLES / "scripted_judge.py"
QUESTION = {"model": "scripted-judge", "messages": [{"role": "user", "content": "Judge this."}]}

Answer = tuple[int, dict[str, Any]]


class ScriptedServer:
    """The running server."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url

    def send(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send a request below the base URL; a path of `//…` begins at the server's root."""
        address = urlsplit(self.base_url)
        place = path[1:] if path.startswith("//") else address.path + path
        connection = http.client.HTTPConnection(address.netloc, timeout=30)
        try:
            connection.request(method, place, body, dict(headers or {}))
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def ask(self, body: Mapping[str, Any] = QUESTION, **names: str) -> Answer:
        """Send a chat completion with the headers that name target, case and evaluator."""
        headers = {f"X-Evalsite-{name.title()}": quote(value) for name, value in names.items()}
        return self.send("POST", "/chat/completions", json.dumps(body).encode(), headers)

    def act(self, agent: str, case: str, task: str = "") -> Answer:
        """Give an agent a case."""
        body = json.dumps({"case": case, "task": task}).encode()
        return self.send("POST", f"//agents/{agent}", body)


@contextmanager
def started(folder: Path) -> Iterator[ScriptedServer]:
    """Run the server without its delays."""
    ready = folder / "ready"
    options = ["--port", "0", "--delay", "0", "--ready-file", str(ready)]

    def is_ready() -> bool:
        return ready.exists() and ready.read_text().endswith("\n")

    command = [sys.executable, SCRIPT, *options]
    with running(Process(command, log=folder / "log", is_ready=is_ready)):
        yield ScriptedServer(ready.read_text().strip())
