"""What a person decides on an output under review, whom items are for, and files of decisions."""

from __future__ import annotations

from itertools import count
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.core.files.uploadedfile import UploadedFile
from django.db.models import BigIntegerField
from django.utils import timezone

from evaluators.scoring.types import DomainError, Verdict
from runs.engine.review_rules import Consensus
from runs.lists import read_integer
from runs.models.results import VerdictChoice
from runs.models.reviews import MAX_MARKS, ReviewItem
from runs.models.temporary import ReviewUpload
from runs.reviews import services
from runs.reviews.importing import keep_reviews, store_reviews
from runs.reviews.item_page import NO_MARK, Typed, metric_keys
from runs.reviews.queue_page import people
from runs.reviews.services import ReviewDecision, ReviewRefusedError
from runs.specs.problems import UnreadableFileError

LABEL = "label-"


class DecisionForm(forms.Form):
    """One decision: verdict, note, causes of failure, marks of outcomes and labels of metrics.

    `shown` is when the item was shown, in seconds since 1970, so that it is known how long a decision took;
    `generation` is that of the output that was shown.
    """

    verdict = forms.ChoiceField(
        choices=VerdictChoice.choices,
        error_messages={
            "required": "Choose pass, borderline or fail.",
            "invalid_choice": "Choose pass, borderline or fail.",
        },
    )
    note = forms.CharField(
        required=False,
        max_length=services.MAX_NOTE_LENGTH,
        error_messages={"max_length": "The note is longer than 10 000 characters."},
    )
    tags = forms.CharField(required=False)
    shown = forms.IntegerField(required=False)
    generation = forms.IntegerField(required=False)
    second = forms.BooleanField(required=False)

    @property
    def typed(self) -> Typed:
        """Return what was typed, so that nothing of it is lost when it is refused."""
        values = {name: str(self.data.get(name, "")) for name in ("verdict", "note", "tags")}
        return Typed(**values, outcome_marks=self._marks(), labels=self._labels())

    @property
    def problem(self) -> str:
        """Return what is wrong with it, "" for nothing."""
        return " ".join(str(error) for errors in self.errors.values() for error in errors)

    def decide(self, item: ReviewItem, *, by: User) -> Consensus:
        """Keep the decision; raises what `runs.reviews.services.decide` raises. Call it on a valid form."""
        values = self.cleaned_data
        is_shown = values["generation"] in (None, item.result.generation)
        if is_shown and set(self._labels()) - metric_keys(item.result):
            raise ReviewRefusedError("A label is given for a metric that this execution has not.")
        decided = ReviewDecision(
            Verdict(values["verdict"]),
            note=values["note"],
            tags=values["tags"].split(","),
            outcome_marks=marks if (marks := self._marks()).strip(NO_MARK) else "",
            metric_labels={
                key: -1 if (number := read_integer(label)) is None else number
                for key, label in self._labels().items()
            },
            seconds=self._seconds(values["shown"]),
            generation=values["generation"] or 0,
        )
        return services.decide(item, decided, by=by, is_second_opinion=values["second"])

    def _marks(self) -> str:
        found: list[str] = []
        for place in count():
            mark = self.data.get(f"outcome-{place}")
            if mark is None or place >= MAX_MARKS:
                return "".join(found)
            found.append(mark[:1] or NO_MARK)
        return ""

    def _labels(self) -> dict[str, str]:
        named = {name: self.data[name] for name in self.data if name.startswith(LABEL)}
        return {name.removeprefix(LABEL): label for name, label in named.items() if label}

    @staticmethod
    def _seconds(shown: int | None) -> int | None:
        took = int(timezone.now().timestamp()) - shown if shown else -1
        return took if took >= 0 else None


class AssignForm(forms.Form):
    """Whom one item is for, or all that wait in a part of the queue; nobody named frees them for everybody."""

    to = forms.TypedChoiceField(coerce=int, required=False, empty_value=None)
    item = forms.IntegerField(required=False, min_value=1, max_value=BigIntegerField.MAX_BIGINT)

    def __init__(self, data: Any) -> None:
        """Offer whoever may decide."""
        super().__init__(data)
        self.names = dict(people())
        everybody = ("", "Everybody")
        self.fields["to"].choices = [everybody, *self.names.items()]  # type: ignore[attr-defined]  # it is a ChoiceField

    def assign(self, items: list[int]) -> str:
        """Assign the named item, or all of them, and say what was done; "" when the form is refused."""
        if not self.is_valid():
            return ""
        values = self.cleaned_data
        chosen = [values["item"]] if values["item"] else items
        to = User.objects.filter(pk=values["to"]).first() if values["to"] else None
        done = services.assign(chosen, to)
        noun = "item" if done == 1 else "items"
        whom = f"for {to.get_username()} alone" if to else "for everybody"
        return f"{done} {noun} that wait{'s' if done == 1 else ''}: {whom}."


MAX_BYTES = 20 * 1024 * 1024
ACCEPTED = ".jsonl,.ndjson,.json,.csv,.tsv,text/csv,application/jsonl"


class ReviewFileForm(forms.Form):
    """A file of reviews."""

    file = forms.FileField(
        label="Reviews",
        allow_empty_file=True,
        help_text="JSON Lines or CSV as the export writes them; up to 20 MB",
        widget=forms.FileInput(attrs={"accept": ACCEPTED}),
    )

    def clean_file(self) -> UploadedFile[Any]:
        """Refuse a file that is too large to be read at once."""
        upload: UploadedFile[Any] = self.cleaned_data["file"]
        if (upload.size or 0) > MAX_BYTES:
            raise forms.ValidationError("The file is larger than 20 MB. Split it in several.")
        return upload

    def keep(self, by: User) -> ReviewUpload | None:
        """Keep the file for its preview; None, with the reason among the errors, when it holds no reviews."""
        upload = self.cleaned_data["file"]
        try:
            return keep_reviews(bytes(upload.read()), name=str(upload.name), owner=by)
        except UnreadableFileError as refusal:
            for problem in refusal.problems:
                line = f"line {problem.line}: " if problem.line else ""
                values = f"{line}{problem.message}."
                self.add_error("file", values[:1].upper() + values[1:])
        return None


class StoreReviewsForm(forms.Form):
    """Whether rejected rows are left out when the others are stored."""

    leave_out = forms.BooleanField(
        label="Leave the rejected rows out", required=False, help_text="The others are stored"
    )

    def store(self, upload: ReviewUpload, by: User) -> bool:
        """Store what the upload holds; False, with the reason among the errors, when nothing was."""
        try:
            store_reviews(upload, leaves_out=bool(self.cleaned_data["leave_out"]), by=by)
        except DomainError as refusal:
            self.add_error("leave_out", str(refusal))
            return False
        return True
