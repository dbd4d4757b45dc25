"""A site that is attacked in this process: one request at a time, each looked at and then undone."""

from __future__ import annotations

import math
import re
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.models import AnonymousUser
from django.db import connection, transaction
from django.test import Client, RequestFactory
from django.urls import Resolver404, resolve
from django.utils import timezone

from evalsite.access.logins import finish_first_factor
from evalsite.access.models import MemberFactors
from evalsite.access.sessions import SessionStore
from tests.evalsite.test_every_url import (
    ANYBODY,
    PAGES,
    ROLES,
    VISITOR,
    Page,
    address_of,
    fill_site,
)
from tests.support.members import make_member

FORM, JSON = "application/x-www-form-urlencoded", "application/json"
# An admin who has given a right password and not yet the second factor; may do no more than a visitor.
HALFWAY = "halfway"
SENDERS = (VISITOR, HALFWAY, *ROLES)
SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}
# Beyond these an answer may show again what was sent, and name it in an error.
MAX_BYTES, MAX_ECHOES = 2_000_000, 3
# Reading a suite file, with the line of each value, takes time with its size; anything more than that is found.
CPU_S_A_BYTE = 2e-6
# A page that shows this unescaped would run it.
MARKER = "<script>attack(91)</script>"
# Sent in fields that a form does not have; nothing may store it.
SMUGGLED = "attack-smuggled"
MAX_SHOWN, MAX_SHOWN_OF_VALUE = 400, 80

WRITE = re.compile(
    r'\s*(INSERT|UPDATE|DELETE)(?: OR \w+)?(?: INTO| FROM)?\s+"?(\w+)', re.IGNORECASE
)
SAVEPOINT = re.compile(r'\s*(SAVEPOINT|ROLLBACK TO SAVEPOINT)\s+"?(\w+)', re.IGNORECASE)
# A refused request may be noted in the audit and as a wrong password, and is a use of its session or token.
NOTES = re.compile("evaluators_auditentry|axes_|runs_membersession|runs_apitoken")
# A page that tells how much runs take on disk notes it for the next time, also below a refused form.
MEASURED = "UPDATE runs_run"
# A preview keeps what was ticked and edited in its rows, also where what was chosen above them is refused.
KEPT = {MEASURED, "UPDATE runs_caseupload", "UPDATE runs_modeljob"}
# A reviewer holds an item by opening it, and a passkey's question is kept until its answer.
NOTED_BY_READING = {
    MEASURED,
    "UPDATE runs_reviewitem",
    "INSERT access_memberfactors",
    "UPDATE access_memberfactors",
}


@dataclass(frozen=True)
class Finding:
    """What the site did wrong, and the request that made it do so. Findings of one kind say the same of `what`."""

    what: str
    request: str
    wrong: str

    def __str__(self) -> str:
        """Return a line in ASCII, as a terminal would obey some of what requests hold."""
        line = f"{self.what}: {self.request}: {self.wrong}"
        return line.encode("ascii", "backslashreplace").decode()


@dataclass
class Answer:
    """What came back, what it wrote, and what is wrong with it whatever was asked."""

    request: str
    name: str
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    written: list[str] = field(default_factory=list)
    smuggled: list[str] = field(default_factory=list)
    cpu_s: float = 0.0
    error: str = ""
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_refused(self) -> bool:
        return 400 <= self.status < 500

    @property
    def leads_to_login(self) -> bool:
        return self.status == 302 and "/login/" in self.headers.get("Location", "")

    @property
    def is_page(self) -> bool:
        return "text/html" in self.headers.get("Content-Type", "")

    def find(self, what: str, wrong: object) -> Finding:
        """Return a finding about this answer; those of one address and kind are one."""
        return Finding(f"{what} ({self.name})", self.request, str(wrong)[:MAX_SHOWN])


class Writes:
    """The tables that statements wrote rows to, without what was rolled back to a savepoint."""

    def __init__(self) -> None:
        """Note nothing yet."""
        self.rows: list[tuple[str, bool]] = []
        self.savepoints: dict[str, int] = {}

    def __call__(self, execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        """Execute a statement, and note what it did."""
        result = execute(sql, params, many, context)
        if found := SAVEPOINT.match(str(sql)):
            action, name = found.groups()
            if action.upper() == "SAVEPOINT":
                self.savepoints[name] = len(self.rows)
            else:
                del self.rows[self.savepoints.get(name, 0) :]
        # SQLite counts the rows that a statement returns when they are read.
        elif (found := WRITE.match(str(sql))) and (
            context["cursor"].rowcount or " RETURNING " in str(sql)
        ):
            self.rows.append((" ".join(found.groups()), SMUGGLED in repr(params)))
        return result

    @property
    def tables(self) -> list[str]:
        """What was done to which tables, without those that note what was refused."""
        return sorted({table for table, _ in self.rows if not NOTES.search(table)})

    @property
    def smuggled(self) -> list[str]:
        """Those of them that hold what no field holds."""
        smuggled = {table for table, is_smuggled in self.rows if is_smuggled}
        return [table for table in self.tables if table in smuggled]


class AttackedSite:
    """A site with one object of every kind, and members of each role."""

    def __init__(self, *, max_cpu_s: float = math.inf) -> None:
        """Fill the empty database, which the caller throws away at the end."""
        self.site = fill_site()
        self.site.visitor.raise_request_exception = False
        self.site.sessions[HALFWAY] = begin_login()
        self.max_cpu_s = math.inf
        self.allowed_cpu_s = max_cpu_s
        self.start_counting()

    def start_counting(self) -> None:
        """Count requests and reached addresses anew."""
        self.requests = 0
        self.reached: set[str] = set()
        self.outcomes: dict[str, Counter[str]] = defaultdict(Counter)

    def count(self, family: str, outcome: str) -> None:
        """Count something that was sent, by its family and by what became of it."""
        self.requests += 1
        self.outcomes[family][outcome] += 1

    def warm_up(self) -> None:
        """Open every address once: what a process loads at its first request is not held against it."""
        for name in PAGES:
            with self.ask(self.client("admin"), "GET", self.address(name)):
                pass
        self.max_cpu_s = self.allowed_cpu_s

    def client(self, role: str) -> Client:
        """Return a client with a working session of a role, whatever requests before have ended."""
        return self.site.client(role)

    def address(self, name: str) -> str:
        return address_of(name, self.site.numbers)

    @contextmanager
    def ask(
        self,
        client: Client,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        content_type: str = FORM,
        is_htmx: bool = False,
        about: str = "",
    ) -> Iterator[Answer]:
        """Send a request and give its answer; what it changed is there until the block ends."""
        headers = {"HX-Request": "true"} if is_htmx else {}
        answer = Answer(f"{method} {path} {about}"[:MAX_SHOWN].strip(), address_name(path))
        self.requests += 1
        self.reached.add(answer.name)
        writes = Writes()
        with undone():
            begun = time.process_time()
            with connection.execute_wrapper(writes):
                try:
                    response: Any = client.generic(
                        method, path, body, content_type, headers=headers
                    )
                    answer.body = response.getvalue()
                    answer.status, answer.headers = response.status_code, response.headers
                    if response.exc_info:
                        answer.error = place_of(response.exc_info[1])
                except Exception as error:  # noqa: BLE001
                    answer.error = place_of(error)
            answer.cpu_s = time.process_time() - begun
            answer.written, answer.smuggled = writes.tables, writes.smuggled
            answer.findings = [*self._findings(answer, sent=len(body))]
            yield answer

    def _findings(self, answer: Answer, *, sent: int) -> Iterator[Finding]:
        page = PAGES.get(answer.name)
        if answer.error or (answer.status >= 500 and not (page and page.get == answer.status)):
            yield Finding(
                f"Broke at {answer.error}", answer.request, f"answered {answer.status or 'nothing'}"
            )
        if answer.cpu_s > self.max_cpu_s + sent * CPU_S_A_BYTE:
            yield answer.find("Took too long", f"{answer.cpu_s:.1f} s of CPU")
        if len(answer.body) > MAX_BYTES + MAX_ECHOES * sent:
            yield answer.find("Answered too much", f"{len(answer.body)} bytes")
        if answer.is_refused and {*answer.written} - KEPT:
            yield answer.find("Wrote though it refused", f"{answer.status}, {answer.written}")
        if answer.is_page and MARKER.encode() in answer.body:
            yield answer.find("Shows a script unescaped", MARKER)

    def open(self, role: str, paths: Iterable[str], *, after: Answer) -> Iterator[Finding]:
        """Yield what is wrong with pages that show what a request has just stored."""
        for path in dict.fromkeys(paths):
            with self.ask(self.client(role), "GET", path, about=f"after {after.request}") as answer:
                yield from answer.findings


def begin_login() -> str:
    """Return the session of an admin whose second factor is awaited."""
    member = make_member("admin", f"a-{HALFWAY}")
    MemberFactors.objects.create(
        user=member, handle=HALFWAY, encrypted_secret="x", app_added_at=timezone.now()
    )
    request = RequestFactory().get("/")
    request.user, request.session = AnonymousUser(), SessionStore()
    finish_first_factor(request, member, way="password", next_path="/")
    request.session.save()
    return str(request.session.session_key)


def may(role: str, page: Page, method: str) -> bool:
    """Tell whether a role may send a request of this method to an address."""
    if page.role == ANYBODY:
        return True
    lowest = page.role if method in SAFE_METHODS else page.post_role or page.role
    return SENDERS.index(role) >= SENDERS.index(lowest)


def exceeded_rights(role: str, method: str, answer: Answer) -> Iterator[Finding]:
    """Yield what an answer gave to a role that may not have it, and what reading changed."""
    page = PAGES.get(answer.name)
    if page is None:
        return
    if method in SAFE_METHODS and {*answer.written} - NOTED_BY_READING:
        yield answer.find("Wrote though it was only read", answer.written)
    if may(role, page, method):
        return
    is_answered = method != "OPTIONS" and answer.status < 400 and not answer.leads_to_login
    if is_answered or answer.written:
        yield answer.find(f"Answered a {role}", f"{answer.status}, {answer.written}")


def encode(data: Mapping[str, Sequence[str]]) -> bytes:
    """Return fields as a browser sends them, lone surrogates included."""
    pairs = [(name, value) for name, values in data.items() for value in values]
    return urlencode(pairs, errors="surrogatepass").encode()


def shorten(value: object) -> str:
    """Return what a line has room for of a value."""
    text = repr(value)
    return (
        text if len(text) <= MAX_SHOWN_OF_VALUE else f"{text[:MAX_SHOWN_OF_VALUE]}… ({len(text)})"
    )


def address_name(path: str) -> str:
    """Return the name of an address, as the list of all addresses has it."""
    try:
        return resolve(path.partition("?")[0]).view_name
    except Resolver404:
        return "no address"


@contextmanager
def undone() -> Iterator[None]:
    """Roll back what a block writes, and let services that commit run inside it."""
    atomic = transaction.atomic()
    # Django's own tests do so: code that must not run in a transaction may run in this one.
    atomic._from_testcase = True  # type: ignore[attr-defined]
    with atomic:
        yield
        transaction.set_rollback(True)


def place_of(error: BaseException) -> str:
    """Return the innermost place of ours where an error was raised, and what it says."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if re.search("/(evalsite|runs|evaluators)/", frame.filename)]
    where = (ours or frames)[-1]
    file = "/".join(where.filename.rsplit("/", 3)[1:])
    return f"{file}:{where.lineno} {type(error).__name__}: {error}"[:MAX_SHOWN]
