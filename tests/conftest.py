"""What all tests share: a fast private site, real servers on demand, and a client for each role."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import hypothesis
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from evalsite import OBJECTS_UNTIL_COLLECTION
from tests.services.forking import fork_sites
from tests.services.postgresql import postgresql_server
from tests.services.processes import end_what_was_started_when_told_to_end
from tests.services.redis import redis_server
from tests.support.flushing import flush_fast
from tests.support.members import make_client, make_member
from tests.support.white_space import collapse_pages_of_clients

pytest_plugins = [
    "tests.support.agent_server",
    "tests.support.case_states",
    "tests.support.clock",
    "tests.support.databases",
    "tests.support.groups",
    "tests.support.identity_provider",
    "tests.support.model_server",
    "tests.support.runs",
]

FOR_TESTS = {
    "PASSWORD_HASHERS": ["django.contrib.auth.hashers.MD5PasswordHasher"],
    "SECURE_SSL_REDIRECT": False,
    "SESSION_COOKIE_SECURE": False,
    "CSRF_COOKIE_SECURE": False,
    # How many requests come in a minute depends on the speed of the machine.
    "API_REQUESTS_PER_MINUTE": 0,
    "API_WRONG_TOKENS_PER_MINUTE": 0,
    "COOKIE_PREFIX": "",
    "SESSION_COOKIE_NAME": "evalsite_session",
    "CSRF_COOKIE_NAME": "evalsite_csrf",
    "SIGN_IN_COOKIE_NAME": "evalsite_sign_in",
    "STORAGES": {
        "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
        "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
    },
    "WHITENOISE_USE_FINDERS": True,
    # Look for a file when it is asked for: else every client made would read all of them first.
    "WHITENOISE_AUTOREFRESH": True,
}


def pytest_configure() -> None:
    """Serve plain http from source files and hash passwords fast; end all servers on SIGTERM."""
    gc.disable()
    end_what_was_started_when_told_to_end()
    flush_fast()
    fork_sites()
    collapse_pages_of_clients()
    # Each run draws other examples. `pytest --hypothesis-profile=thorough` draws many, say every night.
    hypothesis.settings.register_profile("tests", deadline=None, max_examples=30)
    hypothesis.settings.register_profile("thorough", deadline=None, max_examples=1000)
    hypothesis.settings.load_profile("tests")
    for name, value in FOR_TESTS.items():
        setattr(settings, name, value)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Keep loaded modules out of garbage collection.

    Walking them took a fifth of the time, and they live until the end anyway.
    """
    gc.freeze()
    gc.set_threshold(OBJECTS_UNTIL_COLLECTION)
    gc.enable()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Keep SQLite in a file of this session: threads can share it, other sessions cannot."""
    database = settings.DATABASES["default"]
    if database["ENGINE"].endswith("sqlite3"):
        path = tmp_path_factory.mktemp("database") / "test.sqlite3"
        database.setdefault("TEST", {})["NAME"] = str(path)


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    """Give the URL of an empty database on a real PostgreSQL server."""
    with postgresql_server() as url:
        yield url


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """Give the URL of a real Redis server."""
    with redis_server() as url:
        yield url


@pytest.fixture
def viewer(db: None) -> User:
    """Make a viewer."""
    return make_member("viewer")


@pytest.fixture
def reviewer(db: None) -> User:
    """Make a reviewer."""
    return make_member("reviewer")


@pytest.fixture
def editor(db: None) -> User:
    """Make an editor."""
    return make_member("editor")


@pytest.fixture
def admin(db: None) -> User:
    """Make an admin."""
    return make_member("admin")


@pytest.fixture
def viewer_client(viewer: User) -> Client:
    """Log a viewer in."""
    return make_client(viewer)


@pytest.fixture
def reviewer_client(reviewer: User) -> Client:
    """Log a reviewer in."""
    return make_client(reviewer)


@pytest.fixture
def editor_client(editor: User) -> Client:
    """Log an editor in."""
    return make_client(editor)


@pytest.fixture
def admin_client(admin: User) -> Client:
    """Log an admin in."""
    return make_client(admin)
