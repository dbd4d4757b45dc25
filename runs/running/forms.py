"""The form that starts runs of a suite: targets, cases, repetitions, judge and budget."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from itertools import islice
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib.auth.models import User
from django.db.models import Avg, Count, Exists, OuterRef, Q, QuerySet
from django.http import QueryDict

from evaluators.detours import ADD_MODEL, AddPage, offer
from evaluators.kinds import all_kinds
from evaluators.kinds._judging import MAX_SAMPLES
from evaluators.models import LanguageModel
from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import duration, pct
from runs.engine.plan import (
    ASKED,
    BASELINE,
    CHANGED,
    JUDGED_AGAIN,
    baseline_paths,
    read_plan,
)
from runs.filters.language import FilterError
from runs.filters.queries import ResultsQuery, in_state, matching_cases
from runs.lists import MAX_OPTIONS, read_integer
from runs.models.results import Result, ResultStatus
from runs.models.runs import RESCORED, Run
from runs.models.suites import Case, Suite, Target
from runs.requests import BudgetField
from runs.running.baselines import baseline_choices, baseline_run
from runs.running.estimate import (
    ENDED,
    CaseChoice,
    Estimate,
    EstimateRequest,
    estimate,
    recorded_counts,
)
from runs.running.retry_forms import RunRetryForm
from runs.running.rule_fields import RunRulesFields
from runs.running.rules import SAMPLES, AppliedRules, RunRules, apply_rules, with_own_samples
from runs.running.services import check_start, start_campaign
from runs.specs.suites import MAX_MINUTES, MINUTE_MS
from runs.suites.differences import METRIC
from runs.target_kinds import target_kinds

MAX_SHOWN = 50
MAX_QUERY_LENGTH = 200
PASSED = "pass"


@dataclass(frozen=True, slots=True)
class CaseOption:
    """A case to pick."""

    key: str
    title: str
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class CasePick:
    """The cases to pick from, chosen ones first; `others` are chosen keys that are not shown.

    `matching` of `total` cases have the text of the query in key or title.
    """

    options: Sequence[CaseOption]
    others: Sequence[str]
    text: str
    matching: int
    total: int


def case_pick(suite: Suite, text: str, chosen: Collection[str]) -> CasePick:
    """Return the cases that a search finds among the suite's; one query."""
    text = text.strip()[:MAX_QUERY_LENGTH]
    rows = list(_current(suite).values_list("key", "title"))
    sought = text.casefold()
    fitting = [row for row in rows if sought in f"{row[0]} {row[1]}".casefold()]
    wanted = set(chosen)
    # Ticked cases stay visible during another search.
    ticked = [row for row in rows if row[0] in wanted][:MAX_SHOWN]
    shown = ticked + [row for row in fitting if row[0] not in wanted][:MAX_SHOWN]
    listed = {key for key, _ in ticked}
    return CasePick(
        options=[CaseOption(key, title, key in listed) for key, title in shown],
        others=[key for key in chosen if key not in listed],
        text=text,
        matching=len(fitting),
        total=len(rows),
    )


def outcomes_by_key(suite: Suite) -> dict[str, bool]:
    """Return the keys of the current cases in order, and whether they have expected outcomes."""
    return {
        key: bool(outcomes)
        for key, outcomes in _current(suite).values_list("key", "expected_outcomes")
    }


def last_ended_run(suite: Suite) -> Run | None:
    """Return the newest run that has ended with results, without its long columns."""
    ended = suite.runs.filter(status__in=ENDED, done_count__gt=0, source_run=None)
    return ended.defer("snapshot", "summary", "leaf_scores").order_by("-number").first()


def case_keys_not_passed(run: Run) -> list[str]:
    """Return the keys of the cases with a repetition that failed, was borderline or errored."""
    scored = Q(status=ResultStatus.SCORED) & ~Q(verdict=PASSED)
    results = run.results.filter(scored | Q(status=ResultStatus.ERROR)).order_by("position")
    return list(dict.fromkeys(results.values_list("case__key", flat=True)))


def run_case_keys(run: Run) -> list[str]:
    """Return the keys of the cases of a run."""
    results = run.results.filter(repetition=1).order_by("position")
    return list(dict.fromkeys(results.values_list("case__key", flat=True)))


def _current(suite: Suite) -> QuerySet[Case]:
    return suite.cases.filter(is_current=True).order_by("position", "id")


@dataclass(frozen=True, slots=True)
class UnavailableTarget:
    """A requested target that cannot run: archived, or deleted with `pk` None and no name."""

    pk: int | None
    name: str


@dataclass(frozen=True, slots=True)
class TargetOption:
    """A target to choose, with figures of its last run of this suite.

    `recorded` counts the suite's `cases` for which it has an output, None where it answers by itself.
    """

    pk: int
    name: str
    kind_label: str
    model: str
    description: str
    last_number: int | None
    last_share: float | None
    is_live: bool
    mean_cost_usd: Decimal | None
    mean_latency_ms: float | None
    recorded: int | None
    cases: int
    ran_elsewhere: bool

    @property
    def fits(self) -> bool:
        """Tell whether a target belongs to this suite: it ran on it, or on none yet and could run on this one."""
        can_run = self.recorded is None or self.recorded > 0
        return self.last_number is not None or (can_run and not self.ran_elsewhere)

    @property
    def chosen_as(self) -> str:
        """Return the value a form sends for this target."""
        return str(self.pk)

    @property
    def past(self) -> str:
        """Return recorded outputs and the last run of this suite in words."""
        stored = "" if self.recorded is None else f"{self.recorded} of {self.cases} cases recorded"
        if self.last_number is None:
            return "; ".join(filter(None, (stored, "never run on this suite")))
        parts = [f"last run #{self.last_number}"]
        if self.is_live:
            parts.append("live")
        elif self.last_share is not None:
            parts.append(f"{pct(self.last_share)} passed")
        if self.mean_latency_ms is not None:
            parts.append(f"{duration(self.mean_latency_ms)} mean")
        return "; ".join(filter(None, (stored, ", ".join(parts))))


@dataclass(frozen=True, slots=True)
class SuiteChoice:
    """A suite to run."""

    slug: str
    title: str
    description: str
    cases: int
    last_number: int | None
    last_at: datetime | None


def suite_choices() -> tuple[SuiteChoice, ...]:
    """Return the suites that can be run, with their number of cases and their last run."""
    suites = Suite.objects.filter(archived_at=None)
    counted = suites.annotate(case_total=Count("cases", filter=Q(cases__is_current=True)))
    last = {run.suite_id: run for run in _last_runs(Run.objects.all(), "suite")}
    return tuple(
        SuiteChoice(
            suite.slug,
            suite.title,
            suite.description,
            suite.case_total,
            last[suite.pk].number if suite.pk in last else None,
            last[suite.pk].created_at if suite.pk in last else None,
        )
        for suite in counted
    )


def target_options(suite: Suite) -> tuple[TargetOption, ...]:
    """Return every target with its last run of this suite in a constant number of queries.

    First come those that ran this suite, latest first, then those that never ran, then the others.
    """
    runs = Run.objects.filter(target=OuterRef("pk"), source_run=None)
    targets = list(
        Target.objects.filter(archived_at=None)
        .annotate(ran_somewhere=Exists(runs))
        .select_related("model")
    )
    last = {run.target_id: run for run in _last_runs(suite.runs.filter(source_run=None), "target")}
    means = {
        row["run"]: row
        for row in Result.objects.filter(run__in=[run.pk for run in last.values()])
        .order_by()
        .values("run")
        .annotate(latency=Avg("latency_ms"), cost=Avg("run_cost_usd"))
    }
    recorded = recorded_counts(suite, targets)
    cases = suite.cases.filter(is_current=True).count()
    # The sort is stable, so equal targets stay in the order of names.
    targets.sort(
        key=lambda target: (
            (0, -last[target.pk].pk) if target.pk in last else (1, target.ran_somewhere)
        )
    )
    return tuple(
        _option(target, last.get(target.pk), means, recorded.get(target.pk), cases)
        for target in targets
    )


def _last_runs(runs: QuerySet[Run], of: str) -> QuerySet[Run]:
    later = runs.filter(**{of: OuterRef(of)}).filter(pk__gt=OuterRef("pk"))
    return runs.filter(~Exists(later)).defer("snapshot", "leaf_scores")


def _option(
    target: Target,
    run: Run | None,
    means: Mapping[int, Mapping[str, Any]],
    recorded: int | None,
    cases: int,
) -> TargetOption:
    mean = means.get(run.pk, {}) if run else {}
    kind = target_kinds().get(target.kind)
    return TargetOption(
        pk=target.pk,
        name=target.name,
        kind_label=kind.label if kind else target.kind,
        model=target.model.name if target.model else "",
        description=target.description,
        last_number=run.number if run else None,
        last_share=run.pass_count / run.done_count if run and run.done_count else None,
        is_live=bool(run and run.is_active),
        mean_cost_usd=mean.get("cost"),
        mean_latency_ms=mean.get("latency"),
        recorded=recorded,
        cases=cases,
        ran_elsewhere=vars(target)["ran_somewhere"] and run is None,
    )


def unavailable_targets(ids: Collection[str]) -> tuple[UnavailableTarget, ...]:
    """Return the targets that cannot run, of those whose ids an address names."""
    numbers = {number for number in map(read_integer, ids) if number is not None}
    known = Target.objects.filter(pk__in=numbers).in_bulk()
    archived = [target for target in known.values() if target.archived_at is not None]
    gone = len(ids) - len(known)
    return (
        *(UnavailableTarget(target.pk, target.name) for target in archived),
        *[UnavailableTarget(None, "")] * min(gone, 1),
    )


# An address can have several of these.
SEVERAL = ("target", "tag", "case")
ADD_TARGET = AddPage("runs:target-new", "Add a target", "runs.change_target")
CHOSEN = "chosen"
FILTERED = "filtered"


def _listed_keys(run: Run, query: ResultsQuery) -> list[str]:
    """Return the keys of the cases of a list; none for a filter that cannot be read."""
    try:
        cases = in_state(matching_cases(run, query), query)
    except FilterError:
        return []
    return list(cases.order_by("case__position").values_list("case__key", flat=True))


def read_address(suite: Suite, parameters: QueryDict) -> tuple[dict[str, Any], RunRules]:
    """Return the initial values of the form, and the rules that the run changes.

    `again` is the number of a run whose choices are all taken over. What the address names itself
    takes precedence.
    """
    several = {name: parameters.getlist(name) for name in SEVERAL if name in parameters}
    named: dict[str, Any] = {**parameters.dict(), **several}
    run = _run(suite, named.get("again", ""))
    before = {} if run is None else form_values(run)
    if run is not None and FILTERED in named:
        query = ResultsQuery.read({name: str(parameters[name]) for name in parameters})
        several["case"] = named["case"] = _listed_keys(run, query)
    if "case" in several:
        before.pop("tag", None)
        named.setdefault("cases", CHOSEN)
    if "tag" in several:
        before.pop("keys", None)
    return before | named, RunRules() if run is None else changed_rules(run)


def start_address(form: RunRetryForm) -> str:
    """Return the address parameters that fill the start form with the chosen rows of a run.

    All rows of a filter are given by the filter, since their keys can be too long for an address.
    """
    again = {"again": form.run.number}
    if form.cleaned_data["everything"]:
        return urlencode({**again, FILTERED: 1, **form.query.parameters()})
    keys = dict.fromkeys(
        form.named_results().order_by("position").values_list("case__key", flat=True)
    )
    return urlencode({**again, "case": list(keys)}, doseq=True)


def form_values(run: Run) -> dict[str, Any]:
    """Return the values of the start form that would repeat a run."""
    request = run.snapshot.get(ASKED) or {}
    judge = (run.snapshot.get("judge") or {}).get("slug", "")
    values: dict[str, Any] = {
        "repetitions": run.repetitions,
        "concurrency": run.concurrency,
        "note": run.note,
        "target": [str(run.target_id)] if run.target_id else [],
        "samples": request.get(SAMPLES),
        "baseline": request.get(BASELINE, ""),
    }
    if model := LanguageModel.objects.filter(slug=judge).first():
        values["judge"] = model.pk
    if run.budget_usd is not None:
        values["budget"] = f"{run.budget_usd.normalize():f}"
    if run.max_minutes != run.suite.max_minutes:
        values["minutes"] = run.max_minutes
    if request.get("cases") == CHOSEN:
        values |= {"cases": CHOSEN, "keys": "\n".join(run_case_keys(run))}
    elif request.get("tags"):
        values["tag"] = request["tags"]
    return values


def changed_rules(run: Run) -> RunRules:
    """Return the rules that a run changed, without samples."""
    policy: dict[str, Any] = {}
    by_name: dict[str, dict[str, Any]] = {"weight": {}, "required": {}}
    metrics: dict[str, dict[str, float | None]] = {}
    for change in run.snapshot.get(CHANGED) or ():
        if change["evaluator"] is None:
            policy[change["name"]] = change["new"]
        elif change["name"] in by_name:
            by_name[change["name"]][change["evaluator"]] = change["new"]
        elif change["name"].startswith(METRIC):
            key = change["name"].removeprefix(METRIC)
            metrics.setdefault(change["evaluator"], {})[key] = change["new"]
    return RunRules(policy, by_name["weight"], by_name["required"], metrics=metrics)


def dropped_rules_text(suite: Suite, parameters: QueryDict) -> str:
    """Return a sentence about rules of the repeated run that are not taken over, "" without any.

    A rescored run and one that judges stored outputs may have the rules of a draft.
    """
    run = _run(suite, parameters.get("again", ""))
    if run is None:
        return ""
    if source := run.snapshot.get(RESCORED):
        what = f"was rescored from run #{source['run']}"
    elif source := run.snapshot.get(JUDGED_AGAIN):
        what = f"judged the outputs of run #{source['run']} again"
    else:
        return ""
    if _goes_by(suite, run.snapshot):
        return ""
    return (
        f"Run #{run.number} {what} with other rules"
        f"{f', {run.note}' if run.note else ''}. Those rules do not apply here. The new run uses the suite "
        f"as it is, v{suite.version}, with the changes you make here."
    )


def _goes_by(suite: Suite, snapshot: Mapping[str, Any]) -> bool:
    """Tell whether the suite now has the rules of a snapshot, except for the run's own samples."""
    spec = suite.spec
    plan = read_plan(snapshot)
    now = with_own_samples(spec.evaluators, None, snapshot)
    return (plan.root.as_json(), plan.policy) == (now.as_json(), spec.policy)


def _run(suite: Suite, number: Any) -> Run | None:
    return (
        suite.runs.filter(number=read_integer(str(number)) or 0)
        .defer("summary", "leaf_scores")
        .first()
    )


ALL, BY_TAG, FAILED = "all", "tag", "failed:"
MAX_SHOWN_LENGTH = 60
MAX_KEYS_LENGTH = 4_000_000


class CaseChoiceForm(forms.Form):
    """The choice of cases; `case` are ticked keys, `keys` has others, one a line."""

    data: QueryDict

    cases = forms.ChoiceField(label="Cases")
    tag = forms.MultipleChoiceField(required=False, label="Tags")
    keys = forms.CharField(
        required=False,
        max_length=MAX_KEYS_LENGTH,
        label="Other keys",
        help_text="One case key per line, in addition to the ticked cases",
        widget=forms.Textarea(attrs={"rows": 3, "data-code": True, "spellcheck": "false"}),
    )

    def __init__(self, suite: Suite, *args: Any, **options: Any) -> None:
        """Offer the cases and tags of the suite."""
        super().__init__(*args, **options)
        self.suite = suite
        choices = [(tag, f"{tag} ({count})") for tag, count in self.tags.items()]
        total = sum(count for _, count, _ in self._by_tags)
        self.fields["tag"] = forms.MultipleChoiceField(choices=choices, required=False)
        self.fields["cases"] = forms.ChoiceField(
            choices=[
                (ALL, f"All {total}"),
                *(
                    (f"{FAILED}{run.number}", f"Not passed in {run} ({len(keys)})")
                    for run, keys in self._not_passed.values()
                    if keys
                ),
                *([(BY_TAG, "By tag")] if choices else ()),
                (CHOSEN, "Chosen cases"),
            ],
        )
        by_tag, by_key = self.initial.get("tag"), self.initial.get("keys")
        usual = BY_TAG if by_tag else CHOSEN if by_key else ALL
        self.initial.setdefault("cases", usual)

    @cached_property
    def tags(self) -> dict[str, int]:
        """Return the tags of the suite's cases with their counts, most frequent first."""
        counts: Counter[str] = Counter()
        for tags, total, _ in self._by_tags:
            counts.update(dict.fromkeys(tags, total))
        return dict(counts.most_common())

    @property
    def listed_tags(self) -> dict[str, int]:
        """Return the most frequent tags, and the ticked ones, with their counts."""
        listed = dict(islice(self.tags.items(), MAX_OPTIONS))
        return listed | {tag: self.tags[tag] for tag in self.chosen_tags & self.tags.keys()}

    @cached_property
    def chosen_tags(self) -> set[str]:
        """Return the tags that are ticked."""
        return set(self._list("tag"))

    @cached_property
    def chosen_keys(self) -> tuple[str, ...]:
        """Return the ticked and written keys, each once."""
        written = str(self["keys"].value() or "").splitlines()
        keys = [*self._list("case"), *(line.strip() for line in written)]
        return tuple(dict.fromkeys(key for key in keys if key))

    @cached_property
    def pick(self) -> CasePick:
        """Return the cases to pick from."""
        text = self.data.get("sought", "") if self.is_bound else self.initial.get("sought", "")
        return case_pick(self.suite, str(text), self.chosen_keys)

    @property
    def has_cases(self) -> bool:
        """Tell whether the suite has a case."""
        return bool(self._by_tags)

    @property
    def choice(self) -> str:
        """Return the value of `cases`."""
        return str(self["cases"].value())

    def clean(self) -> dict[str, Any]:
        """Refuse an empty choice and unknown keys."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if self.choice == BY_TAG and not cleaned.get("tag") and "tag" not in self.errors:
            self.add_error("tag", "Tick at least one tag, or choose all cases.")
        if self.choice == CHOSEN and "keys" not in self.errors:
            self._check_keys()
        if not self.has_cases:
            self.add_error(None, f"{self.suite.title} has no cases yet. Import some first.")
        return cleaned

    def wanted_tags(self) -> list[str] | None:
        """Return the tags that choose the cases, None unless tags choose them."""
        return sorted(self.chosen_tags) if self.choice == BY_TAG else None

    @cached_property
    def wanted_keys(self) -> list[str] | None:
        """Return the chosen keys that the suite has, None unless keys choose the cases."""
        if self.choice == CHOSEN:
            return [key for key in self.chosen_keys if key in self._outcomes]
        if self.choice.startswith(FAILED):
            run_keys = self._not_passed.get(self.choice.removeprefix(FAILED))
            return [key for key in (run_keys[1] if run_keys else ()) if key in self._outcomes]
        return None

    @property
    def counts(self) -> tuple[int, int]:
        """Return the numbers of chosen cases and of those with expected outcomes."""
        if (keys := self.wanted_keys) is not None:
            return len(keys), sum(self._outcomes[key] for key in keys)
        wanted = set(self.wanted_tags() or ())
        rows = [row for row in self._by_tags if not wanted or wanted & set(row[0])]
        return sum(total for _, total, _ in rows), sum(outcomes for *_, outcomes in rows)

    def _check_keys(self) -> None:
        unknown = [key for key in self.chosen_keys if key not in self._outcomes]
        if unknown:
            more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            self.add_error(
                "keys", f"{self.suite.title} has no case “{unknown[0][:MAX_SHOWN_LENGTH]}”{more}."
            )
        elif not self.chosen_keys:
            self.add_error("keys", "Tick or name at least one case, or choose all cases.")

    def _list(self, name: str) -> list[str]:
        """Return the values of a name that the form may contain several times."""
        if self.is_bound:
            return [str(value) for value in self.data.getlist(name)]
        initial = self.initial.get(name) or []
        return [str(initial)] if isinstance(initial, str) else [str(value) for value in initial]

    @cached_property
    def _not_passed(self) -> dict[str, tuple[Run, list[str]]]:
        """Return the cases not passed in the last run and in the requested one, by run number."""
        runs = [last_ended_run(self.suite)]
        cases = str(self.data.get("cases", "") if self.is_bound else self.initial.get("cases", ""))
        if cases.startswith(FAILED) and (number := read_integer(cases.removeprefix(FAILED))):
            named = self.suite.runs.filter(number=number, status__in=ENDED)
            runs.append(named.defer("snapshot", "summary", "leaf_scores").first())
        return {
            str(run.number): (run, case_keys_not_passed(run)) for run in runs if run is not None
        }

    @cached_property
    def _outcomes(self) -> dict[str, bool]:
        return outcomes_by_key(self.suite)

    @cached_property
    def _by_tags(self) -> list[tuple[list[str], int, int]]:
        """Return each list of tags with its number of current cases, and of those with outcomes."""
        rows = Case.objects.filter(suite=self.suite, is_current=True).order_by().values("tags")
        counted = rows.annotate(
            total=Count("id"), with_outcomes=Count("id", filter=~Q(expected_outcomes=[]))
        )
        return list(counted.values_list("tags", "total", "with_outcomes"))


MAX_REPETITIONS = 100
MAX_AT_ONCE = 200


class TargetsField(forms.ModelMultipleChoiceField):  # type: ignore[type-arg]  # not generic at run time
    """Targets by their ids; an id that is too large for a column is a wrong choice too."""

    def clean(self, value: Any) -> Any:
        """Return the targets."""
        for pk in value or ():
            if read_integer(str(pk)) is None:
                raise forms.ValidationError("Tick targets that are listed.", code="invalid_choice")
        return super().clean(value)


class StartRunForm(CaseChoiceForm):
    """One run for each ticked target, all with the same cases, judge, rules and limits."""

    target = TargetsField(
        Target.objects.filter(archived_at=None),
        label="Targets",
        error_messages={"required": "Tick at least one target."},
    )
    repetitions = forms.IntegerField(
        min_value=1,
        max_value=MAX_REPETITIONS,
        initial=1,
        help_text="Runs each case this many times",
    )
    concurrency = forms.IntegerField(
        label="Parallel requests",
        min_value=1,
        max_value=MAX_AT_ONCE,
        initial=8,
        help_text="Per run, over all workers",
    )
    judge = forms.ModelChoiceField(
        LanguageModel.objects.all(), required=False, empty_label="None", label="Model"
    )
    samples = forms.IntegerField(
        label="Samples",
        required=False,
        min_value=1,
        max_value=MAX_SAMPLES,
        help_text="Judge calls per score. Leave empty to use the suite's setting. Evaluators that cases define "
        "keep their own.",
    )
    budget = BudgetField(
        label="Budget per run",
        help_text="US$, target + judge. Leave empty for no limit.",
    )
    minutes = forms.IntegerField(
        label="Longest time",
        required=False,
        min_value=1,
        max_value=MAX_MINUTES,
    )
    baseline = forms.ChoiceField(
        label="Baseline",
        required=False,
        help_text="The run whose outputs pairwise evaluators compare the new ones with",
    )
    note = forms.CharField(
        required=False,
        max_length=300,
        label="Note",
        help_text="of several targets it names the campaign too",
    )
    version = forms.IntegerField(required=False, min_value=0, max_value=10**9)
    form_key = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

    def __init__(
        self,
        suite: Suite,
        data: QueryDict | None = None,
        *,
        rules: RunRules | None = None,
        **options: Any,
    ) -> None:
        """Offer the suite's cases, judge and rules; `rules` are those of a repeated run."""
        super().__init__(suite, data, **options)
        self.asked_rules = rules or RunRules()
        self.initial.setdefault("judge", suite.judge_id or LanguageModel.find_only())
        judges = LanguageModel.objects.all()
        if suite.judge_id:
            self.fields["judge"] = forms.ModelChoiceField(judges, empty_label=None, label="Judge")
        offer(self, "judge", ADD_MODEL)
        offer(self, "target", ADD_TARGET)
        usual = suite.max_minutes
        self.fields["minutes"].help_text = (
            f"Minutes per run. Leave empty for {duration(usual * MINUTE_MS)}."
            if usual
            else "Minutes per run."
        )
        self.initial["form_key"] = secrets.token_urlsafe(16)
        if self.needs_baseline:
            self.fields["baseline"].choices = baseline_choices(suite)  # type: ignore[attr-defined]  # a ChoiceField

    @cached_property
    def needs_baseline(self) -> bool:
        """Tell whether an evaluator of the suite compares outputs with a baseline's."""
        return bool(baseline_paths(self.suite.spec.evaluators, all_kinds()))

    @cached_property
    def chosen_baseline(self) -> Run | None:
        """Return the run that is named as the baseline, None for that of the suite."""
        return baseline_run(self.suite, self._as_filled.get("baseline") or "")

    @property
    def baseline_number(self) -> int | None:
        """Return the number of the run that the new ones are compared with."""
        chosen = self.chosen_baseline
        return self.suite.baseline_number if chosen is None else chosen.number

    @cached_property
    def options(self) -> tuple[TargetOption, ...]:
        """Return the targets to choose from."""
        return target_options(self.suite)

    @property
    def main_options(self) -> tuple[TargetOption, ...]:
        """Return the targets that belong to this suite, or all where none does."""
        return tuple(option for option in self.options if option.fits) or self.options

    @cached_property
    def other_options(self) -> tuple[TargetOption, ...]:
        """Return the other targets, which the page folds."""
        return (
            tuple(o for o in self.options if not o.fits)
            if self.main_options != self.options
            else ()
        )

    @property
    def is_other_ticked(self) -> bool:
        """Tell whether a target of other suites is ticked."""
        return any(option.chosen_as in self.chosen_targets for option in self.other_options)

    @cached_property
    def unavailable_targets(self) -> tuple[UnavailableTarget, ...]:
        """Return the targets of the address that cannot run."""
        return () if self.is_bound else unavailable_targets(self.chosen_targets)

    @cached_property
    def chosen_targets(self) -> set[str]:
        """Return the ids of the targets that are ticked: the only one that fits, unless the address names some."""
        if self.is_bound or "target" in self.initial:
            return set(self._list("target"))
        fitting = {option.chosen_as for option in self.options if option.fits}
        return fitting if len(fitting) == 1 else set()

    @cached_property
    def rules(self) -> RunRulesFields:
        """Return the fields of weights and thresholds."""
        spec = self.suite.spec
        sent = read_integer(self.data.get("version", "")) if self.is_bound else None
        old = None
        if sent is not None and sent != self.suite.version:
            old = self.suite.versions.filter(number=sent).first()
        data = self.data if self.is_bound else None
        return RunRulesFields(spec, old.spec if old else spec, self.asked_rules, data)

    @cached_property
    def wanted_rules(self) -> RunRules:
        """Return the rules that the runs change, as far as they are valid."""
        samples = self._as_filled.get("samples")
        return (
            replace(self.asked_rules, samples=samples)
            if not self.is_bound
            else self.rules.rules(samples)
        )

    def clean(self) -> dict[str, Any]:
        """Refuse rules that cannot score a run, and name the field or evaluator."""
        cleaned = super().clean()
        wanted = self.wanted_rules
        if self.rules.errors:
            self.add_error(None, "Weights and thresholds: correct what is marked there.")
        else:
            try:
                apply_rules(self.rules.spec, wanted)
            except DomainError as refusal:
                self.add_error(None, f"For this run only: {refusal}")
        return cleaned

    def start(self, *, started_by: User) -> list[Run]:
        """Start the runs, all or none; raises DomainError with the reason.

        A form that is sent twice returns the runs of the first time.
        """
        chosen = self.cleaned_data
        return start_campaign(
            suite=self.suite,
            targets=list(chosen["target"]),
            started_by=started_by,
            name=chosen["note"],
            form_key=chosen["form_key"],
            repetitions=chosen["repetitions"],
            concurrency=chosen["concurrency"],
            budget_usd=chosen["budget"],
            max_minutes=chosen["minutes"],
            note=chosen["note"],
            tags=self.wanted_tags(),
            case_keys=self.wanted_keys,
            judge=chosen["judge"],
            rules=self.wanted_rules,
            version=chosen["version"],
            baseline=self.chosen_baseline,
        )

    def estimate(self) -> Estimate:
        """Return what the form would start and cost; wrong fields count as their default."""
        chosen = self._as_filled
        cases, with_outcomes = self.counts
        rule = self._applied_rules()
        return estimate(
            EstimateRequest(
                suite=self.suite,
                root=rule.root,
                policy=rule.policy,
                targets=self._estimated_targets(),
                cases=cases,
                with_outcomes=with_outcomes,
                repetitions=chosen.get("repetitions") or 1,
                concurrency=chosen.get("concurrency") or 8,
                judge=chosen.get("judge"),
                budget_usd=chosen.get("budget"),
                choice=CaseChoice(tuple(self.wanted_tags() or ()), self.wanted_keys),
                baseline=self.chosen_baseline,
            )
        )

    def start_problem(self, user: User, estimate: Estimate) -> str:
        """Return why the form would be refused if this user sent it now, "" where it would start."""
        targets = self._estimated_targets()
        if not targets:
            return "Tick a target first." if self.options else "Add a target first."
        if self.is_bound and self.errors:
            name, messages = next(iter(self.errors.items()))
            where = f"{self[name].label}: " if name in self.fields else ""
            return f"{where}{messages[0]}"
        if not estimate.samples:
            return "No case is chosen."
        if estimate.unrecorded:
            return (
                f"Target {estimate.unrecorded[0]} has no recorded output for any of these cases. "
                "Upload outputs whose ids are keys of these cases."
            )
        chosen = self._as_filled
        try:
            check_start(
                suite=self.suite,
                targets=targets,
                cases=estimate.samples,
                started_by=user,
                judge=chosen.get("judge"),
                budget_usd=chosen.get("budget"),
                rule=apply_rules(self.rules.spec, self.wanted_rules),
                baseline=self.chosen_baseline,
            )
        except DomainError as refusal:
            return str(refusal)
        return ""

    @property
    def _as_filled(self) -> dict[str, Any]:
        """Return the valid values of the fields, also before the form was sent."""
        if self.is_bound:
            return self.cleaned_data if hasattr(self, "cleaned_data") else {}
        values = {}
        for name in ("repetitions", "concurrency", "samples", "budget", "judge", "baseline"):
            field = self.fields[name]
            with suppress(forms.ValidationError):
                values[name] = field.clean(self.initial.get(name, field.initial))
        return values

    def _applied_rules(self) -> AppliedRules:
        """Return the rules that score the runs, or the suite's while those of the form are wrong."""
        try:
            return apply_rules(self.rules.spec, self.wanted_rules)
        except DomainError:
            return AppliedRules(self.rules.spec.evaluators, self.rules.spec.policy)

    def _estimated_targets(self) -> list[Target]:
        read = map(read_integer, self.chosen_targets)
        numbers = [number for number in read if number is not None]
        targets = Target.objects.filter(archived_at=None, pk__in=numbers)
        return list(targets.select_related("model"))
