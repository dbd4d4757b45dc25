"""Put bands that agree better with people into somebody's draft of the suite."""

from __future__ import annotations

from collections.abc import Mapping

from django.contrib.auth.models import User

from evaluators.scoring.types import ScoreOutOfRangeError
from runs.drafting import SetPolicy
from runs.models import Suite, SuiteDraft
from runs.services.drafts import change_draft, draft_of
from runs.versions import SuiteArchivedError

BANDS = ("pass_threshold", "borderline_threshold")


def take_bands(suite: Suite, sent: Mapping[str, str], *, by: User) -> SuiteDraft:
    """Set the two thresholds, 0 to 1, in the person's draft; everything else of it stays.

    `stamp` is that of the draft which the page showed. Raises DraftChangedError when it is another by now,
    ScoreOutOfRangeError for what are no bands, and SuiteArchivedError.
    """
    if suite.archived_at:
        raise SuiteArchivedError(
            f"{suite.title} is archived, and stays as it is. Take it out of the archive first."
        )
    bands = {name: _share(name, sent.get(name, "")) for name in BANDS}
    return change_draft(draft_of(suite, by), sent.get("stamp", ""), SetPolicy(bands))


def _share(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ScoreOutOfRangeError(f"{name} {text[:20]!r} is not a number") from error
