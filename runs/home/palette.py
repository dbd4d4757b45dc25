"""What the command palette finds while words are typed into it: suites, runs, cases, targets and saved views."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Case as Choice
from django.db.models import (
    F,
    IntegerField,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    TextField,
    Value,
    When,
    Window,
)
from django.db.models.functions import Cast, Coalesce, Concat, Replace, RowNumber
from django.urls import reverse

from runs.home.search import RUN_NUMBER
from runs.lists import MAX_TEXT_LENGTH
from runs.models.runs import Run
from runs.models.suites import Case, Suite, Target
from runs.saved_views.queries import visible_views

MAX_PLACES, MAX_WORDS = 16, 8
# In the order in which the palette lists them, each with its address; `code` is a number, a key or an id.
ADDRESSES: Mapping[str, Callable[[str, str], str]] = {
    "Suite": lambda slug, code: reverse("runs:suite", args=[slug]),
    "Run": lambda slug, code: reverse("runs:run", args=[slug, code]),
    "Case": lambda slug, code: reverse("runs:case", args=[slug, code]),
    "Target": lambda slug, code: reverse("runs:target", args=[code]),
    "View": lambda slug, code: reverse("runs:saved-view", args=[slug, code]),
}
COLUMNS = ("type", "of_suite", "code", "label", "detail", "exact", "place")


def find_places(text: str, member: User) -> list[dict[str, str]]:
    """Return up to 16 places that have a word beginning with each word of the text, in one query.

    Each kind gets its share of them: first the case with exactly this key or the run with this number, then
    the most recent. Without words these are the suites and runs of late.
    """
    query = text.strip()[:MAX_TEXT_LENGTH]
    words = query.split()[:MAX_WORDS]
    kinds: list[QuerySet[Any]] = [_suites(), _runs(query)]
    if words:
        kinds += [_cases(query), _targets(), _views(member)]
    first, *others = [_matching(rows, words) for rows in kinds]
    found = first.union(*others, all=True).order_by("-exact", "place", "type")[:MAX_PLACES]
    kind_order = list(ADDRESSES)
    rows = sorted(found, key=lambda row: (-row["exact"], kind_order.index(row["type"])))
    return [
        {
            "kind": "Best match" if row["exact"] else f"{row['type']}s",
            "label": row["label"],
            "detail": row["detail"],
            "url": ADDRESSES[row["type"]](row["of_suite"], row["code"]),
        }
        for row in rows
    ]


def _matching(rows: QuerySet[Any], words: Sequence[str]) -> QuerySet[Any]:
    wanted = Q()
    for word in words:
        wanted &= Q(words__icontains=f" {word}")
    return rows.filter(wanted).order_by().values(*COLUMNS)


def _suites() -> QuerySet[Any]:
    last_run = Run.objects.filter(suite=OuterRef("pk")).order_by("-pk").values("created_at")[:1]
    return Suite.objects.filter(archived_at=None).annotate(
        **_columns("Suite", slug="slug", code="slug", label="title", detail=_fixed("")),
        words=_words("slug", _apart("slug"), "title"),
        exact=Value(0),
        place=_rank(Coalesce(Subquery(last_run), "created_at").desc()),
    )


def _runs(query: str) -> QuerySet[Any]:
    number = RUN_NUMBER.fullmatch(query)
    is_asked = Q(number=int(number[1])) if number else Q(pk=None)
    number_text = Concat(_fixed("#"), _text("number"))
    label = Concat(number_text, _fixed(" "), _text("suite__title"))
    return Run.objects.filter(suite__archived_at=None).annotate(
        **_columns("Run", slug="suite__slug", code="number", label=label, detail="target_name"),
        words=_words(
            *(number_text, "number", "suite__slug", _apart("suite__slug"), "suite__title"),
            *("target_name", "note"),
        ),
        exact=_exact(is_asked),
        place=_rank(_exact(is_asked).desc(), F("pk").desc()),
    )


def _cases(query: str) -> QuerySet[Any]:
    is_asked = Q(key__iexact=query)
    label = Concat(_text("key"), _fixed(" "), _text("title"))
    return Case.objects.filter(is_current=True, suite__archived_at=None).annotate(
        **_columns("Case", slug="suite__slug", code="key", label=label, detail="suite__title"),
        words=_words("key", _apart("key"), "title", "suite__slug", "suite__title"),
        exact=_exact(is_asked),
        place=_rank(_exact(is_asked).desc(), F("suite_id").desc(), F("position").asc()),
    )


def _targets() -> QuerySet[Any]:
    return Target.objects.filter(archived_at=None).annotate(
        **_columns("Target", slug=_fixed(""), code="pk", label="name", detail=_fixed("")),
        words=_words("name", _apart("name")),
        exact=Value(0),
        place=_rank(F("pk").desc()),
    )


def _views(member: User) -> QuerySet[Any]:
    return (
        visible_views(member)
        .filter(suite__archived_at=None)
        .annotate(
            **_columns("View", slug="suite__slug", code="pk", label="name", detail="suite__title"),
            words=_words("name", _apart("name"), "suite__slug", "suite__title"),
            exact=Value(0),
            place=_rank(F("changed_at").desc(), F("pk").desc()),
        )
    )


def _columns(kind: str, *, slug: Any, code: Any, label: Any, detail: Any) -> dict[str, Any]:
    columns = {"of_suite": slug, "code": code, "label": label, "detail": detail}
    texts = {name: _text(column) for name, column in columns.items()}
    return {"type": _fixed(kind), **texts}


def _fixed(text: str) -> Value:
    return Value(text, output_field=TextField())


def _text(column: Any) -> Cast:
    return Cast(column, TextField())


def _words(*columns: Any) -> Concat:
    """Join texts so that a space precedes every word."""
    return Concat(*(part for column in columns for part in (_fixed(" "), _text(column))))


def _apart(column: str) -> Replace:
    """Write the parts of a name such as `support-agent` as words."""
    return Replace(_text(column), _fixed("-"), _fixed(" "))


def _exact(condition: Q) -> Choice:
    return Choice(When(condition, then=Value(1)), default=Value(0), output_field=IntegerField())


def _rank(*order: Any) -> Window:
    return Window(RowNumber(), order_by=order)
