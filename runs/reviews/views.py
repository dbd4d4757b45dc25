"""The pages and forms of reviews: the queue, decisions, files, and the agreement of judges with reviewers."""

from __future__ import annotations

from itertools import count
from typing import Any
from uuid import UUID

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.contrib.auth.models import User
from django.core.files.uploadedfile import UploadedFile
from django.db.models import BigIntegerField
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe
from django.views.decorators.vary import vary_on_headers

from evaluators.scoring.types import DomainError, Verdict
from evaluators.templatetags.figures import counted
from runs.exports.views import answer_file
from runs.lists import read_integer
from runs.models.results import Result, VerdictChoice
from runs.models.reviews import MAX_MARKS, QueueQuery, Review, ReviewItem
from runs.models.temporary import ReviewUpload
from runs.requests import (
    MAY_REVIEW,
    REFUSED,
    STOP_POLLING,
    MemberRequest,
    csv_answer,
    form_data,
    form_files,
    get_run_or_404,
    get_suite_or_404,
    may_change_suites,
    may_start,
    may_view,
)
from runs.reviews import page as review_pages
from runs.reviews import services
from runs.reviews.agreement_page import agreement_csv, agreement_page
from runs.reviews.files import import_page, keep_reviews, reviews_file, store_reviews
from runs.reviews.judge_agreement import AgreementQuery
from runs.reviews.judges import JudgesQuery
from runs.reviews.judges_page import judges_csv, judges_page
from runs.reviews.page import (
    NO_MARK,
    DecisionMessage,
    EnteredReview,
    decision_message,
    metric_keys,
    people,
    review_page,
)
from runs.reviews.people import PeopleQuery
from runs.reviews.people_page import people_csv, people_page
from runs.reviews.services import (
    AlreadyDecidedError,
    ItemTakenError,
    ReviewDecision,
    ReviewRefusedError,
    apply_bands,
)
from runs.specs.problems import UnreadableFileError

may_review = permission_required("runs.review_result", raise_exception=True)
CONFLICT = 409
JUDGE_COOKIE, A_YEAR_S = f"{settings.COOKIE_PREFIX}evalsite_hide_judge", 31_536_000
DECIDED = "review_decided"
GONE = "This result was rerun and its output replaced, so your decision was not stored."


@require_safe
@never_cache
@vary_on_headers("HX-Request")
@may_view
def review(request: MemberRequest) -> HttpResponse:
    """Show the next item of the queue, reserved for the reader, or why there is none."""
    query = QueueQuery.read(request.GET)
    item = services.next_item(request.user, query) if _decides(request) else None
    message = _decision_message(request, request.session.pop(DECIDED, None))
    return _show(request, query, item, decision_message=message)


@require_safe
@never_cache
@vary_on_headers("HX-Request")
@may_view
def review_item(request: MemberRequest, pk: int) -> HttpResponse:
    """Show one item, reserved for the reader unless another reviewer has it."""
    item, refusal = get_object_or_404(ReviewItem, pk=pk), None
    try:
        if _decides(request) and item.closed_at is None:
            item = services.reserve(item, request.user)
    except ItemTakenError as error:
        refusal = error
    return _show(request, QueueQuery.read(request.GET), item, refusal=refusal)


@require_POST
@may_review
def review_decide(request: MemberRequest, pk: int) -> HttpResponse:
    """Store a decision and show the next item; a refused form keeps its fields."""
    query, form = QueueQuery.read(request.GET), DecisionForm(request.POST)
    item = ReviewItem.objects.filter(pk=pk).first()
    is_valid, refusal = form.is_valid(), None
    try:
        if item is None:
            raise services.ReviewChangedError(GONE)
        if is_valid:
            form.decide(item, query, by=request.user)
            return _show_next(request, query, decided=pk)
    except DomainError as error:
        refusal = error
    if item is None:
        item, kept = services.next_item(request.user, query), form.typed.note
        return _show(request, query, item, refusal=refusal, kept=kept, status=CONFLICT)
    refused: dict[str, Any] = {"refusal": refusal, "typed": form.typed, "problem": form.problem}
    return _show(request, query, item, **refused, status=CONFLICT if refusal else REFUSED)


@require_POST
@may_review
def review_skip(request: MemberRequest, pk: int) -> HttpResponse:
    """Leave an item for later and show the next one."""
    if item := ReviewItem.objects.filter(pk=pk).first():
        services.skip(item, request.user)
    return _show_next(request, QueueQuery.read(request.GET))


@require_POST
@may_review
def review_release(request: MemberRequest, pk: int) -> HttpResponse:
    """Release an item, so that others can take it, and leave the queue."""
    if item := ReviewItem.objects.filter(pk=pk).first():
        services.release(item, request.user)
    messages.info(request, "Released. Others can review it now.")
    return redirect("home")


@require_POST
@never_cache
@may_review
def review_hold(request: MemberRequest, pk: int) -> HttpResponse:
    """Extend the reservation of the item on an open page, and say until when."""
    item, refusal = ReviewItem.objects.filter(pk=pk).first(), None
    try:
        item = services.reserve(item, request.user) if item else None
    except ItemTakenError as error:
        refusal = error
    is_over = item is None or item.closed_at is not None or refusal is not None
    context = {"item": item, "refusal": refusal, "is_over": is_over}
    status = STOP_POLLING if is_over else 200
    return render(request, "reviews/_hold.html", context, status=status)


@require_POST
@may_review
def review_undo(request: MemberRequest) -> HttpResponse:
    """Undo the last decision and show its item with the form as it was."""
    query, last = QueueQuery.read(request.GET), services.last_decided_items(request.user)
    if not last:
        messages.info(request, "You have no review to undo.")
        return _show_next(request, query)
    for item in last:
        services.undo(item, by=request.user)
    first = last[0]
    first.refresh_from_db()
    if request.htmx:
        return _show(request, query, first, undone=len(last))
    undone, are = ("Review", "The result is") if len(last) == 1 else ("Reviews", "The results are")
    messages.info(request, f"{undone} undone. {are} back in the queue.")
    return redirect(query.at(reverse("runs:review-item", args=[first.pk])))


@require_POST
@may_review
def review_assign(request: MemberRequest) -> HttpResponse:
    """Assign one item, or all waiting ones in a part of the queue, to one person or to everybody."""
    query = QueueQuery.read(request.GET)
    waiting = query.items().waiting().values_list("pk", flat=True)
    if message := AssignForm(request.POST).assign(list(waiting), by=request.user):
        messages.success(request, message)
    else:
        messages.error(request, "Choose a reviewer, editor or admin.")
    return redirect(query.at(reverse("runs:review")))


@require_POST
@may_review
def review_judge(request: MemberRequest) -> HttpResponse:
    """Hide the judge until a decision, or show it, in this browser; the form keeps its fields."""
    query, hides = QueueQuery.read(request.GET), request.POST.get("blind") == "on"
    item = ReviewItem.objects.filter(pk=read_integer(request.POST.get("item", "")) or 0).first()
    request.COOKIES[JUDGE_COOKIE] = "on" if hides else "off"
    if request.htmx:
        response = _show(request, query, item, typed=DecisionForm(request.POST).typed)
    else:
        response = redirect(query.at(reverse("runs:review")))
    response.set_cookie(
        JUDGE_COOKIE,
        "on" if hides else "off",
        max_age=A_YEAR_S,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )
    return response


@require_POST
@may_review
def result_review(
    request: MemberRequest, slug: str, number: int, key: str, repetition: int
) -> HttpResponse:
    """Add a result to the queue by hand, and store the decision of its page where it has one."""
    results = Result.objects.filter(
        run=get_run_or_404(slug, number), case__key=key, repetition=repetition
    )
    result = results.first()
    if result is None:
        raise Http404(f"Run #{number} has no repetition {repetition} of {key}.")
    form = DecisionForm(request.POST) if "verdict" in request.POST else None
    try:
        if form is not None and not form.is_valid():
            raise ReviewRefusedError(form.problem)
        item = services.ask_for_review(result, by=request.user)
        if form is not None:
            form.decide(item, QueueQuery(), by=request.user)
    except DomainError as refusal:
        messages.error(request, str(refusal))
    else:
        messages.success(request, "Review saved." if form else "Added to the review queue.")
    back = redirect("runs:result", slug, number, key, repetition)
    if request.GET:
        back["Location"] += f"?{request.GET.urlencode()}"
    return back


def _show_next(
    request: MemberRequest, query: QueueQuery, *, decided: int | None = None
) -> HttpResponse:
    """Show the next item, with a message on the decision before it."""
    if request.htmx:
        message = _decision_message(request, decided)
        return _show(
            request, query, services.next_item(request.user, query), decision_message=message
        )
    request.session[DECIDED] = decided
    return redirect(query.at(reverse("runs:review")))


def _show(
    request: MemberRequest,
    query: QueueQuery,
    item: ReviewItem | None,
    *,
    typed: EnteredReview | None = None,
    status: int = 200,
    **more: Any,
) -> HttpResponse:
    """Show the queue with an item; for htmx only the parts that changed."""
    may_decide, hides = _decides(request), request.COOKIES.get(JUDGE_COOKIE) == "on"
    page = item and review_page(
        item, request.user, may_decide=may_decide, hides_judge=hides, typed=typed, query=query
    )
    is_hidden = page.is_hidden if page else hides and may_decide
    report = review_pages.review_queue(
        request.user, query, item, may_decide=may_decide, is_hidden=is_hidden
    )
    # Where the suite hides the judge, the reason would reveal its verdict.
    hides_reason = bool(page and page.is_demanded)
    controls = review_pages.queue_controls(query, report.people, hides_reason=hides_reason)
    context = {
        "page": page,
        "queue": report,
        "controls": controls,
        "hidden": query.hidden(*(control.name for control in controls)),
        "hides": hides,
        "may_decide": may_decide,
        "is_taken": isinstance(more.get("refusal"), ItemTakenError),
        "is_late": isinstance(more.get("refusal"), AlreadyDecidedError),
        "shown": int(timezone.now().timestamp()),
        "run": page.run if page else None,
        **more,
    }
    if request.htmx:
        context["review_waiting"] = QueueQuery().items().waiting().count()
    template = "reviews/_swap.html" if request.htmx else "reviews/review.html"
    response = render(request, template, context, status=status)
    if request.htmx:
        # Filters are steps in the history of the browser, decisions are not.
        header = "HX-Push-Url" if request.method == "GET" else "HX-Replace-Url"
        response[header] = query.at(reverse("runs:review"))
    return response


def _decision_message(request: MemberRequest, decided: int | None) -> DecisionMessage | None:
    """Return the message on the decision just made on an item."""
    if decided is None:
        return None
    own = Review.objects.standing().filter(reviewer=request.user)
    of_item = own.filter(result__review_item=decided).select_related("result__case", "result__run")
    return decision_message(of_item.first())


def _decides(request: HttpRequest) -> bool:
    user: Any = request.user
    return bool(user.has_perm(MAY_REVIEW))


@require_safe
@may_view
def review_export(request: HttpRequest) -> HttpResponseBase:
    """Return every decision of a part of the queue as JSON Lines."""
    query = QueueQuery.read(request.GET).parameters()
    return answer_file(request, reviews_file(query=query, form="jsonl"))


@require_safe
@may_view
def review_export_table(request: HttpRequest) -> HttpResponseBase:
    """Return every decision of a part of the queue as CSV."""
    query = QueueQuery.read(request.GET).parameters()
    return answer_file(request, reviews_file(query=query, form="csv"))


@may_start
@may_change_suites
def review_import(request: MemberRequest) -> HttpResponse:
    """Choose a file of reviews."""
    form = ReviewFileForm(form_data(request), form_files(request))
    if form.is_valid() and (upload := form.keep(request.user)):
        return redirect("runs:review-upload", upload.pk)
    status = REFUSED if form.is_bound else 200
    return render(request, "reviews/import.html", {"form": form}, status=status)


@may_start
@may_change_suites
def review_upload(request: MemberRequest, pk: UUID) -> HttpResponse:
    """Show what a file would add, store it, and show the result."""
    upload = get_object_or_404(ReviewUpload, pk=pk, owner=request.user)
    if upload.stored_at is not None:
        return render(request, "reviews/imported.html", {"upload": upload})
    form = StoreReviewsForm(form_data(request))
    if form.is_valid() and form.store(upload, request.user):
        return redirect("runs:review-upload", pk)
    context = {"upload": upload, "form": form, "page": import_page(upload)}
    status = REFUSED if form.is_bound else 200
    return render(request, "reviews/import_preview.html", context, status=status)


@require_safe
@may_view
def suite_agreement(request: MemberRequest, slug: str) -> HttpResponse:
    """Show how far each judge of a suite agrees with reviewers; for htmx only matrix and cases of one."""
    suite = get_suite_or_404(slug=slug)
    query = AgreementQuery.read(request.GET)
    context = {"suite": suite, "page": agreement_page(suite, query, request.user)}
    if request.htmx:
        return render(request, "reviews/_agreement_judge.html", context)
    return render(request, "reviews/agreement.html", context)


@require_safe
@may_view
def agreement_file(request: MemberRequest, slug: str) -> HttpResponse:
    """Return how far each judge of a suite agrees with reviewers as a CSV file."""
    suite = get_suite_or_404(slug=slug)
    page = agreement_page(suite, AgreementQuery.read(request.GET), request.user)
    return csv_answer(agreement_csv(page.judges), f"{slug}-agreement.csv")


@require_safe
@may_view
def people_agreement(request: MemberRequest, slug: str) -> HttpResponse:
    """Show how far people agree with each other about the results of a suite."""
    suite = get_suite_or_404(slug=slug)
    page = people_page(suite, PeopleQuery.read(request.GET))
    context = {"suite": suite, "page": page}
    return render(request, "reviews/people.html", context)


@require_safe
@may_view
def people_file(request: MemberRequest, slug: str) -> HttpResponse:
    """Return how far people agree with each other as a CSV file."""
    suite = get_suite_or_404(slug=slug)
    text = people_csv(suite, PeopleQuery.read(request.GET))
    return csv_answer(text, f"{slug}-agreement-people.csv")


@require_safe
@may_view
def judges(request: MemberRequest, slug: str) -> HttpResponse:
    """Show several judges of the same outputs, and which one to use."""
    suite = get_suite_or_404(slug=slug)
    page = judges_page(suite, JudgesQuery.read(request.GET))
    context = {"suite": suite, "page": page}
    return render(request, "reviews/judges.html", context)


@require_safe
@may_view
def judges_file(request: MemberRequest, slug: str) -> HttpResponse:
    """Return the figures of several judges of the same outputs as a CSV file."""
    suite = get_suite_or_404(slug=slug)
    text = judges_csv(suite, JudgesQuery.read(request.GET))
    return csv_answer(text, f"{slug}-judges.csv")


@require_POST
@may_change_suites
def agreement_bands(request: MemberRequest, slug: str) -> HttpResponse:
    """Put suggested bands into the reader's draft and open the what-if for them."""
    suite = get_suite_or_404(slug=slug)
    run = read_integer(request.POST.get("run", ""))
    try:
        apply_bands(suite, request.POST, by=request.user)
    except DomainError as refusal:
        messages.error(request, str(refusal))
        return redirect("runs:suite-agreement", slug)
    messages.success(request, "The thresholds are in your draft. The panel shows what they change.")
    address = reverse("runs:suite-evaluators", args=[slug])
    return redirect(f"{address}?run={run}" if run else address)


LABEL = "label-"


class DecisionForm(forms.Form):
    """A decision: verdict, note, causes of failure, marks of outcomes and labels of metrics.

    `shown` is when the item was shown, in seconds since 1970, to measure how long the decision took;
    `generation` is that of the output that was shown. `together` are the ids of the items with identical outputs that
    get the same decision.
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
        error_messages={"max_length": "The note is longer than 10,000 characters."},
    )
    tags = forms.CharField(required=False)
    shown = forms.IntegerField(required=False)
    generation = forms.IntegerField(required=False)
    second = forms.BooleanField(required=False)
    together = forms.CharField(required=False)

    @property
    def typed(self) -> EnteredReview:
        """Return the fields as they were typed, to show a refused form again."""
        values = {name: str(self.data.get(name, "")) for name in ("verdict", "note", "tags")}
        return EnteredReview(**values, outcome_marks=self._marks(), labels=self._labels())

    @property
    def problem(self) -> str:
        """Return the errors of the form as a text."""
        return " ".join(str(error) for errors in self.errors.values() for error in errors)

    def decide(self, item: ReviewItem, query: QueueQuery, *, by: User) -> None:
        """Store the decision of a valid form; raises what `runs.reviews.services.decide` raises."""
        values = self.cleaned_data
        is_shown = values["generation"] in (None, item.result.generation)
        if is_shown and set(self._labels()) - metric_keys(item.result):
            raise ReviewRefusedError("A label names a metric that this result does not have.")
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
        if ids := values["together"].split(",") if values["together"] else []:
            # Only those that the form offered, and of them those that still wait with this output.
            identical = services.identical_items(item, by, query)
            others = [other for other in identical if str(other.pk) in ids]
            services.decide_together(item, others, decided, by=by)
        else:
            services.decide(item, decided, by=by, is_second_opinion=values["second"])

    def _marks(self) -> str:
        marks: list[str] = []
        for place in count():
            mark = self.data.get(f"outcome-{place}")
            if mark is None or place >= MAX_MARKS:
                return "".join(marks)
            marks.append(mark[:1] or NO_MARK)
        return ""

    def _labels(self) -> dict[str, str]:
        named = {name: self.data[name] for name in self.data if name.startswith(LABEL)}
        return {name.removeprefix(LABEL): label for name, label in named.items() if label}

    @staticmethod
    def _seconds(shown: int | None) -> int | None:
        took = int(timezone.now().timestamp()) - shown if shown else -1
        return took if took >= 0 else None


class AssignForm(forms.Form):
    """The person to assign an item, or all waiting ones, to; nobody named assigns them to everybody."""

    to = forms.TypedChoiceField(coerce=int, required=False, empty_value=None)
    item = forms.IntegerField(required=False, min_value=1, max_value=BigIntegerField.MAX_BIGINT)

    def __init__(self, data: Any) -> None:
        """Offer the members who may decide."""
        super().__init__(data)
        self.names = dict(people())
        everybody = ("", "Everyone")
        self.fields["to"].choices = [everybody, *self.names.items()]  # type: ignore[attr-defined]  # a ChoiceField

    def assign(self, items: list[int], *, by: User) -> str:
        """Assign the named item, or all, and return a message; "" for an invalid form."""
        if not self.is_valid():
            return ""
        values = self.cleaned_data
        chosen = [values["item"]] if values["item"] else items
        to = User.objects.filter(pk=values["to"]).first() if values["to"] else None
        done = services.assign(chosen, to, by=by)
        assignee = f"assigned to {to.get_username()}" if to else "open to everyone"
        return f"{counted(done, 'waiting item')}: {assignee}."


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
        """Refuse a file that is too large."""
        upload: UploadedFile[Any] = self.cleaned_data["file"]
        if (upload.size or 0) > MAX_BYTES:
            raise forms.ValidationError(
                "The file is larger than 20 MB. Split it into several files."
            )
        return upload

    def keep(self, by: User) -> ReviewUpload | None:
        """Keep the file for its preview; None, with errors, when it holds no reviews."""
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
    """Whether to leave out rejected rows and store the others."""

    leave_out = forms.BooleanField(
        label="Leave the rejected rows out", required=False, help_text="The others are stored"
    )

    def store(self, upload: ReviewUpload, by: User) -> bool:
        """Store the reviews of an upload; False, with errors, when it is refused."""
        try:
            store_reviews(upload, leaves_out=bool(self.cleaned_data["leave_out"]), by=by)
        except DomainError as refusal:
            self.add_error("leave_out", str(refusal))
            return False
        return True
