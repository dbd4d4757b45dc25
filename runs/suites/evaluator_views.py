"""The evaluator tree of a suite, edited in one's draft: the whole of it, one evaluator, a new one."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from evaluators.catalog.queries import kinds_shown
from evaluators.kinds import all_kinds, get_kind
from evaluators.kinds._refusals import UnknownKindError
from evaluators.scoring.types import DomainError
from runs.models.suites import Suite, SuiteDraft
from runs.requests import REFUSED, MemberRequest, may_change_suites, may_view, posted, suite_of
from runs.suites.drafts import draft_for, draft_of, problems_of
from runs.suites.edits import nodes_with_paths
from runs.suites.evaluator_forms import AddForm, EvaluatorForm
from runs.suites.evaluator_pages import base_of, rules_offered, tree_editor
from runs.suites.queries import draft_panel, suite_head, suite_rules
from runs.suites.tree_forms import SAVE, EvaluatorTreeForm, TreeAction, read_action
from runs.suites.views import saved

STALE = 409


@require_safe
@may_view
def suite_evaluators(request: MemberRequest, slug: str) -> HttpResponse:
    """Show the whole tree and the thresholds, as one's draft has them; who may not edit reads them."""
    suite = suite_of(slug=slug)
    if not request.user.has_perm("runs.change_suite"):
        version = suite.versions.filter(number=suite.version)
        page = suite_rules(suite, version.values_list("content__evaluators", flat=True).first())
        context = {"suite": suite, "head": page.head, "page": page}
        return render(request, "suites/evaluators_read.html", context)
    draft = draft_of(suite, request.user)
    base = base_of(draft)
    return _editor(request, EvaluatorTreeForm(draft, base.policy.as_json()), base)


@may_change_suites
def evaluators_keep(request: MemberRequest, slug: str) -> HttpResponse:
    """Keep the form of the tree in one's draft, with what the pressed button asks for besides."""
    if request.method != "POST":
        return redirect("runs:suite-evaluators", slug)
    draft = draft_for(suite_of(slug=slug), request.user, request.POST.get("stamp", ""))
    base = base_of(draft)
    form = EvaluatorTreeForm(draft, base.policy.as_json(), request.POST)
    goal = _done(request, form)
    return redirect(goal) if goal else _editor(request, form, base)


@require_safe
@may_change_suites
def evaluator_kinds(request: MemberRequest, slug: str) -> HttpResponse:
    """Show the kinds an evaluator of the suite can be of, each with its manual."""
    suite = suite_of(slug=slug)
    context = {
        "suite": suite,
        "head": suite_head(suite),
        "kinds": kinds_shown(),
        "into": request.GET.get("into", ""),
    }
    return render(request, "suites/evaluator_kinds.html", context)


@may_change_suites
def evaluator_add(request: MemberRequest, slug: str, kind: str) -> HttpResponse:
    """Add an evaluator of a kind to one's draft."""
    suite = suite_of(slug=slug)
    try:
        found = get_kind(kind)
    except UnknownKindError as error:
        raise Http404(str(error)) from error
    if not found.in_gallery:
        raise Http404(f"The kind {kind} is used by Evalsite itself.")
    draft = draft_for(suite, request.user, request.POST.get("stamp", ""))
    form = AddForm(draft, found, request.GET.get("into", ""), posted(request))
    if form.is_bound and form.is_valid() and (kept := form.add()):
        messages.info(request, f"{form.marks.cleaned_data['name']} is in the draft.")
        return redirect(_at(slug, f"n{kept.content['last_id'] - (kind == 'composite')}"))
    return _settings_page(request, suite, form, {"kind": found, "is_new": True})


@may_change_suites
def evaluator(request: MemberRequest, slug: str, node: str) -> HttpResponse:
    """Edit one evaluator of one's draft: name, marks and the settings of its kind."""
    suite = suite_of(slug=slug)
    draft = draft_for(suite, request.user, request.POST.get("stamp", ""))
    found, parent, path = _node(draft, node)
    kind = all_kinds().get(found["kind"])
    form = EvaluatorForm(draft, found, parent, kind, posted(request))
    if form.is_bound and form.is_valid() and form.keep():
        messages.info(request, f"{form.marks.cleaned_data['name']} is kept in the draft.")
        return redirect(_at(slug, node))
    problems = [one for one in problems_of(suite, draft.content) if one.node == node]
    context = {"kind": kind, "node": found, "path": path, "problems": form.point_out(problems)}
    return _settings_page(request, suite, form, context)


def _settings_page(
    request: MemberRequest, suite: Suite, form: AddForm | EvaluatorForm, context: dict[str, Any]
) -> HttpResponse:
    context |= {"suite": suite, "head": suite_head(suite), "form": form}
    status = STALE if form.is_stale else REFUSED if form.is_bound else 200
    return render(request, "suites/evaluator.html", context, status=status)


def _editor(request: MemberRequest, form: EvaluatorTreeForm, base: Any) -> HttpResponse:
    draft = form.draft
    panel = draft_panel(draft)
    tree = tree_editor(draft.content, base, fields=form.fields, problems=panel.problems)
    context = {
        "suite": draft.suite,
        "head": suite_head(draft.suite),
        "draft": panel,
        "form": form,
        "tree": tree,
        "rules": rules_offered(),
        "thresholds": form.thresholds.shown(),
        "scale": form.thresholds.scale,
    }
    status = STALE if form.is_stale else REFUSED if form.is_bound else 200
    return render(request, "suites/evaluators.html", context, status=status)


def _done(request: MemberRequest, form: EvaluatorTreeForm) -> str:
    """Keep the form and do what its button asks for; return where to go on, "" when refused."""
    try:
        action = read_action(request.POST.get("do", ""))
    except DomainError as refusal:
        form.refusals.append(str(refusal))
        return ""
    before = form.draft.content
    kept = form.keep(*action.operations) if action else form.keep()
    if kept is None:
        return ""
    if action and action.word == SAVE:
        return saved(request, kept, kept.stamp)
    if action and action.operation:
        messages.info(request, action.said(before, kept.content))
    return _goal(form.draft.suite.slug, action)


def _goal(slug: str, action: TreeAction | None) -> str:
    if action and action.word == "edit":
        return reverse("runs:evaluator", args=[slug, action.node])
    if action and action.word == "try":
        return reverse("runs:evaluator-try", args=[slug, action.node])
    if action and action.word == "add":
        return f"{reverse('runs:evaluator-kinds', args=[slug])}?into={action.node}"
    return _at(slug, action.node if action and action.word != "remove" else "")


def _at(slug: str, node: str) -> str:
    address = reverse("runs:suite-evaluators", args=[slug])
    return f"{address}#{node}" if node else address


def _node(draft: SuiteDraft, key: str) -> tuple[dict[str, Any], dict[str, Any] | None, str]:
    """Return an evaluator of the draft, what holds it and its path; raises Http404."""
    found = [*nodes_with_paths(draft.content["evaluators"])]
    for path, node in found:
        if node["id"] == key:
            parent = next((one for _, one in found if node in one["children"]), None)
            return node, parent, path
    raise Http404("That evaluator is not in your draft.")
