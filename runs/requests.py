"""What pages share: the user and permissions, the suite or run of an address, and form fields."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import IO, Any, cast
from urllib.parse import parse_qsl, urlsplit

from django import forms
from django.conf import settings
from django.contrib.auth.decorators import permission_required
from django.contrib.auth.models import User
from django.core.exceptions import NON_FIELD_ERRORS
from django.core.files.uploadedfile import UploadedFile
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404
from django.utils.datastructures import MultiValueDict
from django_htmx.middleware import HtmxDetails

from evaluators.models import ENTERED_USD_DIGITS, USD_DECIMALS
from evaluators.reading.json import read_json
from evaluators.scoring.types import DomainError
from runs import lists
from runs.costs import ZERO_BUDGET
from runs.lists import ListQuery, read_run_name
from runs.models.runs import Run
from runs.models.suites import Suite

VIEW, MAY_REVIEW = "runs.view_run", "runs.review_result"
CHANGE_SUITE = "runs.change_suite"
RUN_SCRIPTS = "runs.run_scripts"
SEE_AUDIT, CHANGE_MEMBERS = "evaluators.view_auditentry", "auth.change_user"
may_view = permission_required(VIEW, raise_exception=True)
may_start = permission_required("runs.start_run", raise_exception=True)
may_delete = permission_required("runs.delete_run", raise_exception=True)
may_change_suites = permission_required(CHANGE_SUITE, raise_exception=True)
may_see_audit = permission_required(SEE_AUDIT, raise_exception=True)
may_share = permission_required("runs.share", raise_exception=True)
may_change_members = permission_required(CHANGE_MEMBERS, raise_exception=True)
may_change_targets = permission_required("runs.change_target", raise_exception=True)
STOP_POLLING = 286
REFUSED = 422


class MemberRequest(HttpRequest):
    """A request of a member who is logged in."""

    user: User
    htmx: HtmxDetails


def follow_address(
    request: HttpRequest, response: HttpResponse, url: str, *, typed: str = "q"
) -> None:
    """Let the browser show the address of what it fetched, so that Back returns to the state before.

    A poll changes nothing, and while a text is typed into the field `typed` its states replace each other.
    """
    here = urlsplit(request.headers.get("HX-Current-URL", ""))
    before, after = dict(parse_qsl(here.query)), dict(parse_qsl(urlsplit(url).query))
    if before == after and here.path == urlsplit(url).path:
        return
    is_typing = bool(before.pop(typed, "")) and bool(after.pop(typed, "")) and before == after
    response["HX-Replace-Url" if is_typing else "HX-Push-Url"] = url


def form_data(request: HttpRequest) -> QueryDict | None:
    """Return the fields of a sent form, even empty ones; None when no form was sent."""
    return request.POST if request.method == "POST" else None


def form_files(request: HttpRequest) -> MultiValueDict[str, UploadedFile[bytes]] | None:
    """Return the files of a sent form; None when no form was sent."""
    return request.FILES if request.method == "POST" else None


def site_address(request: HttpRequest, path: str) -> str:
    """Return the address of a path as people open it; behind a proxy only EVALSITE_URL is sure to be right."""
    site = settings.SITE_URL.rstrip("/")
    return f"{site}{path}" if site else request.build_absolute_uri(path)


get_suite_or_404 = partial(get_object_or_404, Suite.objects.select_related("judge"))


def get_run_or_404(slug: str, number: int) -> Run:
    """Return the run an address names; raises Http404."""
    runs = Run.objects.select_related("suite", "created_by", "target").defer("leaf_scores")
    return get_object_or_404(runs, suite__slug=slug, number=number)


def get_named_run_or_404(name: str) -> Run:
    """Return the run of a name such as `support-agent:12`; raises Http404."""
    place = read_run_name(name)
    if place is None:
        raise Http404(f"{name!r} names no run")
    return get_run_or_404(*place)


SHARED = "shared"
LIMITS = ("max_pass_rate_drop", "max_avg_score_drop", "max_latency_increase_pct")
MAX_LIMIT_LENGTH = 24


@dataclass(frozen=True, slots=True)
class PairQuery(ListQuery):
    """Which two runs an address compares, over which cases, and by which limits.

    Limits keep the text they were entered with, in the units of the command line: a share, points of 100, and percent.
    """

    baseline: str = lists.setting()
    candidate: str = lists.setting()
    cases: str = lists.option((SHARED,), "")
    max_pass_rate_drop: str = lists.setting(max_length=MAX_LIMIT_LENGTH)
    max_avg_score_drop: str = lists.setting(max_length=MAX_LIMIT_LENGTH)
    max_latency_increase_pct: str = lists.setting(max_length=MAX_LIMIT_LENGTH)

    @property
    def limits(self) -> tuple[tuple[str, str], ...]:
        """Return the limits of the address."""
        return tuple((name, value) for name in LIMITS if (value := getattr(self, name)))

    @property
    def run_fields(self) -> tuple[tuple[str, str], ...]:
        """Return the hidden fields of every form of a comparison: the runs and which cases count."""
        pairs = (("baseline", self.baseline), ("candidate", self.candidate), ("cases", self.cases))
        return tuple(pair for pair in pairs if pair[1])


def csv_answer(text: str, name: str) -> HttpResponse:
    """Return a CSV file to be downloaded under a name."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(text, content_type="text/csv; charset=utf-8", headers=headers)


class MoneyField(forms.DecimalField):
    """An amount in US dollars, with or without the sign."""

    widget = forms.TextInput

    def __init__(self, **options: Any) -> None:
        """Allow the digits of an amount that somebody enters."""
        super().__init__(max_digits=ENTERED_USD_DIGITS, decimal_places=USD_DECIMALS, **options)
        self.widget.attrs["inputmode"] = "decimal"

    def to_python(self, value: Any) -> Any:
        """Read the amount."""
        return super().to_python(value.strip().lstrip("$") if isinstance(value, str) else value)


class BudgetField(MoneyField):
    """What calls may cost, more than nothing; it may stay empty."""

    default_error_messages = {
        "invalid": "Enter an amount in US dollars, such as 2.50.",
        "min_value": ZERO_BUDGET,
    }

    def __init__(self, **options: Any) -> None:
        """Take any amount above zero."""
        super().__init__(required=False, min_value=Decimal(10) ** -USD_DECIMALS, **options)


def find_problem(form: forms.Form, plan: Callable[[], object]) -> str:
    """Return why a form starts nothing as it is filled in, "" where it does; `plan` may raise DomainError."""
    if not form.is_valid():
        name, errors = next(iter(form.errors.items()))
        label = "" if name == NON_FIELD_ERRORS else f"{form[name].label}: "
        return f"{label}{errors[0]}"
    try:
        plan()
    except DomainError as refusal:
        return str(refusal)
    return ""


def percent_field(label: str, help_text: str, maximum: int = 100) -> forms.DecimalField:
    """Return a field for a percentage, or for points out of 100, from 0 up."""
    return forms.DecimalField(
        label=label,
        min_value=0,
        max_value=maximum,
        max_digits=9,
        decimal_places=4,
        help_text=help_text,
        widget=forms.NumberInput(attrs={"step": "any"}),
    )


def shown_percent(share: float) -> Decimal:
    """Return a share from 0 to 1 as the percentage that a form shows."""
    return plain(Decimal(str(share)) * 100)


def as_share(percent: Decimal) -> float:
    """Return a percentage as a share from 0 to 1; −0 is 0."""
    return float(percent / 100) + 0.0


def plain(number: float | Decimal) -> Decimal:
    """Return a number without trailing zeros or an exponent."""
    short = Decimal(str(number)).normalize()
    return short.quantize(Decimal(1)) if short == short.to_integral_value() else short


class ManyFilesInput(forms.ClearableFileInput):
    """A file input that takes several files."""

    allow_multiple_selected = True


class ManyFilesField(forms.FileField):
    """Several uploaded files, cleaned one by one."""

    widget = ManyFilesInput

    def clean(self, data: Any, initial: Any = None) -> list[UploadedFile[Any]]:
        """Return the uploaded files; refuse an empty list where one is required."""
        uploads = [upload for upload in data or [] if upload]
        if not uploads:
            upload = super().clean(None, initial)
            return [upload] if upload else []
        return [super(ManyFilesField, self).clean(upload, initial) for upload in uploads]


def upload_streams(
    uploads: Sequence[UploadedFile[Any]], paths: str = ""
) -> list[tuple[str, IO[bytes]]]:
    """Return uploads as streams by name.

    `paths` is a JSON list of their paths in the same order: Django keeps only the last part of the
    names that browsers send. A list that does not fit is ignored.
    """
    try:
        path_list = read_json(paths) if paths else []
    except ValueError:
        path_list = []
    names = [str(upload.name) for upload in uploads]
    if isinstance(path_list, list) and len(path_list) == len(names):
        pairs = zip(path_list, names, strict=True)
        names = [path if isinstance(path, str) and path else name for path, name in pairs]
    # An upload reads like a file, but its type stub does not say so.
    return [(name, cast("IO[bytes]", upload)) for name, upload in zip(names, uploads, strict=True)]
