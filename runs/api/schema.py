"""What all calls of the API share: they are described in the schema, and errors are problem details."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from http import HTTPStatus
from itertools import islice
from types import MappingProxyType
from typing import Any, ClassVar
from uuid import UUID

from django.http import Http404, HttpRequest, JsonResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from pydantic import Field, create_model
from rest_framework.decorators import api_view, parser_classes
from rest_framework.exceptions import APIException, NotFound, PermissionDenied, ValidationError
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView, exception_handler

from evaluators.scoring.types import DomainError
from runs.api.bodies import (
    MAX_ERRORS,
    Body,
    NoBody,
    UnusableBodyError,
    many_errors,
    pointer,
    read_body,
)
from runs.api.params import NoParams, QueryParams, list_params
from runs.api.safe_changes import IDEMPOTENCY_KEY, IF_MATCH, once
from runs.documents import Document
from runs.exports.documents import ExportDoc
from runs.exports.specs import MEDIA_TYPES
from runs.filters.language import FilterError
from runs.lists import ListQuery
from runs.running.pushing import UnusablePushesError
from runs.specs.problems import MAX_MESSAGE_LENGTH, MAX_SHOWN, Problem

PROBLEM = "application/problem+json"
# The API, and where OpenTelemetry's exporters send traces.
ROOTS = ("/api/", "/v1/")
NOTHING_HERE = "There is nothing at this address."


class ProblemDoc(Document):
    """What went wrong (RFC 9457)."""

    type: str = "about:blank"
    """Always about:blank: the status says which kind of problem it is."""
    title: str
    """The name of the status."""
    status: int
    """The HTTP status."""
    detail: str
    """What went wrong in this request."""
    instance: str
    """The path of the request."""
    code: str = Field(default="", exclude_if=lambda code: not code)
    """Which refusal it is, for programs: run_not_active; only where the site has a name for it."""
    errors: dict[str, list[str]] = Field(default={}, exclude_if=lambda errors: not errors)
    """The errors of each parameter, or of each place in the body by its JSON pointer; only with status 400."""


# The first problems of a file, each with a place and a remedy.
MAX_DETAIL_LENGTH = MAX_SHOWN * MAX_MESSAGE_LENGTH


class CannotBeAnswered(APIException):
    """The site is in a state in which it cannot do or show what was requested."""

    status_code = HTTPStatus.CONFLICT

    def __init__(self, detail: str, code: str = "") -> None:
        """Say why; `code` is the refusal's name for programs."""
        super().__init__(detail)
        self.refusal = code


def problem_response(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """Return the answer to an error; None for an unexpected one."""
    if isinstance(error, FilterError):
        error = ValidationError({"filter": [str(error)]})
    if isinstance(error, UnusablePushesError):
        texts = {pointer(error.field, place): [text] for place, text in error.problems.items()}
        error = UnusableBodyError(texts)
    if isinstance(error, UnusableBodyError):
        error = ValidationError({place or "/": texts for place, texts in error.errors.items()})
    if isinstance(error, DomainError):
        error = CannotBeAnswered(str(error), error.code)
    if isinstance(error, Http404):
        # Django's message for a missing object names classes.
        error = NotFound(NOTHING_HERE)
    response = exception_handler(error, dict(context))
    if response is None:
        return None
    errors = _errors(response.data)
    response.data = problem(
        response.status_code,
        _detail(errors) if errors else str(response.data["detail"])[:MAX_DETAIL_LENGTH],
        context["request"].path,
        code=getattr(error, "refusal", ""),
        errors=errors,
    )
    response.content_type = PROBLEM
    return response


def problem(
    status: int,
    detail: str,
    path: str,
    *,
    code: str = "",
    errors: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """Return problem details as JSON values."""
    return ProblemDoc(
        code=code,
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        instance=path,
        errors=errors or {},
    ).as_json()


def problem_page(request: HttpRequest, status: int, detail: str) -> JsonResponse:
    """Return problem details for a request that is refused before it reaches the API."""
    document = problem(status, detail, request.path)
    return JsonResponse(document, status=status, content_type=PROBLEM)


def is_for_api(request: HttpRequest) -> bool:
    """Tell whether a request is for the API, whose clients cannot read HTML."""
    return request.path_info.startswith(ROOTS)


def _errors(data: Any) -> dict[str, list[str]]:
    """Return the errors of each parameter, with long ones cut; none if the error is a single sentence."""
    if not isinstance(data, Mapping) or set(data) == {"detail"}:
        return {}
    if len(data) > MAX_ERRORS:
        return {"/": [many_errors(len(data))]}
    errors: dict[str, list[str]] = {}
    for name, texts in data.items():
        for text in texts if isinstance(texts, list) else [texts]:
            cut = Problem(str(text), key=name)
            errors.setdefault(cut.key, []).append(cut.message)
    return errors


def _detail(errors: Mapping[str, Sequence[str]]) -> str:
    """Return the first errors as one text."""
    first = [f"{name}: {' '.join(texts)}" for name, texts in islice(errors.items(), MAX_SHOWN)]
    more = len(errors) - MAX_SHOWN
    return "; ".join([*first, *([f"and {more:,} more"] if more > 0 else [])])


View = Callable[..., Any]
SLUG = OpenApiParameter("slug", str, "path", description="The short name of a suite.")
RUN = OpenApiParameter(
    "run",
    str,
    "path",
    description="The id of a run, or its suite and number: support-agent:12; also support-agent:latest and "
    "support-agent:baseline.",
)
KEY = OpenApiParameter("key", str, "path", description="The key of a case.")
NUMBER = OpenApiParameter("number", int, "path", description="The number of a version.")
EXPORT = OpenApiParameter("export", UUID, "path", description="The id of an export.")
RESULT = OpenApiParameter("result", int, "path", description="The id of a result.")
CAMPAIGN = OpenApiParameter("campaign", int, "path", description="The id of a campaign.")
# What a role or a token must allow, and how a refusal puts it.
CHANGES: Mapping[str, str] = {
    "runs.start_run": "start and stop runs",
    "runs.change_suite": "change suites",
    "runs.change_target": "change targets",
    "runs.review_result": "review results",
    "runs.share": "share snapshots",
    "evaluators.change_languagemodel": "change language models",
}
REFUSALS: Mapping[int, str] = {
    400: "A parameter, or a place in the body, is wrong; errors says which.",
    401: "There is no token and no session, or the token is wrong, expired or revoked.",
    403: "The role of the member or the scopes of the token do not allow it.",
    404: "It does not exist.",
    409: "The state of the site does not allow it; detail and code say why.",
    429: "More requests, or more wrong tokens, than a minute allows; Retry-After says when to try again.",
}

CHANGED = "Another member has changed it since; detail says who."
KEY_REUSED = "The key was used for another request."


def reads(
    summary: str,
    answer: type[Document],
    *,
    params: type[QueryParams] = NoParams,
    lists: type[ListQuery] | None = None,
    path: Sequence[OpenApiParameter] = (),
    tag: str,
) -> Callable[[View], View]:
    """Make a function a call of the API for GET, described by its docstring.

    With `lists` it answers one page of the documents that match the query.
    """
    body = _page_model(answer) if lists else answer
    read = list_params(lists) if lists else params  # type: ignore[arg-type]  # a class is hashable
    answers = {200: OpenApiResponse(body, description="Found.")}
    return partial(_api_call, summary, answers, params=read, path=path, tag=tag)


def writes(
    summary: str,
    answer: type[Document] | None,
    *,
    body: type[Body] = NoBody,
    parsers: Sequence[type[BaseParser]] = (),
    permission: str = "",
    path: Sequence[OpenApiParameter] = (),
    tag: str,
    method: str = "POST",
    status: int = HTTPStatus.OK,
) -> Callable[[View], View]:
    """Make a function a call of the API that changes something, described by its docstring.

    It takes the request and the body, if it has one, and returns its answer, None for none. With `parsers` the
    body is a file that it reads itself. A key of a POST makes it safe to repeat (`runs.api.safe_changes`).
    """
    answers = {int(status): OpenApiResponse(answer, description="Done.")}

    def make(view: View) -> View:
        @wraps(view)
        def call(request: Request, **place: Any) -> Response:
            check_permission(request, permission)
            NoParams.read(request)
            sent = None if body is NoBody else request.data
            bodies = () if body is NoBody else (read_body(body, sent),)

            def perform() -> Response:
                document = view(request, *bodies, **place)
                return Response(document.as_json() if document else None, status=status)

            try:
                return once(request, perform) if method == "POST" else perform()
            finally:
                # The request refers to itself, and would hold its body until garbage is collected.
                if isinstance(sent, dict):
                    sent.clear()

        keys = [IDEMPOTENCY_KEY] if method == "POST" else []
        refusals = {422: KEY_REUSED} if method == "POST" else {}
        if IF_MATCH in path:
            refusals[412] = CHANGED
        return _api_call(
            summary,
            answers,
            parser_classes(parsers)(call) if parsers else call,
            path=[*path, *keys],
            tag=tag,
            method=method,
            refusals=refusals,
            request={
                parser.media_type: OpenApiTypes.OBJECT
                if parser.media_type == "application/json"
                else OpenApiTypes.BINARY
                for parser in parsers
            }
            if parsers
            else None
            if body is NoBody
            else body,
        )

    return make


def check_permission(request: Request, permission: str) -> None:
    """Raise PermissionDenied unless both the member and the token have a permission; "" for none."""
    grant: Any = request.auth
    if permission and not request.user.has_perm(permission):
        raise PermissionDenied(
            f"Your role may not {CHANGES[permission]}. An admin can change your role."
        )
    if permission and grant is not None and not grant.allows(permission):
        raise PermissionDenied(
            f"The scopes of this token ({grant.token.scopes}) do not let it {CHANGES[permission]}. "
            "Make one with the scope you need under “API tokens”."
        )


class CallsByMethod(APIView):
    """One address with several calls; each method keeps the parsers of its own."""

    calls: ClassVar[Mapping[str, type[APIView]]] = {}

    def get_parsers(self) -> list[BaseParser]:
        """Return the parsers of the method of this request."""
        # The schema is described without a request.
        method = str(getattr(self.request, "method", "")).lower()
        call = self.calls.get(method, type(self))
        return [parser() for parser in call.parser_classes]


def by_method(**calls: View) -> View:
    """Return one view for an address, which answers each HTTP method by its own call."""
    classes = {method: call.cls for method, call in calls.items()}  # type: ignore[attr-defined]  # api_view sets it
    handlers = {method: getattr(call, method) for method, call in classes.items()}
    view: type[APIView] = type("Calls", (CallsByMethod,), {**handlers, "calls": classes})
    return view.as_view()


def sends(
    summary: str,
    *endings: str,
    params: type[QueryParams] = NoParams,
    path: Sequence[OpenApiParameter] = (),
) -> Callable[[View], View]:
    """Make a function a call of the API that answers a file, or how far the making of a large one is.

    `endings` are those of the names that the file can have, by default any.
    """
    answers: dict[Any, OpenApiResponse] = {
        (200, MEDIA_TYPES[ending].partition(";")[0]): OpenApiResponse(
            OpenApiTypes.BINARY, description="The file."
        )
        for ending in endings or MEDIA_TYPES
    }
    answers[202] = OpenApiResponse(ExportDoc, description=PREPARED)
    return partial(_api_call, summary, answers, params=params, path=path, tag="files")


def _api_call(
    summary: str,
    answers: Mapping[Any, OpenApiResponse],
    view: View,
    *,
    params: type[QueryParams] = NoParams,
    path: Sequence[OpenApiParameter],
    tag: str,
    method: str = "GET",
    request: Any = None,
    refusals: Mapping[int, str] = MappingProxyType({}),
) -> View:
    problems = {
        (status, PROBLEM): OpenApiResponse(ProblemDoc, description=text)
        for status, text in {**REFUSALS, **refusals}.items()
    }
    described = extend_schema(
        operation_id=view.__name__,
        summary=summary,
        description=view.__doc__,
        parameters=[*path, *([] if params is NoParams else [params])],
        request=request,
        responses={**answers, **problems},
        tags=[tag],
    )
    call: View = described(api_view([method])(view))
    return call


PREPARED = (
    "The file is large, so a worker prepares it. Location is the address of its state: poll it until the "
    "file is ready, or repeat this request."
)


def _page_model(answer: type[Document]) -> type[Document]:
    fields: dict[str, Any] = {
        "next": (str | None, Field(description="Where the next page is; null on the last one.")),
        "results": (list[answer], Field(description="The rows of this page.")),  # type: ignore[valid-type]  # a model made at run time
    }
    return create_model(
        f"{answer.__name__}List", __base__=Document, __doc__="One page of many.", **fields
    )
