"""Which cases of the table are ticked, and what is to be done with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.http import QueryDict

from evaluators.templatetags import figures
from runs.models import Suite
from runs.reports.cases import CaseFilter, matching_keys
from runs.services import remove_cases, tag_cases, untag_cases
from runs.services.case_checks import LONGEST_TAG, UNSTORABLE


@dataclass(frozen=True, slots=True)
class TickedCases:
    """The keys of the cases that are meant, in the suite's order; `everything` that match a filter, or rows."""

    suite: Suite
    keys: Sequence[str]
    asked: CaseFilter
    everything: bool

    @property
    def words(self) -> str:
        """Say how many they are."""
        return str(figures.counted(len(self.keys), "case"))


def ticked_cases(suite: Suite, data: QueryDict) -> TickedCases:
    """Return the cases a form names; those that are gone meanwhile are left out."""
    asked, everything = (
        CaseFilter.read({name: data.get(name, "") for name in ("q", "tag")}),
        "everything" in data,
    )
    if everything:
        return TickedCases(suite, matching_keys(suite, asked), asked, everything=True)
    named = set(data.getlist("case"))
    found = matching_keys(suite, CaseFilter()) if named else ()
    return TickedCases(suite, [key for key in found if key in named], asked, everything=False)


def retag(ticked: TickedCases, written: str, *, is_added: bool, by: User) -> str:
    """Add the tags to the cases, or take them away, and say what came of it; "" when no tag was written.

    Raises SuiteArchivedError.
    """
    tags = list(dict.fromkeys(tag for part in written.split(",") if (tag := part.strip())))
    if not tags or any(len(tag) > LONGEST_TAG or UNSTORABLE.search(tag) for tag in tags):
        return ""
    change = tag_cases if is_added else untag_cases
    count = change(ticked.suite, ticked.keys, tags, by=by)
    named = ", ".join(tags)
    if is_added:
        return f"{figures.counted(count, 'case')} of {len(ticked.keys)} tagged {named}."
    return f"{named} taken from {figures.counted(count, 'case')} of {len(ticked.keys)}."


def is_sure(ticked: TickedCases, data: QueryDict) -> bool:
    """Tell whether deleting was confirmed for just as many cases as there are now."""
    return data.get("sure") == str(len(ticked.keys))


def delete(ticked: TickedCases, by: User) -> str:
    """Take the cases out of the suite and say how many; raises SuiteArchivedError."""
    count = remove_cases(ticked.suite, ticked.keys, by=by)
    return f"{figures.counted(count, 'case')} deleted. Results and earlier versions keep theirs."
