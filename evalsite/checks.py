"""Report wrong settings as system checks, whose ids name the variable."""

from __future__ import annotations

import ipaddress
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography.fernet import Fernet
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning

from evalsite.access.roles import EVERYBODY, Role
from evaluators.sandbox.probe import find_sandbox

PLACEHOLDERS = ("change", "placeholder", "example", "secret-key", "insecure", "your-", "xxxxxxxx")
MIN_KEY_LENGTH = 32
CLOSED_BY_LIMITS = ("files", "network")


def check_environment(**options: Any) -> list[CheckMessage]:
    """Return everything that is wrong with the environment of this process."""
    unusable: list[CheckMessage] = [
        error(problem.variable, problem.message, problem.hint) for problem in settings.ENV.problems
    ]
    return [
        *unusable,
        *_keys(),
        *_database(),
        *_addresses(),
        *_second_factor(),
        *_sign_in(),
    ]


def check_sandbox(**options: Any) -> list[CheckMessage]:
    """Return what is wrong with the sandbox of this process, if scripts are switched on."""
    offer = find_sandbox() if settings.SCRIPTS else None
    if offer and offer.kind == "none":
        message = f"EVALSITE_SCRIPTS is set and no sandbox works on this machine: {offer.reason}."
        hint = (
            "Scripts and commands are refused here. They need Linux with util-linux, and preferably "
            "bubblewrap."
        )
    elif offer and offer.kind == "limits" and len(offer.closed) < len(CLOSED_BY_LIMITS):
        still_open = " and ".join(word for word in CLOSED_BY_LIMITS if word not in offer.closed)
        message = (
            f"Scripts and commands run under limits that leave {still_open} open: {offer.reason}."
        )
        hint = (
            "With files open, a script can read everything its user can: for a worker that is not "
            "root, its keys, its .env and its database. Allow scripts only to members who may see those, "
            "or allow user namespaces for the workers."
        )
    else:
        return []
    return [Warning(message, hint=hint, id="evalsite.W.EVALSITE_SCRIPTS")]


def error(variable: str, message: str, hint: str = "") -> Error:
    """Return an error with the id `evalsite.E.<variable>`."""
    return Error(message, hint=hint or None, id=f"evalsite.E.{variable}")


def _keys() -> Iterator[CheckMessage]:
    key = settings.SECRET_KEY
    is_placeholder = any(word in key.lower() for word in PLACEHOLDERS)
    if not settings.DEBUG and (is_placeholder or len(key) < MIN_KEY_LENGTH):
        yield error(
            "EVALSITE_SECRET_KEY",
            f"EVALSITE_SECRET_KEY is a placeholder or shorter than {MIN_KEY_LENGTH} characters.",
            "Leave it out (one is generated at the first start) or set a long random text.",
        )
    try:
        for key in settings.ENCRYPTION_KEY.split(","):
            Fernet(key.strip())
    except ValueError:
        yield error(
            "EVALSITE_ENCRYPTION_KEY",
            "EVALSITE_ENCRYPTION_KEY is not 32 bytes in URL-safe base64 (or several, separated by commas).",
            "Leave it out, or generate one: python -c 'from cryptography.fernet import Fernet;"
            "print(Fernet.generate_key().decode())'",
        )
    if not settings.IS_EMBEDDED and not settings.HAS_OWN_KEYS:
        yield Warning(
            "The keys are files in EVALSITE_DATA_DIR, and this installation has a shared broker.",
            hint="Machines that do not share that folder need the same EVALSITE_SECRET_KEY and "
            "EVALSITE_ENCRYPTION_KEY.",
            id="evalsite.W.EVALSITE_ENCRYPTION_KEY",
        )


def _database() -> Iterator[CheckMessage]:
    database = settings.DATABASES["default"]
    if "sqlite3" not in database["ENGINE"]:
        return
    path = Path(str(database["NAME"]))
    if path.exists() and _is_readable_by_everybody(path):
        yield Warning(
            f"Every user of this machine can read the database {path}.",
            hint=f"chmod 700 {path.parent} (or chmod 600 for the file and those beside it that begin "
            "with its name).",
            id="evalsite.W.EVALSITE_DATA_DIR",
        )


def _is_readable_by_everybody(path: Path) -> bool:
    folders_are_open = all(folder.stat().st_mode & stat.S_IXOTH for folder in path.parents)
    return folders_are_open and bool(path.stat().st_mode & stat.S_IROTH)


def _addresses() -> Iterator[CheckMessage]:
    is_http = settings.SITE_URL.startswith("http:")
    if is_http and not (settings.PLAIN_HTTP or settings.DEBUG or _is_loopback(settings.SITE_HOST)):
        yield error(
            "EVALSITE_URL",
            f"EVALSITE_URL is {settings.SITE_URL}: passwords would be sent unencrypted.",
            "Use https, or set EVALSITE_PLAIN_HTTP=1 if the network is trusted.",
        )
    if settings.SITE_URL.startswith("https:") and not settings.TRUST_PROXY:
        yield Warning(
            "EVALSITE_URL is https and EVALSITE_TRUST_PROXY is not set: behind a proxy that ends "
            "TLS every page would redirect to itself.",
            hint="Set EVALSITE_TRUST_PROXY=1 if a proxy sets X-Forwarded-Proto on every request.",
            id="evalsite.W.EVALSITE_TRUST_PROXY",
        )


def _second_factor() -> Iterator[CheckMessage]:
    known = (EVERYBODY, *Role.values)
    if unknown := [name for name in settings.REQUIRE_SECOND_FACTOR if name not in known]:
        yield error(
            "EVALSITE_REQUIRE_SECOND_FACTOR",
            f"EVALSITE_REQUIRE_SECOND_FACTOR names roles that do not exist: {', '.join(unknown)}.",
            f"Write {EVERYBODY}, or some of {', '.join(Role.values)}.",
        )


def _sign_in() -> Iterator[CheckMessage]:
    if not settings.OIDC_ISSUER:
        if settings.OIDC_CLIENT_ID:
            yield error(
                "EVALSITE_OIDC_ISSUER",
                "EVALSITE_OIDC_CLIENT_ID is set and EVALSITE_OIDC_ISSUER is not.",
                "Set it to the address of the provider, such as https://login.example.com/realms/staff.",
            )
        if not settings.PASSWORD_LOGIN:
            yield error(
                "EVALSITE_PASSWORD_LOGIN",
                "EVALSITE_PASSWORD_LOGIN is 0 and there is no provider: only one-time links would log in.",
                "Set EVALSITE_OIDC_ISSUER and EVALSITE_OIDC_CLIENT_ID, or leave it out.",
            )
        return
    if not settings.OIDC_CLIENT_ID:
        yield error(
            "EVALSITE_OIDC_CLIENT_ID",
            "EVALSITE_OIDC_ISSUER is set and EVALSITE_OIDC_CLIENT_ID is not.",
            "Set it to the id under which the provider knows this site.",
        )
    issuer = urlsplit(settings.OIDC_ISSUER)
    may_be_http = settings.PLAIN_HTTP or settings.DEBUG or _is_loopback(issuer.hostname or "")
    if issuer.scheme == "http" and not may_be_http:
        yield error(
            "EVALSITE_OIDC_ISSUER",
            f"EVALSITE_OIDC_ISSUER is {settings.OIDC_ISSUER}: anyone between this site and the provider could sign in as any member.",
            "Use https, or set EVALSITE_PLAIN_HTTP=1 if the network is trusted.",
        )
    if "openid" not in settings.OIDC_SCOPES.split():
        yield error(
            "EVALSITE_OIDC_SCOPES",
            f"EVALSITE_OIDC_SCOPES is {settings.OIDC_SCOPES!r} and lacks openid. Without it no member can sign in.",
            "Separate them with spaces, such as: openid profile email groups.",
        )
    yield from _roles_of_groups()


def _roles_of_groups() -> Iterator[CheckMessage]:
    roles = settings.OIDC_ROLES
    if unknown := [f"{group}={role}" for group, role in roles.items() if role not in Role.values]:
        yield error(
            "EVALSITE_OIDC_ROLES",
            f"EVALSITE_OIDC_ROLES gives roles that do not exist: {', '.join(unknown)}.",
            f"The roles are {', '.join(Role.values)}.",
        )
    elif roles and Role.ADMIN not in roles.values():
        yield Warning(
            "EVALSITE_OIDC_ROLES has no group for admins: admins who sign in lose the role, except the last one.",
            hint="Add a group for them, such as evalsite-admins=admin.",
            id="evalsite.W.EVALSITE_OIDC_ROLES",
        )
    if settings.OIDC_ADMIT == "groups" and not roles:
        yield error(
            "EVALSITE_OIDC_ROLES",
            "EVALSITE_OIDC_ADMIT is groups and EVALSITE_OIDC_ROLES names none: no member could sign in.",
            "Write GROUP=ROLE pairs separated by commas, such as evalsite-admins=admin,staff=viewer.",
        )


def check_provider(**options: Any) -> list[CheckMessage]:
    """Ask the provider that members sign in with; return what is wrong with it."""
    if not (settings.OIDC_ISSUER and settings.OIDC_CLIENT_ID):
        return []
    # Only this check needs its libraries.
    from evalsite.access.single_sign_on.identity import ProviderError
    from evalsite.access.single_sign_on.provider import metadata

    try:
        metadata()
    except ProviderError as problem:
        hint = (
            "Until it works, members log in by password or by one-time link (evalsite login_link)."
        )
        return [error("EVALSITE_OIDC_ISSUER", str(problem), hint)]
    return []


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
