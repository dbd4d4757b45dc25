"""The checks of a deployment: keys, sandbox, second factors."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.apps import apps
from django.core.checks.registry import CheckRegistry
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from pytest_django import Settings

from evalsite.checks import check_environment, check_sandbox
from evaluators.sandbox.probe import SandboxOffer
from tests.services.identity_provider import IdentityProvider

LENGTH = 64


def setting_problems(settings: Settings, key: str) -> list[str]:
    settings.SECRET_KEY = key
    return [
        check.id or ""
        for check in check_environment()
        if check.id == "evalsite.E.EVALSITE_SECRET_KEY"
    ]


def test_a_random_key_with_three_equal_characters_passes(settings: Settings) -> None:
    # One key in five hundred contains "xxx" in upper or lower case.
    key = "RLqg6aNb5hWnflRdrho03XXxmAIXs_ZgZ2L4fLFt0E941r9wUWWO4deZjY33I_p8"
    assert setting_problems(settings, key) == []


@pytest.mark.parametrize(
    "key", ["x" * LENGTH, "change-me-" * 7, "Your-secret-key-stands-here-please".ljust(LENGTH, "!")]
)
def test_a_long_placeholder_is_refused(settings: Settings, key: str) -> None:
    assert setting_problems(settings, key) == ["evalsite.E.EVALSITE_SECRET_KEY"]


def test_a_second_factor_is_required_only_of_roles_that_exist(settings: Settings) -> None:
    settings.REQUIRE_SECOND_FACTOR = ["all", "editor", "owner"]
    [refusal] = [check for check in check_environment() if "SECOND_FACTOR" in str(check.id)]
    assert refusal.msg.endswith("names roles that do not exist: owner.")
    settings.REQUIRE_SECOND_FACTOR = ["all", "editor"]
    assert not [check for check in check_environment() if "SECOND_FACTOR" in str(check.id)]


@pytest.mark.parametrize(
    ("offer", "expected"),
    [
        (SandboxOffer("bubblewrap"), None),
        (SandboxOffer("limits", closed=("files", "network")), None),
        (SandboxOffer("limits", closed=("network",)), "leave files open"),
        (SandboxOffer("limits", reason="no bwrap"), "leave files and network open: no bwrap"),
        (SandboxOffer("none", reason="no prlimit"), "no sandbox works on this machine: no prlimit"),
    ],
)
def test_scripts_without_a_complete_sandbox_cause_a_warning(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, offer: SandboxOffer, expected: str | None
) -> None:
    settings.SCRIPTS = True
    monkeypatch.setattr("evalsite.checks.find_sandbox", lambda: offer)
    warnings = [check.msg for check in check_sandbox()]
    assert len(warnings) == (expected is not None)
    assert all(expected in warning for warning in warnings)


@pytest.mark.parametrize("is_embedded", [True, False])
def test_only_a_process_that_runs_programs_looks_for_a_sandbox_unasked(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, is_embedded: bool
) -> None:
    settings.IS_EMBEDDED, settings.SCRIPTS = is_embedded, True
    monkeypatch.setattr("evalsite.checks.find_sandbox", lambda: SandboxOffer("none"))
    registry = CheckRegistry()
    monkeypatch.setattr("evalsite.apps.register", registry.register)
    apps.get_app_config("evalsite").ready()
    found = {check.id for check in registry.run_checks()}
    assert ("evalsite.W.EVALSITE_SCRIPTS" in found) == is_embedded


def test_the_check_looks_for_a_sandbox(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.IS_EMBEDDED, settings.SCRIPTS = False, True
    monkeypatch.setattr("evalsite.checks.find_sandbox", lambda: SandboxOffer("none"))
    call_command("check")
    assert "no sandbox works on this machine" in capsys.readouterr().err


def test_without_scripts_the_sandbox_is_not_checked(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SCRIPTS = False
    monkeypatch.delattr("evalsite.checks.find_sandbox")
    assert check_sandbox() == []


@pytest.mark.parametrize(
    ("folder_mode", "file_mode", "warns"),
    [(0o755, 0o644, True), (0o700, 0o644, False), (0o755, 0o600, False), (0o750, 0o644, False)],
)
def test_a_database_that_every_user_can_read_causes_a_warning(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    folder_mode: int,
    file_mode: int,
    warns: bool,
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    path = folder / "evalsite.sqlite3"
    path.touch()
    path.chmod(file_mode)
    folder.chmod(folder_mode)
    # The folders above belong to the test's own user alone.
    monkeypatch.setattr("evalsite.checks.Path.parents", (folder,))
    monkeypatch.setitem(settings.DATABASES, "default", {"ENGINE": "sqlite3", "NAME": path})
    messages = [check.msg for check in check_environment() if "EVALSITE_DATA_DIR" in str(check.id)]
    assert messages == [f"Every user of this machine can read the database {path}."] * warns


def sign_in_problems() -> dict[str, str]:
    return {
        check.id or "": str(check.msg)
        for check in check_environment()
        if "OIDC" in str(check.id) or "PASSWORD" in str(check.id)
    }


def test_a_complete_provider_passes(settings: Settings) -> None:
    settings.OIDC_ISSUER, settings.OIDC_CLIENT_ID = "https://login.harbour.example", "evalsite"
    settings.OIDC_ADMIT, settings.OIDC_ROLES = "groups", {"admins": "admin", "staff": "viewer"}
    settings.PASSWORD_LOGIN = False
    assert sign_in_problems() == {}


@pytest.mark.parametrize(
    ("wrong", "variable", "message"),
    [
        ({"OIDC_ISSUER": ""}, "E.EVALSITE_OIDC_ISSUER", "EVALSITE_OIDC_ISSUER is not"),
        (
            {"OIDC_ISSUER": "", "PASSWORD_LOGIN": False},
            "E.EVALSITE_PASSWORD_LOGIN",
            "one-time links",
        ),
        ({"OIDC_CLIENT_ID": ""}, "E.EVALSITE_OIDC_CLIENT_ID", "EVALSITE_OIDC_CLIENT_ID is not"),
        (
            {"OIDC_ISSUER": "http://harbour.example"},
            "E.EVALSITE_OIDC_ISSUER",
            "sign in as any member",
        ),
        ({"OIDC_SCOPES": "profile email"}, "E.EVALSITE_OIDC_SCOPES", "lacks openid"),
        ({"OIDC_ROLES": {"staff": "boss"}}, "E.EVALSITE_OIDC_ROLES", "staff=boss"),
        ({"OIDC_ROLES": {"staff": "viewer"}}, "W.EVALSITE_OIDC_ROLES", "no group for admins"),
        ({"OIDC_ADMIT": "groups"}, "E.EVALSITE_OIDC_ROLES", "no member could sign in"),
    ],
)
def test_a_provider_that_is_set_up_by_halves_is_named(
    settings: Settings, wrong: dict[str, object], variable: str, message: str
) -> None:
    settings.OIDC_ISSUER, settings.OIDC_CLIENT_ID = "https://login.harbour.example", "evalsite"
    for name, value in wrong.items():
        setattr(settings, name, value)
    assert message in sign_in_problems()[f"evalsite.{variable}"]


def test_the_command_check_asks_the_provider(
    settings: Settings, provider: IdentityProvider, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("check")
    assert "no issues" in capsys.readouterr().out
    # What the provider says is kept for an hour, by client.
    settings.OIDC_CLIENT_ID = "another"
    provider.lie(description={"issuer": "https://elsewhere.example"})
    with pytest.raises(SystemCheckError, match="it is the issuer https://elsewhere.example"):
        call_command("check")
