"""An OpenID Connect provider in a process of its own, by django-oauth-toolkit, which lies about people on request.

`python -m tests.services.identity_provider PORT FOLDER` serves it. People log in by their name alone.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.services.processes import Process, free_port, running, scratch_folder

CLIENT_ID, CLIENT_SECRET = "evalsite", "a secret between the two of them alone"


class IdentityProvider:
    """A running provider, and what it should say and do."""

    def __init__(self, port: int, process: Process) -> None:
        """Take where it listens."""
        self.address = f"http://127.0.0.1:{port}"
        self.issuer = f"{self.address}/o"
        self.process = process

    def know(
        self, person: str, *, only_when_asked: Mapping[str, Any] | None = None, **claims: Any
    ) -> None:
        """Say these claims about a person from now on; some only at the userinfo address."""
        said = {"sub": f"sub-{person}", "preferred_username": person} | claims
        self._tell("people", {"name": person, "claims": said, "asked": only_when_asked or {}})

    def register(self, site: str) -> None:
        """Take this site's addresses for the client's own."""
        self._tell("client", {"site": site})

    def lie(self, **lies: Any) -> None:
        """Misbehave in these ways, and no others, until told otherwise.

        `claims` replace those of ID tokens (None leaves one out), `userinfo` those told when asked;
        `signature` is "another key", "secret" or "none"; `answers` are given at paths instead of the true
        ones; `description` replaces values of the provider's description.
        """
        self._tell("lies", lies)

    def _tell(self, what: str, value: Mapping[str, Any]) -> None:
        body = json.dumps(value).encode()
        urllib.request.urlopen(f"{self.address}/tell/{what}/", data=body).close()


@contextmanager
def identity_provider() -> Iterator[IdentityProvider]:
    """Serve a provider until the end of the block."""
    port = free_port()
    with scratch_folder("provider") as folder:
        process = Process(
            [sys.executable, "-m", "tests.services.identity_provider", str(port), str(folder)],
            log=folder / "provider.log",
            is_ready=lambda: _answers(port),
        )
        with running(process):
            yield IdentityProvider(port, process)


def _answers(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/login/").close()
    except OSError:
        return False
    return True


def serve(port: int, folder: Path) -> None:
    """Serve the provider forever, with a new key and an empty database in the folder."""
    import django
    from django.conf import settings
    from jwcrypto import jwk

    key = jwk.JWK.generate(kty="RSA", size=2048).export_to_pem(private_key=True, password=None)
    settings.configure(
        SECRET_KEY="only for tests, and only on this machine",
        ALLOWED_HOSTS=["127.0.0.1"],
        INSTALLED_APPS=[
            "django.contrib.contenttypes",
            "django.contrib.auth",
            "django.contrib.sessions",
            "oauth2_provider",
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "tests.services.identity_provider_pages.misbehave",
        ],
        SESSION_COOKIE_NAME="provider_session",
        # The client's secret is hashed like a password, and checked at every sign-in.
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
        DATABASES={
            "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": folder / "provider.sqlite3"}
        },
        TEMPLATES=[
            {"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}
        ],
        ROOT_URLCONF="tests.services.identity_provider_pages",
        LOGIN_URL="/login/",
        USE_TZ=True,
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        OAUTH2_PROVIDER={
            "OIDC_ENABLED": True,
            "OIDC_RSA_PRIVATE_KEY": key.decode(),
            "OIDC_RP_INITIATED_LOGOUT_ENABLED": True,
            "OIDC_RP_INITIATED_LOGOUT_ALWAYS_PROMPT": False,
            "PKCE_REQUIRED": True,
            "SCOPES": {"openid": "Who you are", "profile": "Name", "email": "Email"},
            "OAUTH2_VALIDATOR_CLASS": "tests.services.identity_provider_pages.Validator",
        },
    )
    django.setup()
    from django.core.management import call_command
    from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler
    from django.core.wsgi import get_wsgi_application

    call_command("migrate", verbosity=0)
    server = ThreadedWSGIServer(("127.0.0.1", port), WSGIRequestHandler)
    server.set_app(get_wsgi_application())
    server.serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]), Path(sys.argv[2]))
