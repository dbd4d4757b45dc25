"""The pages of a suite: its settings, its drafts, its versions, its evaluator tree."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import Resolver404, resolve, reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from evaluators.catalog.queries import kind_groups
from evaluators.detours import fill_again, leave
from evaluators.kinds import all_kinds, get_kind
from evaluators.kinds._refusals import UnknownKindError
from evaluators.scoring.types import DomainError
from runs.lists import read_integer
from runs.models.suites import Suite, SuiteDraft
from runs.requests import (
    REFUSED,
    MemberRequest,
    form_data,
    get_suite_or_404,
    may_change_suites,
    may_view,
)
from runs.suites.drafts import (
    DraftConflictError,
    DraftProblem,
    discard_draft,
    draft_for,
    find_conflict,
    find_problems,
    get_draft,
    save_draft,
)
from runs.suites.edits import nodes_with_paths
from runs.suites.evaluator_forms import AddForm, EvaluatorForm
from runs.suites.forms import ConflictForm, NewSuiteForm, RestoreForm, SuiteSettingsForm
from runs.suites.queries import (
    aggregator_choices,
    base_spec,
    draft_panel,
    queue_counts,
    suite_rules,
    tree_editor,
)
from runs.suites.services import archive_suite, unarchive_suite
from runs.suites.tree_forms import SAVE, EvaluatorTreeForm, TreeAction, read_action
from runs.suites.version_pages import (
    VersionsQuery,
    version_choices,
    version_comparison,
    version_list,
    version_page,
)


@may_change_suites
def suite_new(request: MemberRequest) -> HttpResponse:
    """Create a suite, empty or from a profile."""
    form = NewSuiteForm(form_data(request))
    if away := leave(request, form):
        return away
    fill_again(request, form)
    if form.is_valid() and (suite := form.create(request.user)):
        messages.success(request, f"{suite.title} is created. Add cases next.")
        return redirect("runs:suite", suite.slug)
    status = REFUSED if form.is_bound else 200
    return render(request, "suites/new.html", {"form": form}, status=status)


@may_change_suites
def suite_settings(request: MemberRequest, slug: str) -> HttpResponse:
    """Edit a suite's texts and policy in the member's draft."""
    suite = get_suite_or_404(slug=slug)
    draft = draft_for(suite, request.user, request.POST.get("stamp", ""))
    form = SuiteSettingsForm(draft, form_data(request))
    form.say_what_entered(queue_counts(suite))
    if away := leave(request, form):
        return away
    fill_again(request, form)
    if form.is_valid() and form.keep():
        return redirect("runs:suite-settings", slug)
    context = {"suite": suite, "form": form, "draft": draft_panel(draft)}
    status = REFUSED if form.is_bound else 200
    return render(request, "suites/settings.html", context, status=status)


@require_POST
@may_change_suites
def suite_archive(request: MemberRequest, slug: str) -> HttpResponse:
    """Archive a suite, or with `restore` put it back into the lists."""
    suite = get_suite_or_404(slug=slug)
    if "restore" in request.POST:
        if unarchive_suite(suite, by=request.user):
            messages.success(request, f"{suite.title} is restored.")
    elif archive_suite(suite, by=request.user):
        messages.success(request, f"{suite.title} is archived. Its runs stay readable.")
    return redirect("runs:suite", slug)


# The pages where a draft is edited; actions lead back there.
OWN_PAGES = ("runs:suite", "runs:suite-settings", "runs:suite-evaluators", "runs:what-if")


@require_POST
@may_change_suites
def draft_save(request: MemberRequest, slug: str) -> HttpResponse:
    """Save the draft as the next version, or say why not and keep the draft."""
    draft = get_draft(get_suite_or_404(slug=slug), request.user)
    return redirect(save_and_report(request, draft, request.POST.get("stamp", "")))


@require_POST
@may_change_suites
def draft_discard(request: MemberRequest, slug: str) -> HttpResponse:
    """Discard the draft."""
    try:
        discard_draft(
            get_draft(get_suite_or_404(slug=slug), request.user), request.POST.get("stamp", "")
        )
    except DomainError as refusal:
        messages.error(request, str(refusal))
        return redirect(_back(request, slug, "runs:suite-settings"))
    messages.info(request, "The draft is discarded. The suite has not changed.")
    return redirect(_back(request, slug, "runs:suite"))


@may_change_suites
def draft_conflict(request: MemberRequest, slug: str) -> HttpResponse:
    """Show a draft next to what others saved since, and bring it up to their version as chosen."""
    suite = get_suite_or_404(slug=slug)
    draft = get_draft(suite, request.user)
    conflict = find_conflict(draft)
    if conflict is None:
        return redirect("runs:suite-settings", slug)
    form = ConflictForm(conflict, form_data(request))
    if form.is_valid() and form.resolve():
        messages.success(
            request, f"Your draft is now based on version {suite.version}. Save it next."
        )
        return redirect("runs:suite-settings", slug)
    context = {"suite": suite, "form": form, "conflict": conflict}
    status = REFUSED if form.is_bound else 409
    return render(request, "suites/draft_conflict.html", context, status=status)


def save_and_report(request: MemberRequest, draft: SuiteDraft, stamp: str) -> str:
    """Save a draft as the next version and return the next page, which shows a message about it."""
    slug = draft.suite.slug
    try:
        version = save_draft(draft, stamp, note=request.POST.get("note", ""))
    except DraftConflictError:
        return reverse("runs:draft-conflict", args=[slug])
    except DomainError as refusal:
        messages.error(request, str(refusal))
        return _back(request, slug, "runs:suite-settings")
    messages.success(request, f"Saved as {version}: {version.note}")
    return _back(request, slug, "runs:suite")


def _back(request: MemberRequest, slug: str, usual: str) -> str:
    """Return the suite's page that the form came from, else a default one."""
    address = request.POST.get("next", "")
    try:
        match = resolve(address)
    except Resolver404:
        return reverse(usual, args=[slug])
    is_own = match.view_name in OWN_PAGES and match.kwargs == {"slug": slug}
    return address if is_own else reverse(usual, args=[slug])


PAIR, MAX_NUMBER = 2, 10**9


@may_view
@require_safe
def version_rows(request: HttpRequest, slug: str) -> HttpResponse:
    """Show the versions of a suite, newest first."""
    suite = get_suite_or_404(slug=slug)
    table = version_list(suite, VersionsQuery.read(request.GET))
    context = {"suite": suite, "table": table}
    return render(request, "suites/versions.html", context)


@may_view
@require_safe
def version(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Show the suite as it was at a version."""
    suite = get_suite_or_404(slug=slug)
    stored = get_object_or_404(suite.versions.select_related("author"), number=number)
    page = version_page(suite, stored, first_case=_number(request, "case") or 0)
    context = {"suite": suite, "page": page}
    return render(request, "suites/version.html", context)


@may_view
@require_safe
def version_compare(request: HttpRequest, slug: str) -> HttpResponse:
    """Show what differs between two versions; two ticked versions redirect to their comparison."""
    suite = get_suite_or_404(slug=slug)
    if "version" in request.GET:
        return _compare_ticked(request, slug)
    newer = _number(request, "to") or suite.version
    older = _number(request, "from") or max(newer - 1, 1)
    sides = [
        get_object_or_404(suite.versions.select_related("author"), number=number)
        for number in (older, newer)
    ]
    comparison = version_comparison(suite, *sides, first_case=_number(request, "case") or 0)
    context = {"suite": suite, "comparison": comparison}
    offered = version_choices(suite)
    return render(request, "suites/version_compare.html", {**context, "offered": offered})


def _number(request: HttpRequest, name: str) -> int | None:
    return read_integer(request.GET.get(name, ""), maximum=MAX_NUMBER)


def _compare_ticked(request: HttpRequest, slug: str) -> HttpResponse:
    numbers = map(read_integer, request.GET.getlist("version"))
    ticked = sorted({number for number in numbers if number is not None})
    if len(ticked) != PAIR:
        messages.warning(request, "Tick two versions to compare them.")
        return redirect("runs:suite-versions", slug)
    address = reverse("runs:version-compare", args=[slug])
    return redirect(f"{address}?from={ticked[0]}&to={ticked[1]}")


@require_http_methods(["GET", "HEAD", "POST"])
@may_change_suites
def version_restore(request: MemberRequest, slug: str, number: int) -> HttpResponse:
    """Show what restoring a version would change, and do it."""
    suite = get_suite_or_404(slug=slug)
    old = get_object_or_404(suite.versions.select_related("author"), number=number)
    form = RestoreForm(suite, form_data(request))
    if form.is_bound and (restored := form.restore(number, request.user)):
        messages.success(request, f"{restored} has the content of v{number}. {restored.note}.")
        return redirect("runs:suite", slug)
    now = get_object_or_404(suite.versions.select_related("author"), number=suite.version)
    comparison = version_comparison(suite, now, old)
    context = {"suite": suite, "comparison": comparison, "form": form}
    status = REFUSED if form.is_bound else 200
    return render(request, "suites/version_restore.html", {**context, "old": old}, status=status)


STALE = 409


@require_safe
@may_view
def suite_evaluators(request: MemberRequest, slug: str) -> HttpResponse:
    """Show the tree and thresholds of the member's draft; a member who may not edit sees the suite's."""
    suite = get_suite_or_404(slug=slug)
    if not request.user.has_perm("runs.change_suite"):
        version = suite.versions.filter(number=suite.version)
        page = suite_rules(suite, version.values_list("content__evaluators", flat=True).first())
        context = {"suite": suite, "page": page}
        return render(request, "suites/evaluators_read.html", context)
    draft = get_draft(suite, request.user)
    base = base_spec(draft)
    return _editor(request, EvaluatorTreeForm(draft, base.policy.as_json()), base)


@require_safe
@may_change_suites
def draft_problems(request: MemberRequest, slug: str) -> HttpResponse:
    """Return what keeps the member's draft from being saved, for the panel of the draft and the rows of the tree."""
    suite = get_suite_or_404(slug=slug)
    draft = draft_panel(get_draft(suite, request.user))
    by_node: dict[str, list[DraftProblem]] = defaultdict(list)
    for problem in draft.problems:
        by_node[problem.node].append(problem)
    by_node.pop("", None)
    context = {"draft": draft, "suite": suite, "nodes": dict(by_node)}
    return render(request, "suites/draft_problems.html", context)


@may_change_suites
def evaluators_keep(request: MemberRequest, slug: str) -> HttpResponse:
    """Save the form of the tree in the member's draft, and do what the pressed button asks for."""
    if request.method != "POST":
        return redirect("runs:suite-evaluators", slug)
    draft = draft_for(get_suite_or_404(slug=slug), request.user, request.POST.get("stamp", ""))
    base = base_spec(draft)
    form = EvaluatorTreeForm(draft, base.policy.as_json(), request.POST)
    address = _keep(request, form)
    return redirect(address) if address else _editor(request, form, base)


@require_safe
@may_change_suites
def evaluator_kinds(request: MemberRequest, slug: str) -> HttpResponse:
    """Show the kinds of evaluators to choose from, each with its manual."""
    suite = get_suite_or_404(slug=slug)
    context = {
        "suite": suite,
        "groups": kind_groups(),
        "into": request.GET.get("into", ""),
    }
    return render(request, "suites/evaluator_kinds.html", context)


@may_change_suites
def evaluator_add(request: MemberRequest, slug: str, kind: str) -> HttpResponse:
    """Add an evaluator of a kind to the member's draft."""
    suite = get_suite_or_404(slug=slug)
    try:
        chosen = get_kind(kind)
    except UnknownKindError as error:
        raise Http404(str(error)) from error
    if not chosen.in_gallery:
        raise Http404(f"The kind {kind} is used by Evalsite itself.")
    draft = draft_for(suite, request.user, request.POST.get("stamp", ""))
    form = AddForm(draft, chosen, request.GET.get("into", ""), form_data(request))
    if form.is_bound and form.is_valid() and (kept := form.add()):
        messages.info(request, f"{form.marks.cleaned_data['name']} is in the draft.")
        return redirect(_at(slug, f"n{kept.content['last_id'] - (kind == 'composite')}"))
    return _settings_page(request, suite, form, {"kind": chosen, "is_new": True})


@may_change_suites
def evaluator(request: MemberRequest, slug: str, node: str) -> HttpResponse:
    """Edit one evaluator of the member's draft: name, marks and settings."""
    suite = get_suite_or_404(slug=slug)
    draft = draft_for(suite, request.user, request.POST.get("stamp", ""))
    settings, parent, path = _node(draft, node)
    kind = all_kinds().get(settings["kind"])
    form = EvaluatorForm(draft, settings, parent, kind, form_data(request))
    if form.is_bound and form.is_valid() and form.keep():
        messages.info(request, f"{form.marks.cleaned_data['name']} is saved in the draft.")
        return redirect(_at(slug, node))
    problems = [problem for problem in find_problems(suite, draft.content) if problem.node == node]
    context = {
        "kind": kind,
        "node": settings,
        "path": path,
        "problems": form.show_problems(problems),
    }
    return _settings_page(request, suite, form, context)


def _settings_page(
    request: MemberRequest, suite: Suite, form: AddForm | EvaluatorForm, context: dict[str, Any]
) -> HttpResponse:
    context |= {"suite": suite, "form": form}
    status = STALE if form.is_stale else REFUSED if form.is_bound else 200
    return render(request, "suites/evaluator.html", context, status=status)


def _editor(request: MemberRequest, form: EvaluatorTreeForm, base: Any) -> HttpResponse:
    draft = form.draft
    panel = draft_panel(draft, is_checked=form.is_bound or "check" in request.GET)
    tree = tree_editor(draft.content, base, fields=form.fields, problems=panel.problems)
    context = {
        "suite": draft.suite,
        "draft": panel,
        "form": form,
        "tree": tree,
        "rules": aggregator_choices(),
        "thresholds": form.thresholds.shown(),
        "scale": form.thresholds.scale,
    }
    status = STALE if form.is_stale else REFUSED if form.is_bound else 200
    return render(request, "suites/evaluators.html", context, status=status)


def _keep(request: MemberRequest, form: EvaluatorTreeForm) -> str:
    """Save the form and do what its button asks for; return the next page, "" when refused."""
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
        return save_and_report(request, kept, kept.stamp)
    if action and action.operation:
        messages.info(request, action.message(before, kept.content))
    return _next_page(form.draft.suite.slug, action)


def _next_page(slug: str, action: TreeAction | None) -> str:
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
    """Return an evaluator of the draft, its parent and its path; raises Http404."""
    nodes = [*nodes_with_paths(draft.content["evaluators"])]
    for path, node in nodes:
        if node["id"] == key:
            parent = next((other for _, other in nodes if node in other["children"]), None)
            return node, parent, path
    raise Http404("That evaluator is not in your draft.")
