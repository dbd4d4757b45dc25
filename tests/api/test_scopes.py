"""Every call that changes something, for every role and every scope of a token."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group
from django.test import Client

from evalsite.access.roles import Role, Scope
from runs.models.suites import Suite
from tests.api.site import make_site, schema, token_of
from tests.reviews.aligning import make_alignment
from tests.support.factories import make_model, make_target
from tests.support.members import make_member

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]
# The lowest role, and the scope, that each call needs; the rest needs no more than to read.
EDITORS, REVIEWERS, ADMINS = Role.EDITOR, Role.REVIEWER, Role.ADMIN
NEEDS: Mapping[tuple[str, str], tuple[Role, Scope]] = {
    ("delete", "/api/exports/{export}"): (Role.VIEWER, Scope.READ),
    ("post", "/api/suite-check"): (Role.VIEWER, Scope.READ),
    ("post", "/v1/traces"): (EDITORS, Scope.RUN),
    **{
        ("post", f"/api/runs{call}"): (EDITORS, Scope.RUN)
        for call in (
            *("", "/estimate", "/judge-again", "/judge-again/estimate"),
            *("/{run}/close", "/{run}/outputs", "/{run}/resume", "/{run}/retry"),
            *("/{run}/scores", "/{run}/stop"),
            *("/{run}/measure-judge", "/{run}/measure-judge/estimate"),
        )
    },
    **{
        ("post", f"/api/suites/{{slug}}/alignments{call}"): (EDITORS, Scope.RUN)
        for call in ("", "/estimate", "/{alignment}/stop", "/{alignment}/resume")
    },
    **dict.fromkeys(
        (
            ("post", "/api/suites"),
            ("put", "/api/suites/{slug}"),
            ("put", "/api/suites/{slug}/baseline"),
            ("post", "/api/suites/{slug}/cases"),
            ("put", "/api/suites/{slug}/cases/{key}"),
            ("delete", "/api/suites/{slug}/cases/{key}"),
            ("post", "/api/suites/{slug}/alignments/{alignment}/take"),
            ("post", "/api/suites/{slug}/draft-cases"),
            ("post", "/api/suites/{slug}/draft-cases/estimate"),
            ("post", "/api/case-proposals/{proposal}/store"),
            ("post", "/api/case-proposals/{proposal}/stop"),
            ("delete", "/api/case-proposals/{proposal}"),
            ("post", "/api/targets"),
            ("put", "/api/targets/{target}"),
            ("post", "/api/shares"),
            ("delete", "/api/shares/{share}"),
        ),
        (EDITORS, Scope.EDIT),
    ),
    ("post", "/api/models"): (ADMINS, Scope.EDIT),
    ("put", "/api/models/{slug}"): (ADMINS, Scope.EDIT),
    ("delete", "/api/models/{slug}"): (ADMINS, Scope.EDIT),
    ("post", "/api/results/{result}/attempt"): (EDITORS, Scope.RUN),
    ("post", "/api/results/{result}/review"): (REVIEWERS, Scope.REVIEW),
    ("post", "/api/results/{result}/review/ask"): (REVIEWERS, Scope.REVIEW),
}


def test_every_call_is_listed() -> None:
    changing = {
        (method, path)
        for path, calls in schema()["paths"].items()
        for method in calls
        if method != "get"
    }
    assert changing == NEEDS.keys()


@pytest.mark.parametrize("role", Role)
def test_a_call_needs_its_role_and_its_scope(role: Role) -> None:
    before, _, result = make_site()
    place = {
        "run": f"support:{before.number}",
        "slug": "support",
        "key": "C-2",
        "share": 77,
        "proposal": 77,
    }
    place |= {"target": make_target(name="t").pk, "result": result.pk, "export": uuid4()}
    place["proposal"] = 77
    place["alignment"] = make_alignment(Suite.objects.get(slug="support")).pk
    make_model(slug="support")
    roles = list(Role)
    for scope in Scope:
        # Made while its owner may do everything: a token does what its owner may now.
        member = make_member("admin", f"m-{scope}")
        secret = token_of(member, scopes=[scope])
        member.groups.set([Group.objects.get(name=role)])
        program = Client(headers={"authorization": f"Bearer {secret}"})
        for (method, path), (lowest, needed) in NEEDS.items():
            answer = getattr(program, method)(path.format(**place), {}, "application/json")
            is_allowed = roles.index(role) >= roles.index(lowest) and needed in (scope, Scope.READ)
            assert (answer.status_code != 403) == is_allowed, (role, scope, method, path)
            assert answer.status_code < 500
