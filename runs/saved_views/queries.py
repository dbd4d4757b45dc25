"""The saved views that a member sees: in the menu beside a table, on the page of a suite, and as the default."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from django.urls import reverse

from runs import lists
from runs.lists import NUL, ListQuery, read_integer
from runs.models.runs import Run
from runs.models.saved_views import SavedView, ViewPage
from runs.models.suites import Suite
from runs.requests import PairQuery
from runs.saved_views.services import may_change

VIEW = "view"
# In place of the number of a view: the plain table, where its page would open a default.
PLAIN = "all"
MAX_PARAMETERS = 40
# Where the table is on its page.
ANCHORS = {
    ViewPage.RESULTS: "#results-title",
    ViewPage.COMPARISON: "#cases-title",
    ViewPage.CASES: "#case-rows",
    ViewPage.RUNS: "#cases-title",
}


@dataclass(frozen=True, slots=True)
class PlaceQuery(PairQuery):
    """The page that views are shown on: `on` which kind, with its run, the two that it compares, or several."""

    on: str = lists.option(ViewPage.values, ViewPage.RESULTS)
    run: int | None = lists.integer(maximum=lists.MAX_RUN_NUMBER)
    runs: str = lists.setting(max_length=lists.MAX_RUN_NAMES_LENGTH)

    def path(self, suite: Suite) -> str:
        """Return the address of the page, up to the parameters of a view; without a run that of the last one."""
        if self.on == ViewPage.CASES:
            return reverse("runs:suite-cases", args=[suite.slug]) + "?"
        if self.on == ViewPage.RUNS:
            # Without names the page takes the newest runs.
            place = (
                {"runs": self.runs, "baseline": self.baseline}
                if self.runs
                else {"suite": suite.slug}
            )
            known = {name: value for name, value in place.items() if value}
            return f"{reverse('runs:compare-many')}?{urlencode(known, safe=':,')}&"
        is_pair = self.on == ViewPage.COMPARISON
        if is_pair and self.baseline and self.candidate:
            return self._comparison(**dict((*self.run_fields, *self.limits)))
        number = self.run
        if number is None:
            number = (
                Run.objects.filter(suite=suite)
                .order_by("-number")
                .values_list("number", flat=True)
                .first()
            )
        if number is None:
            return reverse("runs:suite", args=[suite.slug]) + "?"
        if is_pair:
            # The page finds what the last run is compared with.
            return self._comparison(candidate=f"{suite.slug}:{number}")
        return reverse("runs:run", args=[suite.slug, number]) + "?"

    @property
    def anchor(self) -> str:
        """Return the fragment of an address that scrolls to the table."""
        return ANCHORS[ViewPage(self.on)]

    def _comparison(self, **pair: str) -> str:
        return f"{reverse('runs:compare')}?{urlencode(pair, safe=':,')}&"


# What is no part of a view: which view it is, where its page is, and what forms send along.
PLACE = tuple(PlaceQuery.params())
OUTSIDE = (VIEW, "after", "page", "from", *PLACE)


def visible_views(member: User) -> QuerySet[SavedView]:
    """Return the views of a member, and those that others share."""
    return SavedView.objects.filter(Q(owner=member) | Q(is_shared=True))


@dataclass(frozen=True, slots=True)
class ViewsQuery(ListQuery):
    """Which views of a suite the API lists."""

    on: str = lists.choice(ViewPage.values, name="page", help="Only views of this page.")

    def views(self, suite: Suite, member: User) -> QuerySet[SavedView]:
        """Return the views that match and that a member sees; one query."""
        views = visible_views(member).filter(suite=suite)
        if self.on:
            views = views.filter(page=self.on)
        return views.select_related("suite", "owner")


def screen_query(parameters: Mapping[str, str]) -> str:
    """Return what a view keeps of the parameters of an address, as a query part in a fixed order."""
    kept = sorted(
        (name, value)
        for name, value in parameters.items()
        if value and name not in OUTSIDE and name.isidentifier() and NUL not in value
    )
    return urlencode(kept[:MAX_PARAMETERS], safe=":,")


def names_nothing(parameters: Iterable[str]) -> bool:
    """Tell whether an address has no parameters but those of its page, so that a default opens."""
    return set(parameters) <= set(PLACE)


def view_address(path: str, view: SavedView) -> str:
    """Return the address of a view on a page, which says everything that the view has."""
    return f"{path}{VIEW}={view.pk}{'&' if view.query else ''}{view.query}"


@dataclass(frozen=True, slots=True)
class ViewState:
    """What the address of a page says about views.

    `view` is the one that it names, from which the screen may differ; `is_gone` where there is no such view.
    `word` is what the page writes into its addresses for it. `menu_url` lists the views for this page,
    `default_url` is what opens without parameters, "" for the page itself.
    """

    view: SavedView | None
    is_modified: bool
    is_gone: bool
    word: str
    url: str
    menu_url: str
    default_url: str


def view_state(
    suite: Suite, place: PlaceQuery, parameters: Mapping[str, str], member: User
) -> ViewState:
    """Return the view that the parameters of a page name, and its default; one query."""
    asked = parameters.get(VIEW, "")
    number = read_integer(asked)
    defaults = Q(is_default=True) | Q(is_own_default=True, owner=member)
    visible = visible_views(member).filter(suite=suite, page=place.on)
    found = list(visible.filter(Q(pk=number) | defaults) if number else visible.filter(defaults))
    view = next((one for one in found if one.pk == number), None)
    own = [one for one in found if one.is_own_default and one.owner_id == member.pk]
    default = next(iter([*own, *(one for one in found if one.is_default)]), None)
    word = asked if view or asked == PLAIN else ""
    path = place.path(suite)
    return ViewState(
        view=view,
        is_modified=view is not None
        and screen_query(dict(parse_qsl(view.query))) != screen_query(parameters),
        is_gone=bool(asked) and not view and asked != PLAIN,
        word=word or (PLAIN if default else ""),
        url=view_address(path, view) if view else "",
        menu_url=place.at(reverse("runs:suite-views", args=[suite.slug])),
        default_url=view_address(path, default) if default else "",
    )


@dataclass(frozen=True, slots=True)
class ViewRow:
    """A view in a list, with its address, whether it is the member's own, and whether they may change it."""

    view: SavedView
    url: str
    is_own: bool
    may_change: bool


def view_rows(suite: Suite, place: PlaceQuery, member: User) -> Sequence[ViewRow]:
    """Return the views of a page that a member sees: the suite's default first, then by name; two queries at most."""
    path = place.path(suite)
    views = visible_views(member).filter(suite=suite, page=place.on)
    return [
        ViewRow(
            view, view_address(path, view), view.owner_id == member.pk, may_change(view, member)
        )
        for view in views.select_related("owner").order_by("-is_default", "name", "pk")
    ]
