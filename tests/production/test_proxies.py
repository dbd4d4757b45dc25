"""The README's configurations of proxies, with the proxies that are installed on this machine."""

from __future__ import annotations

import shutil
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.production.readme import readme_block
from tests.services.processes import Process, free_port, running, scratch_folder
from tests.services.site import Site, is_healthy
from tests.services.slow_clients import connect, half_a_form

pytestmark = [pytest.mark.slow, pytest.mark.processes]

DOMAIN, BEHIND = "evals.example.com", "127.0.0.1:8000"
MANY = 150
NGINX = """
daemon off;
pid {folder}/pid;
error_log {folder}/errors;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/bodies;
  proxy_temp_path {folder}/answers;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  {server}
}}
"""


def caddy(folder: Path, port: int, site: str) -> list[str]:
    """Write the README's Caddyfile for a port without TLS, and return the command."""
    text = readme_block("caddy").replace(DOMAIN, f"http://127.0.0.1:{port}").replace(BEHIND, site)
    (folder / "Caddyfile").write_text(f"{{\n  admin off\n}}\n{text}")
    return ["caddy", "run", "--adapter", "caddyfile", "--config", f"{folder}/Caddyfile"]


def nginx(folder: Path, port: int, site: str) -> list[str]:
    """Write the README's configuration for a port without TLS, and return the command."""
    lines = readme_block("nginx").replace("443 ssl", f"127.0.0.1:{port}").replace(BEHIND, site)
    server = "\n".join(line for line in lines.splitlines() if "ssl_" not in line)
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, server=server))
    return ["nginx", "-e", f"{folder}/errors", "-c", f"{folder}/nginx.conf"]


PROXIES: dict[str, Callable[[Path, int, str], list[str]]] = {"caddy": caddy, "nginx": nginx}


@dataclass(frozen=True, slots=True)
class Proxied:
    """A site behind a proxy."""

    url: str
    site: Site

    @property
    def address(self) -> tuple[str, int]:
        """Return host and port of the proxy."""
        parts = urlsplit(self.url)
        return str(parts.hostname), int(parts.port or 80)


@contextmanager
def proxied(name: str) -> Iterator[Proxied]:
    """Run a site behind one of the proxies."""
    with scratch_folder(name) as folder:
        url = f"http://127.0.0.1:{(port := free_port())}"
        site = Site(folder, EVALSITE_TRUST_PROXY="1")
        behind = site.url.removeprefix("http://")
        site.env["EVALSITE_URL"] = url
        site.migrate()
        command = PROXIES[name](folder, port, behind)
        proxy = Process(
            command,
            log=folder / f"{name}.log",
            is_ready=lambda: is_healthy(url),
            env={**site.env, "HOME": str(folder)},
        )
        with running(site.web), running(proxy):
            yield Proxied(url, site)


@pytest.fixture(scope="module", params=[name for name in PROXIES if shutil.which(name)])
def behind(request: pytest.FixtureRequest) -> Iterator[Proxied]:
    """Give a site behind each proxy that is installed."""
    with proxied(request.param) as site:
        yield site


def test_a_page_is_served_while_many_clients_have_sent_half_a_form(behind: Proxied) -> None:
    with ExitStack() as open_connections:
        for _ in range(MANY):
            open_connections.enter_context(connect(behind.url, half_a_form(100_000)))
        with urllib.request.urlopen(f"{behind.url}/login/", timeout=60) as page:
            assert page.status == 200


def test_no_header_moves_pages_to_where_share_links_are(behind: Proxied) -> None:
    connection = HTTPConnection(*behind.address, timeout=30)
    connection.request("GET", "/s/login/", headers={"SCRIPT_NAME": "/s"})
    answer = connection.getresponse()
    assert answer.status == 404
    assert b"csrfmiddlewaretoken" not in answer.read()
    connection.close()


def test_a_login_link_leads_through_the_proxy(behind: Proxied) -> None:
    link = behind.site.login_link()
    assert link.startswith(f"{behind.url}/login/")
    with urllib.request.urlopen(link) as page:
        assert page.status == 200
