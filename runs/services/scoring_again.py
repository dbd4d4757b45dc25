"""Make a new run of a finished one's scores by the rules that its suite's draft has, or the suite itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User

from runs.models import Run
from runs.reports.what_if_page import changes_rules, rules_for
from runs.services.rescoring import CannotRescoreError, rescore_run


def score_again(
    run: Run,
    base: Mapping[str, Any],
    content: Mapping[str, Any],
    *,
    version: int,
    by: User,
    form_key: str = "",
) -> Run:
    """Return a run of the stored scores under content that was edited from a version, `base`.

    It is shown as scored again from its source, and its note names the rules: the draft of that
    version, or the version where nothing of them is changed. The same `form_key` makes one run, however often it is sent.

    Raises CannotRescoreError for an archived suite, and what `rescore_run` refuses with.
    """
    if run.suite.archived_at is not None:
        raise CannotRescoreError(
            f"{run.suite.title} is archived. Take it out of the archive first."
        )
    rules, origins = rules_for(run, base, content)
    name = f"draft of v{version}" if changes_rules(base, content) else f"v{version}"
    return rescore_run(
        run,
        rules,
        by=by,
        origins=origins,
        text=f"under {name}",
        form_key=form_key,
    )
