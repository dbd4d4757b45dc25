"""The tokens of the API: the list, a new one shown once, and revoking."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache

from evalsite.access.forms import TokenForm
from evalsite.access.roles import role_of
from evalsite.access.tokens import make_token, revoke_token, token_rows
from evalsite.access.views import MemberRequest
from evaluators.judging.keys import KeyUnreadableError, decrypt, encrypt
from runs.models import ApiToken

TOKEN_IN_SESSION = "access.new_api_token"  # noqa: S105  # the name of the place, not what is there


@never_cache
def token_list(request: MemberRequest) -> HttpResponse:
    """List the own tokens, to an admin those of all, and make one; its secret is shown once."""
    now = timezone.now()
    form = TokenForm(role_of(request.user), data=request.POST if request.method == "POST" else None)
    if form.is_valid():
        _, secret = make_token(owner=request.user, **form.values(now=now))
        # Sessions lie in the database, which is to hold no token that can be read.
        request.session[TOKEN_IN_SESSION] = encrypt(secret)
        return redirect("access:tokens")
    context = {
        "form": form,
        "secret": _shown_once(request),
        "rows": token_rows(now=now, owner=request.user),
        "others": _of_others(request),
    }
    return render(request, "access/tokens.html", context, status=422 if form.is_bound else 200)


@never_cache
def token_revoke(request: MemberRequest, pk: int) -> HttpResponse:
    """Ask whether a token is to end, and end it; the owner and admins can."""
    token = get_object_or_404(ApiToken.objects.select_related("owner"), pk=pk)
    if token.owner_id != request.user.pk and not request.user.has_perm("auth.change_user"):
        raise Http404("Members see their own tokens alone.")
    if request.method != "POST":
        return render(request, "access/token_revoke.html", {"token": token})
    if revoke_token(token, actor=request.user, now=timezone.now()):
        messages.success(request, f"Token {token.name} is revoked.")
    return redirect("access:tokens")


def _shown_once(request: HttpRequest) -> str:
    if request.method != "GET":
        return ""
    stored = request.session.pop(TOKEN_IN_SESSION, "")
    try:
        return decrypt(stored) if stored else ""
    except KeyUnreadableError:
        return ""


def _of_others(request: MemberRequest) -> list[object]:
    if not request.user.has_perm("auth.change_user"):
        return []
    rows = token_rows(now=timezone.now())
    return [row for row in rows if row.token.owner_id != request.user.pk]
