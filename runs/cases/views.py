"""The pages of a suite's cases: list, show, create, edit, delete and restore them, and import a table."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from django.contrib import messages
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    JsonResponse,
    StreamingHttpResponse,
)
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from evaluators.detours import fill_again, leave
from evaluators.scoring.types import DomainError
from runs.cases.conflict_forms import CaseConflictForm, entered_values
from runs.cases.forms import (
    ACTION,
    CaseForm,
    SelectedCases,
    change_tags,
    delete,
    find_result,
    is_deletion_confirmed,
    plain_lines,
    read_initial_case,
    read_revision,
    result_at,
    selected_cases,
)
from runs.cases.queries import (
    CasesQuery,
    case_controls,
    case_file,
    case_page,
    case_place,
    case_revisions,
    count_runs,
    saved_by,
    undoable_change,
)
from runs.cases.queries import case_table as case_list
from runs.cases.services import (
    CaseChangedError,
    add_case_from_result,
    add_expected_outcome,
    case_from_result,
    remove_case,
    restore_case,
    set_expected_output,
)
from runs.cases.table_forms import (
    CaseColumnsForm,
    CaseFileForm,
    ImportForm,
    NewSuiteFromTableForm,
    PreviewQuery,
    rejected_file,
    stored_page,
)
from runs.cases.uploads import UploadedTable
from runs.exports.views import answer_file
from runs.files.forms import dump_answer, load_answer
from runs.filters.fields import CASE_VOCABULARY
from runs.filters.views import suggestions_response
from runs.models.saved_views import ViewPage
from runs.models.suites import Case, Suite
from runs.models.temporary import CaseUpload
from runs.requests import (
    REFUSED,
    MemberRequest,
    follow_address,
    form_data,
    form_files,
    get_suite_or_404,
    may_change_suites,
    may_view,
)
from runs.results.result_state import result_url
from runs.saved_views.queries import PlaceQuery, ViewState, names_nothing, view_state

CONFLICT = 409
CHANGE = "runs.change_suite"


@may_view
@require_safe
def suite_cases(request: MemberRequest, slug: str) -> HttpResponse:
    """Show the cases of a suite."""
    suite = get_suite_or_404(slug=slug)
    query, view = _with_view(request, suite)
    if view.default_url and names_nothing(request.GET):
        return redirect(view.default_url)
    table = case_list(suite, query)
    context = {"suite": suite, "table": table, "view": view}
    context["controls"] = case_controls(suite, query)
    return render(request, "cases/cases.html", context)


@may_view
@require_safe
def case_rows(request: MemberRequest, slug: str) -> HttpResponse:
    """Show only the rows of the cases, at the address of the page."""
    suite = get_suite_or_404(slug=slug)
    query, view = _with_view(request, suite)
    table = case_list(suite, query)
    context = {"suite": suite, "table": table, "view": view}
    response = render(request, "cases/_rows.html", context)
    if not table.query.after:  # rows added below do not change the address
        follow_address(request, response, table.query.at(reverse("runs:suite-cases", args=[slug])))
    return response


def _with_view(request: MemberRequest, suite: Suite) -> tuple[CasesQuery, ViewState]:
    """Return the query of an address, and what it says about saved views."""
    query = CasesQuery.read(request.GET)
    place = PlaceQuery(on=ViewPage.CASES)
    state = view_state(suite, place, query.parameters(), request.user)
    return replace(query, view=state.word), state


@require_safe
@may_view
def case_suggestions(request: HttpRequest, slug: str) -> JsonResponse:
    """Return what can be typed at the caret of a filter over the cases of a suite."""
    tags = [tag for tag, _ in get_suite_or_404(slug=slug).tag_counts()]
    return suggestions_response(request, replace(CASE_VOCABULARY, suggested={"tag": tags}))


@may_view
@require_safe
def case(request: HttpRequest, slug: str, key: str) -> HttpResponse:
    """Show one case in full; `?revision=` shows an earlier one."""
    revision = request.GET.get("revision", "")
    found = get_object_or_404(case_revisions(slug, key, revision))
    page = case_page(found)
    done = undoable_change(page, request.GET) if request.user.has_perm(CHANGE) else {}
    context = {"page": page, "case": found, "suite": found.suite, "done": done}
    return render(request, "cases/case.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@may_change_suites
def case_new(request: MemberRequest, slug: str) -> HttpResponse:
    """Create a case: empty, as a copy of another one, or from a result."""
    suite = get_suite_or_404(slug=slug)
    begun = read_initial_case(suite, request.GET.dict())
    form = CaseForm(suite, form_data(request), source=begun.source, begun=begun.content)
    if ACTION in request.POST:
        return _form(request, form.with_rows(request.POST[ACTION]), 200, begun.message)
    case = form.save(request.user) if form.is_valid() else None
    if case is None:
        return _form(request, form, REFUSED if form.is_bound else 200, begun.message)
    messages.success(request, f"{case.key} is in the suite.")
    return redirect("runs:case", slug, case.key)


@require_http_methods(["GET", "HEAD", "POST"])
@may_change_suites
def case_edit(request: MemberRequest, slug: str, key: str) -> HttpResponse:
    """Edit a case; if somebody else saved it in the meantime, show both edits."""
    case = get_object_or_404(case_revisions(slug, key, ""))
    form = CaseForm(case.suite, form_data(request), case=case, place=case_place(case))
    if ACTION in request.POST:
        return _form(request, form.with_rows(request.POST[ACTION]), 200)
    try:
        saved = form.save(request.user) if form.is_valid() else None
    except CaseChangedError as changed:
        return _conflict(request, case, changed)
    if saved is None:
        return _form(request, form, REFUSED if form.is_bound else 200)
    messages.success(request, f"{saved.key} is at revision {saved.revision}.")
    result = find_result(case.suite, request.GET.get("result", ""))
    if result is not None:
        return redirect(result_url(result.run, result.case.key, result.repetition))
    return redirect("runs:case", slug, saved.key)


@require_http_methods(["GET", "HEAD", "POST"])
@may_change_suites
def case_delete(request: MemberRequest, slug: str, key: str) -> HttpResponse:
    """Explain what deleting a case keeps, and take it out of the suite."""
    case = get_object_or_404(case_revisions(slug, key, ""))
    if request.method != "POST":
        runs = count_runs(case.suite, [key])
        context = {"case": case, "suite": case.suite, "runs": runs}
        return render(request, "cases/delete.html", context)
    try:
        remove_case(case.suite, key, base_revision=read_revision(request.POST), by=request.user)
    except DomainError as refusal:
        messages.error(request, f"{refusal} Look at it before you delete it.")
        return redirect("runs:case", slug, key)
    messages.success(request, f"{key} is deleted. Its results stay, and so do its revisions.")
    return redirect("runs:suite-cases", slug)


@require_POST
@may_change_suites
def case_restore(request: MemberRequest, slug: str, key: str) -> HttpResponse:
    """Make an earlier revision the current one again."""
    case = get_object_or_404(case_revisions(slug, key, ""))
    wanted = read_revision(request.POST, "revision") or 0
    base = read_revision(request.POST)
    try:
        restore_case(case.suite, key, revision=wanted, base_revision=base, by=request.user)
    except DomainError as refusal:
        messages.error(request, str(refusal))
    else:
        messages.success(request, f"{key} is at revision {wanted} again.")
    return redirect("runs:case", slug, key)


@require_POST
@may_change_suites
def result_case(
    request: MemberRequest, slug: str, number: int, key: str, repetition: int
) -> HttpResponse:
    """Make a case from a result."""
    result = result_at(slug, number, key, repetition)
    with_answer = "answer" in request.POST
    try:
        if "edit" in request.POST:
            case_from_result(result, with_answer=with_answer)
            answer = "&answer=1" if with_answer else ""
            return redirect(f"{reverse('runs:case-new', args=[slug])}?result={result.pk}{answer}")
        case = add_case_from_result(result, with_answer=with_answer, by=request.user)
    except DomainError as refusal:
        messages.error(request, str(refusal))
        return redirect("runs:result", slug, number, key, repetition)
    return redirect(f"{reverse('runs:case', args=[slug, case.key])}?made={case.revision}")


@require_POST
@may_change_suites
def result_expected(
    request: MemberRequest, slug: str, number: int, key: str, repetition: int
) -> HttpResponse:
    """Make a result's answer the expected output of its case."""
    result = result_at(slug, number, key, repetition)
    try:
        case, before = set_expected_output(result, by=request.user)
    except DomainError as refusal:
        messages.error(request, str(refusal))
        return redirect("runs:result", slug, number, key, repetition)
    if case.revision == before:
        messages.info(request, f"{case.key} already expects this answer.")
    return redirect(f"{reverse('runs:case', args=[slug, case.key])}?before={before}")


@require_POST
@may_change_suites
def result_outcome(
    request: MemberRequest, slug: str, number: int, key: str, repetition: int
) -> HttpResponse:
    """Add an expected outcome to the case of a result, and go back to the result."""
    result = result_at(slug, number, key, repetition)
    text = plain_lines(request.POST.get("outcome", "")).strip()
    back = redirect("runs:result", slug, number, key, repetition)
    if request.GET:
        back["Location"] += f"?{request.GET.urlencode()}"
    if not text:
        messages.error(request, "Enter the outcome that you expect.")
        return back
    try:
        case, before = add_expected_outcome(result, text, by=request.user)
    except DomainError as refusal:
        messages.error(request, str(refusal))
        return back
    if case.revision == before:
        messages.info(request, f"{case.key} already has this outcome.")
    else:
        messages.success(
            request, f"Outcome added to {case.key}, revision {case.revision}. Later runs check it."
        )
    return back


def _form(request: MemberRequest, form: CaseForm, status: int, message: str = "") -> HttpResponse:
    context = {"form": form, "suite": form.suite, "case": form.case, "message": message}
    return render(request, "cases/form.html", context, status=status)


def _conflict(request: MemberRequest, case: Case, changed: CaseChangedError) -> HttpResponse:
    form = CaseConflictForm(changed, request.POST)
    if form.is_valid():
        try:
            saved = form.save(case.suite, case.key, request.user)
        except CaseChangedError as again:
            form = CaseConflictForm(again)
        else:
            messages.success(request, f"{saved.key} is at revision {saved.revision}.")
            return redirect("runs:case", case.suite.slug, saved.key)
    context = {
        "form": form,
        "suite": case.suite,
        "case": case,
        "entered": entered_values(request.POST),
    }
    context["by"] = saved_by(changed.theirs) if changed.theirs else ""
    return render(request, "cases/conflict.html", context, status=CONFLICT)


@require_POST
@may_change_suites
def case_bulk(request: MemberRequest, slug: str) -> HttpResponse:
    """Add tags to the ticked cases, remove tags, or delete the cases after a confirmation."""
    ticked = selected_cases(get_suite_or_404(slug=slug), request.POST)
    action = request.POST.get("action")
    if ticked.keys and action == "delete" and not is_deletion_confirmed(ticked, request.POST):
        return _confirm_delete(request, ticked)
    try:
        message = ticked.refusal or _done(request, ticked, action)
    except DomainError as refusal:
        message = str(refusal)
    messages.info(request, message)
    back = redirect("runs:suite-cases", slug)
    back["Location"] = ticked.query.at(back["Location"])
    return back


@require_POST
@may_view
def case_export(request: MemberRequest, slug: str) -> HttpResponseBase:
    """Download the ticked cases as a file."""
    suite = get_suite_or_404(slug=slug)
    ticked = selected_cases(suite, request.POST)
    if ticked.refusal:
        messages.info(request, ticked.refusal)
        return redirect(ticked.query.at(reverse("runs:suite-cases", args=[slug])))
    form = request.POST.get("format", "")
    return answer_file(request, case_file(slug=slug, keys=list(ticked.keys), form=form))


def _done(request: MemberRequest, ticked: SelectedCases, action: str | None) -> str:
    if action == "delete":
        return delete(ticked, request.user)
    message = change_tags(
        ticked,
        request.POST.get("tags", ""),
        is_added=action == "tag",
        by=request.user,
        seen=request.POST.get("seen", ""),
    )
    return message or "Enter a tag of up to 200 characters."


def _confirm_delete(request: MemberRequest, ticked: SelectedCases) -> HttpResponse:
    suite = ticked.suite
    context = {"suite": suite, "ticked": ticked}
    context["runs"] = count_runs(suite, ticked.keys)
    return render(request, "cases/delete_many.html", context)


@may_change_suites
def case_import(request: MemberRequest, slug: str) -> HttpResponse:
    """Choose a table of cases for a suite."""
    suite = get_suite_or_404(slug=slug)
    form = CaseFileForm(form_data(request), form_files(request))
    if form.is_valid() and (upload := form.keep(request.user, suite=suite)):
        return redirect("runs:case-table", upload.pk)
    context = {"suite": suite, "form": form}
    status = REFUSED if form.is_bound else 200
    return render(request, "cases/import.html", context, status=status)


ANSWER = "import_answer"


@may_change_suites
def suite_import(request: MemberRequest) -> HttpResponse:
    """Import suites from files, or a table as a new suite; show everything that is wrong with them."""
    form = ImportForm(form_data(request), form_files(request), read_by=request.user)
    if away := leave(request, form):
        return away
    fill_again(request, form)
    done = None
    if form.is_valid():
        if form.table is None:
            done = form.save(imported_by=request.user)
        elif upload := form.keep_table(form.table, request.user):
            return redirect("runs:case-table", upload.pk)
    if done is None:
        status = REFUSED if form.is_bound else 200
        return render(request, "files/import.html", {"form": form}, status=status)
    answer = dump_answer(done.files, done.target, done.warnings)
    if len(done.files) > 1 or done.warnings:
        request.session[ANSWER] = answer
        return redirect("runs:suite-imported")
    imported = done.files[0].imported
    is_new_version = imported.is_changed and not imported.is_new
    suite, note = imported.suite, f": {imported.note}" if is_new_version else ""
    outputs = f" Target {done.target.name} has its outputs." if done.target else ""
    messages.success(request, f"{suite.title} is at version {suite.version}{note}.{outputs}")
    return redirect("runs:suite", suite.slug)


@may_change_suites
@require_safe
def suite_imported(request: HttpRequest) -> HttpResponse:
    """Show the result for each suite of the last import, with warnings."""
    kept = request.session.get(ANSWER)
    if kept is None:
        return redirect("runs:suite-import")
    return render(request, "files/imported.html", {"answer": load_answer(kept)})


@may_change_suites
def suite_new_from_table(request: MemberRequest) -> HttpResponse:
    """Create a suite with the cases of a table."""
    form = NewSuiteFromTableForm(form_data(request), form_files(request))
    if away := leave(request, form):
        return away
    fill_again(request, form)
    if form.is_valid() and (upload := form.keep_with_suite(request.user)):
        return redirect("runs:case-table", upload.pk)
    status = REFUSED if form.is_bound else 200
    return render(request, "files/new_from_table.html", {"form": form}, status=status)


@may_change_suites
def case_table(request: MemberRequest, pk: UUID) -> HttpResponse:
    """Show the preview of a table, or the result once it is stored."""
    upload = _own(request, pk)
    if upload.stored_at is not None:
        return render(request, "cases/table_stored.html", stored_page(upload))
    query = PreviewQuery.read(request.GET)
    form = CaseColumnsForm(UploadedTable(upload), form_data(request), query)
    if form.keep() and not request.htmx:
        here = reverse("runs:case-table", args=[pk])
        return redirect(here + query.here)
    context = form.page()
    if request.htmx:
        return render(request, "cases/_table_read.html", context | {"is_alone": True})
    status = REFUSED if form.is_bound else 200
    return render(request, "cases/table.html", context, status=status)


@may_change_suites
def case_table_store(request: MemberRequest, pk: UUID) -> HttpResponse:
    """Store the cases of the table; a second request only shows the result."""
    upload = _own(request, pk)
    if request.method != "POST" or upload.stored_at is not None:
        # Reloading a refused form leads back to the preview.
        return redirect("runs:case-table", pk)
    query = PreviewQuery.read(request.GET)
    form = CaseColumnsForm(UploadedTable(upload), request.POST, query)
    if form.store(request.user):
        return redirect("runs:case-table", pk)
    context = form.page()
    return render(request, "cases/table.html", context, status=REFUSED)


@require_safe
@may_change_suites
def case_table_rejected(request: MemberRequest, pk: UUID) -> StreamingHttpResponse:
    """Download the rejected rows as CSV, each with its line and reason."""
    upload = _own(request, pk)
    if upload.stored_at is not None:
        raise Http404("The file was deleted when its cases were stored.")
    name = f"{upload.name.rsplit('.', 1)[0]}-rejected.csv"
    headers = {"Content-Disposition": str(content_disposition_header(True, name))}
    return StreamingHttpResponse(
        rejected_file(upload), content_type="text/csv; charset=utf-8", headers=headers
    )


def _own(request: MemberRequest, pk: UUID) -> CaseUpload:
    """Return an upload of this member; raises Http404 for any other, and for one of a deleted suite."""
    uploads = CaseUpload.objects.select_related("suite").exclude(suite__is_deleted=True)
    return get_object_or_404(uploads, pk=pk, owner=request.user)
