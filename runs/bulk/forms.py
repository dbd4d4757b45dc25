"""The forms that ask before something is done with many results or cases at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.db import IntegrityError
from django.http import QueryDict
from django.urls import reverse

from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import counted
from runs.cases.forms import SelectedCases
from runs.cases.services import tag_cases, untag_cases
from runs.files.importing import import_content
from runs.filters.selection import SelectionForm
from runs.models.reviews import ReviewItem
from runs.models.suites import Suite
from runs.reviews.page import people
from runs.reviews.services import ask_for_reviews, reviewable
from runs.specs.suites import MAX_CASE_TAG_LENGTH
from runs.suites.files import suite_with_cases
from runs.suites.forms import SuiteNameForm, TagsField
from runs.suites.services import SlugTakenError

ADD, REMOVE = "add", "remove"


@dataclass(frozen=True, slots=True)
class ChosenCases:
    """The chosen cases that are in their suite now; `gone` were deleted since the run they were chosen in.

    `source` is where they were chosen, `back` its address, and `carried` the fields that name them.
    """

    suite: Suite
    keys: Sequence[str]
    gone: int
    source: str
    back: str
    carried: Sequence[tuple[str, str]]


def chosen_in_run(selection: SelectionForm) -> ChosenCases:
    """Return the cases that a valid form names by the results of a run."""
    suite = selection.run.suite
    named = list(selection.cases().order_by("position").values_list("case__key", flat=True))
    current = set(suite.cases.filter(is_current=True).values_list("key", flat=True))
    keys = [key for key in named if key in current]
    return ChosenCases(
        suite,
        keys,
        len(named) - len(keys),
        f"run #{selection.run.number}",
        selection.back,
        selection.carried,
    )


def chosen_in_suite(ticked: SelectedCases) -> ChosenCases:
    """Return the cases that a form of the suite's list names."""
    carried = list(ticked.query.parameters().items())
    if ticked.everything:
        carried.append(("everything", "1"))
    else:
        carried += [("case", key) for key in ticked.keys]
    back = ticked.query.at(reverse("runs:suite-cases", args=[ticked.suite.slug]))
    return ChosenCases(ticked.suite, ticked.keys, 0, "its list", back, carried)


class ReviewsForm(forms.Form):
    """Add the chosen results of a run to the review queue, perhaps for one reviewer."""

    to = forms.TypedChoiceField(label="Reviewer", coerce=int, required=False, empty_value=None)

    def __init__(self, selection: SelectionForm, data: QueryDict | None) -> None:
        """Offer the members who may decide."""
        super().__init__(data)
        self.selection = selection
        self.fields["to"].choices = [("", "Everyone"), *people()]  # type: ignore[attr-defined]  # a ChoiceField

    @cached_property
    def chosen(self) -> int:
        """Return how many results were chosen."""
        return self.selection.results().count()

    @cached_property
    def count(self) -> int:
        """Return how many of them people can decide on."""
        return reviewable(self.selection.results()).count()

    @cached_property
    def there(self) -> int:
        """Return how many of these are in the queue, or were decided."""
        results = reviewable(self.selection.results()).order_by()
        return ReviewItem.objects.filter(result__in=results.values("pk")).count()

    @property
    def removed(self) -> int:
        """Return how many cannot be decided on: their output was removed, or they did not run."""
        return self.chosen - self.count

    def save(self, by: User) -> str:
        """Add the results and return a message; "" when the form is invalid."""
        if not self.is_valid():
            return ""
        chosen = self.cleaned_data["to"]
        to = User.objects.filter(pk=chosen).first() if chosen else None
        asked = ask_for_reviews(self.selection.run, self.selection.results(), by=by, assigned_to=to)
        message = f"{counted(asked.added, 'result')} added to the review queue"
        message += f", assigned to {to.get_username()}." if to else "."
        return (
            f"{message} {counted(asked.there, 'result')} already there." if asked.there else message
        )


class TagsForm(forms.Form):
    """Add tags to the chosen cases or remove them; `seen` is the stamp of the suite when it was shown."""

    tags = TagsField()
    change = forms.ChoiceField(
        label="What to do",
        choices=((ADD, "Add these tags"), (REMOVE, "Remove these tags")),
        initial=ADD,
        widget=forms.RadioSelect,
    )
    seen = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

    def __init__(self, chosen: ChosenCases, data: QueryDict | None) -> None:
        """Remember the version that is shown."""
        super().__init__(data, initial={"seen": chosen.suite.version_stamp})
        self.fields["tags"].required = True
        self.fields["tags"].error_messages["required"] = "Enter at least one tag."
        self.chosen = chosen

    @cached_property
    def present(self) -> Sequence[str]:
        """Return the tags that any of the cases has now."""
        cases = self.chosen.suite.cases.filter(is_current=True).order_by()
        keys = set(self.chosen.keys)
        rows = cases.exclude(tags=[]).values_list("key", "tags")
        return sorted({tag for key, tags in rows if key in keys for tag in tags})

    def clean_tags(self) -> list[str]:
        """Refuse a tag that is too long."""
        tags: list[str] = self.cleaned_data["tags"]
        if any(len(tag) > MAX_CASE_TAG_LENGTH for tag in tags):
            raise forms.ValidationError(f"A tag has at most {MAX_CASE_TAG_LENGTH} characters.")
        return tags

    def save(self, by: User) -> str:
        """Change the tags and return a message; "" when refused, with the reason in the errors."""
        if not self.is_valid():
            return ""
        values, chosen = self.cleaned_data, self.chosen
        change = tag_cases if values["change"] == ADD else untag_cases
        try:
            count = change(chosen.suite, chosen.keys, values["tags"], by=by, seen=values["seen"])
        except DomainError as refusal:
            self.add_error(None, str(refusal))
            # It is confirmed for the suite as the other member left it.
            renewed = QueryDict(mutable=True)
            renewed.update({**self.data, "seen": chosen.suite.version_stamp})
            self.data = renewed
            return ""
        if not count:
            return "No case changed. The tags were already like this."
        word = "tagged" if values["change"] == ADD else "no longer tagged"
        chosen.suite.refresh_from_db(fields=["version"])
        return (
            f"{counted(count, 'case')} {word} {', '.join(values['tags'])}: "
            f"{chosen.suite.title} is at version {chosen.suite.version}."
        )


class CopyForm(SuiteNameForm):
    """A new suite of the chosen cases, with the evaluators, thresholds and judge of theirs."""

    def __init__(self, chosen: ChosenCases, data: QueryDict | None) -> None:
        """Suggest a title."""
        count = counted(len(chosen.keys), "case")
        super().__init__(data, initial={"title": f"{chosen.suite.title}, {count}"})
        self.chosen = chosen

    def save(self, by: User) -> Suite | None:
        """Create the suite; None when refused, with the reason in the errors."""
        if not self.is_valid():
            return None
        values, chosen = self.cleaned_data, self.chosen
        if not chosen.keys:
            self.add_error(None, "None of the chosen cases is in the suite now. Choose again.")
            return None
        content = suite_with_cases(chosen.suite, only=frozenset(chosen.keys))
        note = (
            f"{counted(len(content.cases), 'case')} of {chosen.suite.slug} v{chosen.suite.version}"
        )
        try:
            return import_content(
                content.replace(title=values["title"], slug=values["slug"]),
                imported_by=by,
                note=note,
                is_new=True,
            ).suite
        except (SlugTakenError, IntegrityError):
            self.add_error("slug", f"There is already a suite “{values['slug']}”.")
        except DomainError as refusal:
            self.add_error(None, str(refusal))
        return None


class FileForm(forms.Form):
    """The format of a file of the chosen results."""

    format = forms.ChoiceField(choices=[(name, name) for name in ("csv", "texts", "jsonl")])

    def params(self, selection: SelectionForm) -> dict[str, Any]:
        """Return which results the file has, for its kind."""
        run = selection.run
        named: dict[str, Any] = {"slug": run.suite.slug, "number": run.number}
        if not selection.cleaned_data["everything"]:
            return named | {"cases": selection.cleaned_data["case"]}
        filters = selection.query.parameters()
        return named | ({"query": filters} if filters else {})
