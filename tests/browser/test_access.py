"""Walk the pages of logging in and of members, with a keyboard's and a phone's eyes."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import BrowserContext, Page, expect
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from evalsite.access.members import login_path
from evalsite.access.models import ApiToken, MemberFactors, MemberIdentity, MemberSession, Passkey
from evalsite.access.sessions import CONFIRMED_AT, SessionStore
from runs.home.sidebar import MAX_RECENT_SUITES
from runs.models.suites import Target
from runs.models.temporary import Export, ExportRequest, ExportState
from tests.browser.accessibility import violations_in_every_look
from tests.browser.conftest import Console
from tests.services.identity_provider import IdentityProvider
from tests.support.factories import make_model, make_scored_run, make_suite
from tests.support.members import PASSWORD, make_member

REFUSED = "the server responded with a status of"


def test_log_in_by_name_and_password(page: Page, live_server: LiveServer, console: Console) -> None:
    make_member("viewer", "mira")
    console.allow(f"{REFUSED} 422")
    page.goto(f"{live_server.url}/account/")
    page.get_by_label("Username").fill("mira")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("correct username and password")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_label("Password").press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("mira")
    expect(page).to_have_url(f"{live_server.url}/account/")


def test_a_one_time_link_takes_one_click(page: Page, live_server: LiveServer) -> None:
    mira = make_member("viewer", "mira")
    page.goto(live_server.url + login_path(mira))
    page.get_by_role("button", name="Log in as mira").click()
    page.goto(f"{live_server.url}/account/")
    expect(page.get_by_role("heading", level=1)).to_have_text("mira")


def test_an_admin_adds_a_member_who_sets_a_password(
    page: Page, context: BrowserContext, live_server: LiveServer, log_in: Callable[[str], User]
) -> None:
    log_in("admin")
    page.goto(f"{live_server.url}/members/")
    page.get_by_role("link", name="Add a member").click()
    page.get_by_label("User name").fill("jonas")
    page.get_by_label("Editor", exact=False).check()
    page.get_by_role("button", name="Create invite link").click()
    link = page.get_by_label("Open it to set a password").input_value()
    expect(page.get_by_role("button", name="Copy")).to_be_visible()
    page.get_by_role("button", name="Log out").click()

    page.goto(link)
    page.locator("[name=new_password1]").fill(PASSWORD)
    page.locator("[name=new_password2]").fill(PASSWORD)
    page.get_by_role("button", name="Set password and log in").click()
    page.goto(f"{live_server.url}/account/")
    expect(page.locator("main")).to_contain_text("Editor")


def test_removing_the_last_admin_is_refused_with_a_reason(
    page: Page, live_server: LiveServer, log_in: Callable[[str], User], console: Console
) -> None:
    admin = log_in("admin")
    console.allow(f"{REFUSED} 422")
    page.goto(f"{live_server.url}/members/{admin.pk}/")
    page.get_by_role("button", name="Deactivate").click()
    expect(page.get_by_role("alert")).to_contain_text("admin is the last active admin")


@pytest.mark.parametrize(
    ("path", "status", "heading"),
    [
        ("/members/", 403, "You are not allowed to do this"),
        ("/nowhere/", 404, "There is nothing here"),
    ],
)
def test_an_error_page_links_back(
    page: Page,
    live_server: LiveServer,
    log_in: Callable[[str], User],
    console: Console,
    path: str,
    status: int,
    heading: str,
) -> None:
    log_in("viewer")
    console.allow(f"{REFUSED} {status}")
    response = page.goto(live_server.url + path)
    assert response is not None
    assert response.status == status
    expect(page.get_by_role("heading", level=1)).to_have_text(heading)
    expect(page.get_by_role("link", name="Back to suites")).to_be_visible()


def test_nothing_is_cut_off_on_a_phone(
    page: Page, live_server: LiveServer, log_in: Callable[[str], User]
) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    sideways = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    page.goto(f"{live_server.url}/login/")
    assert page.evaluate(sideways) == 0
    log_in("admin")
    for path in ("/account/", "/account/password/", "/members/"):
        page.goto(live_server.url + path)
        assert page.evaluate(sideways) == 0, path


def test_the_whole_menu_is_in_the_window(
    page: Page, live_server: LiveServer, log_in: Callable[[str], User]
) -> None:
    for number in range(MAX_RECENT_SUITES):
        make_scored_run(suite=make_suite(slug=f"suite-{number}"), verdicts=["pass"])
    log_in("admin")
    page.goto(f"{live_server.url}/account/")
    menu = page.locator(".sidebar")
    for height in (900, 800, 720):
        page.set_viewport_size({"width": 1440, "height": height})
        expect(menu.get_by_role("button", name="Log out")).to_be_visible()
        assert menu.evaluate("menu => menu.scrollHeight - menu.clientHeight") == 0, height


def test_the_buttons_of_an_export_stand_side_by_side_on_a_phone(
    page: Page, live_server: LiveServer, log_in: Callable[[str], User]
) -> None:
    member = log_in("viewer")
    export = Export.objects.create(
        digest="a" * 64,
        kind="run_lines",
        params={},
        name="support-1.jsonl",
        state=ExportState.FAILED,
        asked_at=timezone.now(),
        expires_at=timezone.now() + timedelta(days=1),
    )
    ExportRequest.objects.create(owner=member, export=export)
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{live_server.url}/exports/")
    again = page.get_by_role("button", name="Try again to prepare support-1.jsonl").bounding_box()
    delete = page.get_by_role("button", name="Delete support-1.jsonl").bounding_box()
    assert again is not None
    assert delete is not None
    assert again["y"] == delete["y"]


@pytest.fixture
def authenticator(context: BrowserContext, page: Page) -> None:
    """Give the browser a device that has fingerprints and uses them at once."""
    session = context.new_cdp_session(page)
    session.send("WebAuthn.enable")
    options = {
        "protocol": "ctap2",
        "transport": "internal",
        "hasResidentKey": True,
        "hasUserVerification": True,
        "isUserVerified": True,
        "automaticPresenceSimulation": True,
    }
    session.send("WebAuthn.addVirtualAuthenticator", {"options": options})


def code_of(key: str, *, later_s: int = 0) -> str:
    app = TOTP(base64.b32decode(key.replace(" ", "")), 6, SHA1(), 30)
    return app.generate(int(timezone.now().timestamp()) + later_s).decode()


def enter_password(page: Page) -> None:
    page.get_by_label("Username").fill("viewer")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in", exact=True).click()


def log_out(page: Page) -> None:
    page.get_by_role("main").get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Log in")


def test_the_browser_keeps_no_pages_for_back_once_somebody_has_logged_out(
    page: Page, live_server: LiveServer, log_in: Callable[[str], User]
) -> None:
    kept = "sessionStorage.getItem('htmx-history-cache')"
    log_in("viewer")
    make_scored_run(verdicts=["pass", "fail"], suite=make_suite(slug="support"))
    page.goto(f"{live_server.url}/suites/support/cases/")
    page.locator("main input[type=search]").first.fill("C-002")
    expect(page).to_have_url(re.compile("q=C-002"))
    assert "C-001" in page.evaluate(kept)
    page.goto(f"{live_server.url}/account/")
    log_out(page)
    # The text is there before the script that forgets.
    page.wait_for_load_state()
    assert page.evaluate(kept) is None


def forget_confirmations() -> None:
    """Let every session look as if its member had last proved who it is long ago."""
    for row in MemberSession.objects.all():
        data = SessionStore().decode(row.session_data) | {CONFIRMED_AT: "2026-01-01T00:00:00+00:00"}
        MemberSession.objects.filter(pk=row.pk).update(session_data=SessionStore().encode(data))


def test_an_app_and_its_codes_are_set_up_and_asked_for(
    page: Page, live_server: LiveServer, log_in: Callable[[str], User]
) -> None:
    log_in("viewer")
    page.goto(f"{live_server.url}/account/")
    page.get_by_role("link", name="Second factor").click()
    page.get_by_role("link", name="Set up").click()
    expect(page.get_by_role("img", name="QR code of the key below")).to_be_visible()
    key = page.locator("#app-key").inner_text()
    page.get_by_label("Code that the app shows").fill(code_of(key))
    page.get_by_role("button", name="Set up").click()
    codes = page.locator("#recovery-codes").inner_text().split()
    assert len(codes) == 10
    page.goto(f"{live_server.url}/account/")
    log_out(page)

    enter_password(page)
    # The code that set it up works no more; the next one is within the drift that is allowed.
    page.get_by_label("Code", exact=True).fill(code_of(key, later_s=30))
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Suites")

    page.goto(f"{live_server.url}/account/")
    log_out(page)
    enter_password(page)
    page.get_by_text("Use a recovery code").click()
    page.get_by_label("Recovery code").fill(codes[3])
    page.keyboard.press("Enter")
    expect(page.get_by_text("You have 9 recovery codes left")).to_be_visible()


@pytest.mark.usefixtures("authenticator")
def test_a_passkey_is_added_logs_in_confirms_and_is_removed(
    page: Page, live_server: LiveServer
) -> None:
    # Browsers keep no passkeys for numbers.
    site = live_server.url.replace("127.0.0.1", "localhost")
    make_member("viewer")
    page.goto(f"{site}/account/factors/")
    enter_password(page)
    page.get_by_label("Name").fill("Laptop <1>")
    page.get_by_role("button", name="Add a passkey").click()
    expect(page.get_by_role("rowheader", name="Laptop <1>")).to_be_visible()
    page.goto(f"{site}/account/")
    log_out(page)

    page.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Suites")
    page.goto(f"{site}/account/")
    log_out(page)
    enter_password(page)
    expect(page.get_by_role("heading", level=1)).to_have_text("Second factor")
    page.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Suites")

    page.goto(f"{site}/account/tokens/")
    forget_confirmations()
    page.get_by_label("Name").fill("weekly report")
    page.get_by_role("button", name="Create token").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Confirm it is you")
    page.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_role("heading", name="Your new token")).to_be_visible()
    assert ApiToken.objects.get().name == "weekly report"

    page.goto(f"{site}/account/factors/")
    page.get_by_role("button", name="Remove Laptop <1>").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.get_by_text("The passkey is removed")).to_be_visible()
    assert not Passkey.objects.exists()


def test_a_password_confirms_by_keyboard_alone(
    page: Page, live_server: LiveServer, log_in: Callable[[str], User], console: Console
) -> None:
    log_in("viewer")
    console.allow(f"{REFUSED} 422")
    page.goto(f"{live_server.url}/account/tokens/")
    forget_confirmations()
    page.get_by_label("Name").fill("weekly report")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Password")).to_be_focused()
    page.keyboard.type("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("not the right password")
    expect(page.get_by_label("Password")).to_be_focused()
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Your new token")).to_be_visible()


def test_pages_of_second_factors_are_accessible(
    page: Page, live_server: LiveServer, log_in: Callable[[str], User]
) -> None:
    member = log_in("viewer")
    MemberFactors.objects.create(
        user=member, handle="00", encrypted_secret="x", app_added_at=timezone.now()
    )
    Passkey.objects.create(user=member, name="Laptop", credential_id="AA", credential=b"")
    found, checked = [], set[str]()
    for path in ("/account/factors/", "/account/factors/app/", "/account/confirm/"):
        page.goto(live_server.url + path)
        found += violations_in_every_look(page, checked)
    assert found == []


def test_long_texts_and_secrets_pass_the_question_unchanged(
    page: Page, live_server: LiveServer, log_in: Callable[[str], User]
) -> None:
    log_in("editor")
    make_model(slug="juno", name="Juno")
    prompt = "Be brief.\n\n  <b>&amp; “never” rude\n\ttwice"
    page.goto(f"{live_server.url}/targets/new/?kind=chat")
    forget_confirmations()
    page.get_by_label("Name", exact=True).fill("desk")
    page.get_by_label("Model", exact=True).select_option(label="Juno")
    page.get_by_label(re.compile("^System prompt")).fill(prompt)
    page.get_by_role("button", name="Add target").click()
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Confirm").click()
    expect(page.get_by_role("heading", name="desk")).to_be_visible()
    stored = Target.objects.get().config["system_prompt"]
    assert stored.replace("\r\n", "\n") == prompt


def test_sign_in_with_the_provider_confirm_there_and_log_out_of_both(
    page: Page, live_server: LiveServer, provider: IdentityProvider, console: Console
) -> None:
    provider.register(live_server.url)
    provider.know("mira", email="mira@harbour.example", email_verified=True)
    mira = make_member("viewer", "mira")
    User.objects.filter(pk=mira.pk).update(
        email="mira@harbour.example", password=make_password(None)
    )
    page.goto(f"{live_server.url}/account/tokens/")
    page.get_by_role("link", name="Sign in with Harbour ID").click()
    page.get_by_label("Name").fill("mira")
    page.get_by_role("button", name="Log in at the provider").click()
    expect(page).to_have_url(f"{live_server.url}/account/tokens/")

    forget_confirmations()
    console.allow(f"{REFUSED} 422")
    page.get_by_label("Name").fill("weekly report")
    page.get_by_role("button", name="Create token").click()
    with page.expect_popup() as opened:
        page.get_by_role("link", name="Confirm with Harbour ID").click()
    tab = opened.value
    tab.get_by_label("Name").fill("mira")
    tab.get_by_role("button", name="Log in at the provider").click()
    expect(tab.get_by_role("heading", level=1)).to_have_text("You are confirmed")
    tab.close()
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("row", name="weekly report")).to_be_visible()

    page.goto(f"{live_server.url}/account/")
    page.locator("main").get_by_role("button", name="Log out").click()
    page.get_by_role("link", name="Log out of Harbour ID too").click()
    expect(page).to_have_url(re.compile(rf"^{live_server.url}/login/"))
    page.get_by_role("link", name="Sign in with Harbour ID").click()
    expect(page.get_by_role("button", name="Log in at the provider")).to_be_visible()


def test_pages_of_a_site_with_a_provider_are_accessible(
    page: Page,
    live_server: LiveServer,
    log_in: Callable[[str], User],
    settings: Settings,
    console: Console,
) -> None:
    settings.OIDC_ISSUER, settings.OIDC_NAME = "https://login.harbour.example", "Harbour ID"
    console.allow(f"{REFUSED} 400")
    checked = set[str]()

    def look_at(path: str) -> list[tuple[str, str, str]]:
        page.goto(live_server.url + path)
        expect(page.locator("main")).to_contain_text("Harbour ID")
        return violations_in_every_look(page, checked)

    assert look_at("/login/") + look_at("/sign-in/return/") == []
    member = log_in("admin")
    MemberIdentity.objects.create(user=member, issuer=settings.OIDC_ISSUER, subject="admin")
    place = f"/members/{member.pk}/"
    paths = ("/account/", "/account/confirm/", place, f"{place}email/")
    assert [each for path in paths for each in look_at(path)] == []
