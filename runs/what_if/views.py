"""The what-if of a draft: the panel of the editor, the page, the file, and a new run."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import sentence
from runs.models.runs import Run
from runs.requests import (
    REFUSED,
    MemberRequest,
    csv_answer,
    form_data,
    get_suite_or_404,
    may_change_suites,
    may_start,
)
from runs.specs.suites import SuiteSpec
from runs.suites.drafts import draft_for
from runs.suites.edits import Content
from runs.suites.queries import base_spec, draft_panel, tree_editor
from runs.suites.tree_forms import EvaluatorTreeForm
from runs.what_if.page import WhatIfPage, what_if_page
from runs.what_if.panel import (
    FlipMatrix,
    FlipQuery,
    filter_flips,
    flip_table,
    flips_file,
    histogram_file,
    matrix_file,
)
from runs.what_if.services import score_again

STALE_DRAFT = (
    "Your draft was changed in another tab, or the suite was, since this page was opened. "
    "Open the page again to go on."
)


@dataclass(frozen=True, slots=True)
class DraftContent:
    """The content of a draft with the changes of a form; None if there are `complaints`."""

    content: Content | None
    complaints: Sequence[str]
    is_stale: bool = False


def read_content(form: EvaluatorTreeForm) -> DraftContent:
    """Return the content of the sent form, or of the stored draft if no form was sent."""
    if form.data is not None and form.data.get("stamp") != form.draft.stamp:
        return DraftContent(None, (STALE_DRAFT,), is_stale=True)
    content = form.content()
    return DraftContent(content, () if content is not None else tuple(_complaints(form)))


def _complaints(form: EvaluatorTreeForm) -> Iterator[str]:
    for row in form.rows.values():
        for error in row.sent.errors.values():
            yield f"{row.node['name']}: {sentence(error)}"
    for threshold in form.thresholds.shown().values():
        if threshold.error:
            yield sentence(threshold.error)
    for refusal in form.refusals:
        yield sentence(refusal[:1].upper() + refusal[1:])


STALE = 409
NOT_SENT_AGAIN = ("csrfmiddlewaretoken", "run", "change", "keep", "score", "form_key")
PICKER = "what-if-run"


class WhatIfRequest:
    """A request for a what-if: the form of a draft, its content, and the answer."""

    def __init__(self, request: MemberRequest, slug: str) -> None:
        """Read the draft and the form; nothing is stored."""
        suite, sent = get_suite_or_404(slug=slug), request.POST
        is_kept = "autosave" in sent or "keep" in sent
        draft = draft_for(suite, request.user, sent.get("stamp", "") if is_kept else "")
        self.base = base_spec(draft)
        self.form = EvaluatorTreeForm(draft, self.base.policy.as_json(), form_data(request))
        self.rule_change: DraftContent = read_content(self.form)
        self.query = FlipQuery.read(request.GET.dict() | request.POST.dict())
        self.reader = request.user
        self.is_saved = False

    def keep(self) -> None:
        """Store the form in the draft, or leave the draft as it is when a field is refused."""
        if self.rule_change.content is None:
            return
        kept = self.form.keep()
        if kept is None:
            complaints = (STALE_DRAFT,) if self.form.is_stale else tuple(_complaints(self.form))
            self.rule_change = DraftContent(None, complaints, is_stale=self.form.is_stale)
            return
        self.is_saved = True
        self.form = EvaluatorTreeForm(kept, self.base.policy.as_json())
        self.rule_change = DraftContent(kept.content, ())

    def answer(self) -> WhatIfPage:
        """Return the page with the answer, or with the reasons why there is none."""
        return what_if_page(
            self.form.draft,
            self.base,
            self.rule_change.content,
            query=self.query,
            reader=self.reader,
            problems=self.rule_change.complaints,
        )

    @property
    def status(self) -> int:
        """Return the HTTP status of the answer."""
        if not self.form.is_bound:
            return 200
        return (
            STALE if self.rule_change.is_stale else REFUSED if self.rule_change.complaints else 200
        )


@may_change_suites
def what_if(request: MemberRequest, slug: str) -> HttpResponse:
    """Show the what-if of the stored draft or of a form: the panel for htmx, else the page.

    The editor sends `autosave` with every edit, which stores the form in the draft first.
    """
    question = WhatIfRequest(request, slug)
    if "keep" in request.POST and question.form.keep():
        run = f"?run={question.query.run}" if question.query.run else ""
        return redirect(reverse("runs:what-if", args=[slug]) + run)
    if request.htmx:
        if "autosave" in request.POST:
            question.keep()
        return _panel(request, question)
    return _page(request, question)


@require_safe
@may_change_suites
def what_if_file(request: MemberRequest, slug: str) -> HttpResponse:
    """Return the flips under the stored draft as a CSV file."""
    question = WhatIfRequest(request, slug)
    page = question.answer()
    flips = filter_flips(page.answer.what_if, question.query) if page.answer else []
    number = page.run.number if page.run else 0
    return csv_answer(flips_file(flips), f"{slug}-{number}-what-if.csv")


@require_safe
@may_change_suites
def what_if_matrix_file(request: MemberRequest, slug: str) -> HttpResponse:
    """Return how many cases go from one verdict to another under the stored draft, as a CSV file."""
    page = WhatIfRequest(request, slug).answer()
    matrix = page.answer.matrix if page.answer else FlipMatrix((), (), ())
    number = page.run.number if page.run else 0
    return csv_answer(matrix_file(matrix), f"{slug}-{number}-what-if-matrix.csv")


@require_safe
@may_change_suites
def what_if_histogram_file(request: MemberRequest, slug: str) -> HttpResponse:
    """Return how many results have which scores before and under the stored draft, as a CSV file."""
    page = WhatIfRequest(request, slug).answer()
    if page.answer is None or page.run is None:
        raise Http404("there is no run to draw")
    return csv_answer(
        histogram_file(page.answer.histogram), f"{slug}-{page.run.number}-what-if-scores.csv"
    )


@require_POST
@may_start
@may_change_suites
def what_if_score(request: MemberRequest, slug: str) -> HttpResponse:
    """Make a new run from the stored scores under the form of a draft, or show why that is impossible."""
    question = WhatIfRequest(request, slug)
    page = question.answer()
    if page.run is None or question.rule_change.content is None:
        return _page(request, question, page, REFUSED)
    try:
        run = _score(request, question, page.run)
    except DomainError as refusal:
        messages.error(request, str(refusal))
        return _page(request, question, page, REFUSED)
    messages.success(
        request, f"Run #{run.number} is created from the scores of run #{page.run.number}."
    )
    return redirect("runs:run", slug, run.number)


def _score(request: MemberRequest, question: WhatIfRequest, run: Run) -> Run:
    draft, content = question.form.draft, question.rule_change.content
    return score_again(
        run,
        question.base,
        content or draft.content,
        version=draft.base_version,
        by=request.user,
        form_key=re.sub(r"[^\w-]", "", request.POST.get("form_key", ""))[:64],
    )


def _panel(request: MemberRequest, question: WhatIfRequest) -> HttpResponse:
    page, slug = question.answer(), question.form.draft.suite.slug
    context = _context(question, page)
    if question.rule_change.content is not None:
        fields = question.form.fields
        context["tree"] = tree_editor(question.rule_change.content, question.base, fields=fields)
    if "autosave" in request.POST:
        context["draft"] = draft_panel(question.form.draft)
        context["is_saved"] = question.is_saved
    # A half-typed number is no failed request, so the status is 200 and the panel shows the problem.
    response = render(request, "what_if/_swaps.html", context)
    if request.htmx.trigger == PICKER and page.run:
        address = reverse("runs:suite-evaluators", args=[slug])
        response["HX-Replace-Url"] = f"{address}?run={page.run.number}"
    return response


def _page(
    request: MemberRequest, question: WhatIfRequest, page: WhatIfPage | None = None, status: int = 0
) -> HttpResponse:
    page = page or question.answer()
    context = _context(question, page) | {
        "is_page": True,
        "is_preview": question.form.is_bound,
        "sent": _sent(request),
    }
    if page.answer and page.run:
        path = reverse("runs:what-if", args=[page.suite.slug])
        args = page.answer.what_if, page.run, question.query, request.user
        context["table"] = flip_table(*args, path=path, scale=context["scale"])
    return render(request, "what_if/what_if.html", context, status=status or question.status)


def _context(question: WhatIfRequest, page: WhatIfPage) -> dict[str, Any]:
    return {
        "suite": page.suite,
        "what_if": page,
        "scale": SuiteSpec.model_validate(
            question.rule_change.content or question.base.as_json()
        ).policy.scale,
        "form_key": secrets.token_urlsafe(16),
    }


def _sent(request: MemberRequest) -> list[tuple[str, str]]:
    """Return the fields of a preview, which its page sends again with a later form."""
    return [
        (name, value)
        for name, values in request.POST.lists()
        if name not in NOT_SENT_AGAIN
        for value in values
    ]
