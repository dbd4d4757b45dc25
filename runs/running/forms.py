"""The form that starts runs of a suite: which targets, which cases, repetitions, judge and budget."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib.auth.models import User
from django.db.models import Avg, Count, Exists, OuterRef, Q, QuerySet
from django.http import QueryDict

from evaluators.kinds import all_kinds
from evaluators.kinds._judging import MAX_SAMPLES
from evaluators.models import LanguageModel
from evaluators.scoring.policy import WORDS
from evaluators.scoring.tree import EvaluatorSpec, walk
from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import duration, pct
from runs.engine.plan import ASKED, CHANGED, read_plan
from runs.lists import read_integer
from runs.models.results import Result, ResultStatus
from runs.models.run_cases import ResultsQuery, in_state, matching_cases
from runs.models.runs import RESCORED, Run
from runs.models.suites import Case, Suite, Target
from runs.requests import MoneyField
from runs.running.checks import suite_scripts_problem
from runs.running.estimate import (
    ENDED,
    CaseChoice,
    Estimate,
    EstimateRequest,
    estimate,
    recorded_counts,
)
from runs.running.retry_forms import RunRetryForm
from runs.running.rules import SAMPLES, RunRules, apply_rules, with_own_samples
from runs.running.services import start_campaign
from runs.specs.suites import SuiteSpec
from runs.suites.tree_forms import (
    BANDS_CROSSED,
    PERCENT,
    WrongNumberError,
    number_text,
    read_share,
    read_weight,
    share_text,
)
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
    """The cases shown to pick from, chosen ones first; `others` are keys chosen beside them.

    `found` of `total` cases have the text of the query in key or title.
    """

    options: Sequence[CaseOption]
    others: Sequence[str]
    text: str
    found: int
    total: int


def case_pick(suite: Suite, text: str, chosen: Collection[str]) -> CasePick:
    """Return what a search among the suite's cases shows; one query."""
    text = text.strip()[:MAX_QUERY_LENGTH]
    rows = list(_current(suite).values_list("key", "title"))
    sought = text.casefold()
    fitting = [row for row in rows if sought in f"{row[0]} {row[1]}".casefold()]
    wanted = set(chosen)
    # Those ticked already stay in sight when another text is sought.
    ticked = [row for row in rows if row[0] in wanted][:MAX_SHOWN]
    shown = ticked + [row for row in fitting if row[0] not in wanted][:MAX_SHOWN]
    listed = {key for key, _ in ticked}
    return CasePick(
        options=[CaseOption(key, title, key in listed) for key, title in shown],
        others=[key for key in chosen if key not in listed],
        text=text,
        found=len(fitting),
        total=len(rows),
    )


def outcomes_by_key(suite: Suite) -> dict[str, bool]:
    """Return the keys of the current cases, in order, with whether outcomes are expected of them."""
    return {
        key: bool(outcomes)
        for key, outcomes in _current(suite).values_list("key", "expected_outcomes")
    }


def last_ended(suite: Suite) -> Run | None:
    """Return the newest run that was carried out and is over, without its long columns."""
    ended = suite.runs.filter(status__in=ENDED, done_count__gt=0, source_run=None)
    return ended.defer("snapshot", "summary", "leaf_scores").order_by("-number").first()


def case_keys_not_passed(run: Run) -> list[str]:
    """Return the keys of the cases with a repetition that failed, was borderline or errored."""
    scored = Q(status=ResultStatus.SCORED) & ~Q(verdict=PASSED)
    found = run.results.filter(scored | Q(status=ResultStatus.ERROR)).order_by("position")
    return list(dict.fromkeys(found.values_list("case__key", flat=True)))


def case_keys_of_run(run: Run) -> list[str]:
    """Return the keys of the cases that a run was of."""
    found = run.results.filter(repetition=1).order_by("position")
    return list(dict.fromkeys(found.values_list("case__key", flat=True)))


def _current(suite: Suite) -> QuerySet[Case]:
    return suite.cases.filter(is_current=True).order_by("position", "id")


@dataclass(frozen=True, slots=True)
class UnavailableTarget:
    """A target that was asked for and cannot be run: archived, or deleted with `pk` None and no name."""

    pk: int | None
    name: str


@dataclass(frozen=True, slots=True)
class TargetOption:
    """A target to choose, with what is known of it from this suite's runs.

    `recorded` counts the suite's `cases` that it has an output for, None where it is asked.
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

    @property
    def chosen_as(self) -> str:
        """Return the value a form sends for this target."""
        return str(self.pk)

    @property
    def past(self) -> str:
        """Say what is recorded, and how it did in its last run of this suite."""
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
    """A suite to start a run of."""

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
    """Return every target with its last run of this suite; constant in queries.

    First stand those that ran on it, the latest first, then those that never ran, then the others.
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
    # Sorting keeps what is alike in the order of names.
    targets.sort(
        key=lambda one: (0, -last[one.pk].pk) if one.pk in last else (1, one.ran_somewhere)
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
    )


def unavailable_targets(asked: Collection[str]) -> tuple[UnavailableTarget, ...]:
    """Return which of the targets, by their ids as an address names them, cannot be run."""
    numbers = {number for number in map(read_integer, asked) if number is not None}
    known = Target.objects.filter(pk__in=numbers).in_bulk()
    archived = [one for one in known.values() if one.archived_at is not None]
    gone = len(asked) - len(known)
    return (
        *(UnavailableTarget(one.pk, one.name) for one in archived),
        *[UnavailableTarget(None, "")] * min(gone, 1),
    )


SCORES = ("pass_threshold", "borderline_threshold", "fallback_threshold")
RATES = ("metrics_pass_threshold", "cases_pass_threshold")
LABELS: Mapping[str, str] = {
    "pass_threshold": "Pass from",
    "borderline_threshold": "Borderline from",
    "fallback_threshold": "Without outcomes, pass from",
    "metrics_pass_threshold": "Metrics gate",
    "cases_pass_threshold": "Cases gate",
}


@dataclass(frozen=True, slots=True)
class RuleField:
    """One field: its name in the form, what it holds, what the suite has, and what is refused."""

    name: str
    text: str
    saved: str
    error: str = ""

    @property
    def label(self) -> str:
        """Return what the form calls a threshold."""
        return LABELS.get(self.name, self.name)

    @property
    def unit(self) -> str:
        """Return what its number is of."""
        return "percent" if self.name in RATES else "score"

    @property
    def is_changed(self) -> bool:
        """Tell whether it differs from the suite."""
        return self.text.strip() != self.saved


@dataclass(frozen=True, slots=True)
class RuleRow:
    """One evaluator: where it stands, its weight, and whether and from where it is required."""

    path: str
    name: str
    kind: str
    depth: int
    weight: RuleField
    required_name: str
    required: bool
    required_saved: bool
    below: RuleField

    @property
    def saved_required(self) -> str:
        """Say what the suite requires of it, "" for nothing."""
        return (self.below.saved or "above 0") if self.required_saved else ""


GATE = "case_gate"


@dataclass(slots=True)
class RunRulesFields:
    """All fields, of what the suite says, of what was asked for before, and of what was sent.

    `made_for` is the suite that the form was made from: what was left as it stood there is no change,
    also when the suite is another by now.
    """

    spec: SuiteSpec
    made_for: SuiteSpec
    asked: RunRules
    data: QueryDict | None = None
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def scale(self) -> int:
        """Return what the suite's scores are shown on."""
        return self.spec.policy.scale

    def rules(self, samples: int | None = None) -> RunRules:
        """Return what is asked for otherwise; what is refused is in `errors` by the field's name."""
        policy: dict[str, Any] = {}
        for name in (*SCORES, *RATES):
            self._read(policy, name, self._policy_field(name), self._most(name))
        bands = {name: policy.get(name, getattr(self.spec.policy, name)) for name in SCORES[:2]}
        if not self.errors and bands["borderline_threshold"] > bands["pass_threshold"]:
            self.errors["borderline_threshold"] = BANDS_CROSSED
        gate = self._policy_field(GATE)
        if gate.is_changed:
            policy[GATE] = gate.text
            if gate.text not in WORDS[GATE]:
                self.errors[GATE] = "Choose one of the two."
        weights: dict[str, float] = {}
        required: dict[str, bool | float] = {}
        for row in self._rows():
            self._read(weights, row.path, row.weight)
            if (row.required, row.below.text) == (row.required_saved, row.below.saved):
                continue
            if not row.required or not row.below.text:
                required[row.path] = row.required
            else:
                self._read(required, row.path, row.below, self.scale)
        return RunRules(policy, weights, required, samples)

    @property
    def rows(self) -> list[RuleRow]:
        """Return the evaluators in tree order, the outermost composite left out."""
        return list(self._rows())

    @property
    def scores(self) -> list[RuleField]:
        """Return the fields of the bands."""
        return [self._policy_field(name) for name in SCORES]

    @property
    def rates(self) -> list[RuleField]:
        """Return the fields of the gates, in percent."""
        return [self._policy_field(name) for name in RATES]

    @property
    def gate(self) -> RuleField:
        """Return the field of what a case passes by."""
        return self._policy_field(GATE)

    @property
    def lost(self) -> list[str]:
        """Return the paths of evaluators that were asked for otherwise and that the suite has no more."""
        there = {path for path, _ in walk(self.spec.evaluators)}
        asked = dict.fromkeys((*self.asked.weights, *self.asked.required))
        return [path for path in asked if path not in there]

    @property
    def changed(self) -> int:
        """Return how many fields differ from the suite."""
        policy = [*self.scores, *self.rates, self.gate]
        of_rows = sum(
            row.weight.is_changed
            + ((row.required, row.below.text) != (row.required_saved, row.below.saved))
            for row in self._rows()
        )
        return sum(one.is_changed for one in policy) + of_rows

    def _read(self, found: dict[str, Any], key: str, one: RuleField, most: int = 0) -> None:
        """Read a share of `most`, or a weight where there is none; what is refused is kept with the field."""
        if not one.is_changed:
            return
        try:
            found[key] = read_share(one.text, most) if most else read_weight(one.text)
        except WrongNumberError as refusal:
            self.errors[one.name] = str(refusal)

    def _policy_field(self, name: str) -> RuleField:
        saved, then = (self._spelt(name, dict(one.policy)) for one in (self.spec, self.made_for))
        asked = (
            self._spelt(name, {name: self.asked.policy[name]})
            if name in self.asked.policy
            else saved
        )
        return self._field(name, asked, saved, then)

    def _spelt(self, name: str, policy: Mapping[str, Any]) -> str:
        return str(policy[name]) if name == GATE else share_text(policy[name], self._most(name))

    def _most(self, name: str) -> int:
        return self.scale if name in SCORES else PERCENT

    def _field(self, name: str, asked: str, saved: str, then: str) -> RuleField:
        sent = None if self.data is None else self.data.get(name)
        # What the form showed and nobody changed follows the suite.
        text = asked if sent is None else saved if sent.strip() == then else sent.strip()
        return RuleField(name, text, saved, self.errors.get(name, ""))

    def _rows(self) -> Iterator[RuleRow]:
        walked = _walk(self.made_for)
        then = {path: _Saved.of(node, above, self.scale) for path, node, above in walked}
        for path, node, parent in _walk(self.spec):
            if parent is not None:
                saved = _Saved.of(node, parent, self.scale)
                yield self._row(path, node, saved, then.get(path, saved))

    def _row(self, path: str, node: EvaluatorSpec, saved: _Saved, then: _Saved) -> RuleRow:
        weight, required = saved.weight, saved.required
        below = saved.below
        if path in self.asked.weights:
            weight = number_text(self.asked.weights[path])
        if path in self.asked.required:
            asked = self.asked.required[path]
            required = bool(asked) or not isinstance(asked, bool)
            below = "" if isinstance(asked, bool) else share_text(asked, self.scale)
        names = {part: f"{part}:{path}" for part in ("weight", "required", "below")}
        if self.data is not None and names["below"] in self.data:
            sent = names["required"] in self.data
            required = saved.required if sent == then.required else sent
        kind = all_kinds().get(node.kind)
        return RuleRow(
            path=path,
            name=node.name,
            kind=kind.label if kind else node.kind,
            depth=path.count("/"),
            weight=self._field(names["weight"], weight, saved.weight, then.weight),
            required_name=names["required"],
            required=required,
            required_saved=saved.required,
            below=self._field(names["below"], below, saved.below, then.below),
        )


@dataclass(frozen=True, slots=True)
class _Saved:
    """What the suite says of one evaluator, as its fields spell it."""

    weight: str
    required: bool
    below: str

    @classmethod
    def of(cls, node: EvaluatorSpec, parent: EvaluatorSpec | None, scale: int) -> _Saved:
        below = node.required_below
        return cls(
            weight="" if parent is None else number_text(parent.weight_of(node)),
            required=node.is_required,
            below="" if below is None else share_text(below, scale),
        )


def _walk(
    spec: SuiteSpec,
) -> Iterator[tuple[str, EvaluatorSpec, EvaluatorSpec | None]]:
    """Yield path, node and what holds it, of every evaluator in tree order."""
    nodes = dict(walk(spec.evaluators))
    for path, node in nodes.items():
        yield path, node, nodes[path.rpartition("/")[0]] if path else None


# An address can name several of these.
SEVERAL = ("target", "tag", "case")
CHOSEN = "chosen"
FILTERED = "filtered"


def read_address(suite: Suite, asked: QueryDict) -> tuple[dict[str, Any], RunRules]:
    """Return the initial values of the form, and what the run changes of its suite.

    `again` is the number of a run of the suite, whose every choice is taken over; what the address
    names by itself comes before that.
    """
    several = {name: asked.getlist(name) for name in SEVERAL if name in asked}
    named: dict[str, Any] = {**asked.dict(), **several}
    run = _run(suite, named.get("again", ""))
    before = {} if run is None else form_values(run)
    if run is not None and FILTERED in named:
        query = ResultsQuery.read({name: str(asked[name]) for name in asked})
        cases = in_state(matching_cases(run, query), query)
        keys = cases.order_by("case__position").values_list("case__key", flat=True)
        several["case"] = named["case"] = list(keys)
    if "case" in several:
        before.pop("tag", None)
        named.setdefault("cases", CHOSEN)
    if "tag" in several:
        before.pop("keys", None)
    return before | named, RunRules() if run is None else rules_of(run)


def start_address(form: RunRetryForm) -> str:
    """Return the address parameters that fill the start form with the chosen rows of a run.

    All rows of a filter are named by the filter; they can be too many for an address.
    """
    again = {"again": form.run.number}
    if form.cleaned_data["everything"]:
        return urlencode({**again, FILTERED: 1, **form.query.parameters()})
    keys = dict.fromkeys(form.meant().order_by("position").values_list("case__key", flat=True))
    return urlencode({**again, "case": list(keys)}, doseq=True)


def form_values(run: Run) -> dict[str, Any]:
    """Return the values of the start form that would start a run once more."""
    asked = run.snapshot.get(ASKED) or {}
    judge = (run.snapshot.get("judge") or {}).get("slug", "")
    found: dict[str, Any] = {
        "repetitions": run.repetitions,
        "concurrency": run.concurrency,
        "note": run.note,
        "target": [str(run.target_id)] if run.target_id else [],
        "samples": asked.get(SAMPLES),
    }
    if model := LanguageModel.objects.filter(slug=judge).first():
        found["judge"] = model.pk
    if run.budget_usd is not None:
        found["budget"] = f"{run.budget_usd.normalize():f}"
    if asked.get("cases") == CHOSEN:
        found |= {"cases": CHOSEN, "keys": "\n".join(case_keys_of_run(run))}
    elif asked.get("tags"):
        found["tag"] = asked["tags"]
    return found


def rules_of(run: Run) -> RunRules:
    """Return what a run changed of its suite, apart from samples."""
    policy: dict[str, Any] = {}
    found: dict[str, dict[str, Any]] = {"weight": {}, "required": {}}
    for one in _changed(run):
        if one["evaluator"] is None:
            policy[one["name"]] = one["new"]
        elif one["name"] in found:
            found[one["name"]][one["evaluator"]] = one["new"]
    return RunRules(policy, found["weight"], found["required"])


def rules_not_taken_over(suite: Suite, asked: QueryDict) -> str:
    """Return a sentence on the rules of the repeated run that are not taken over; "" for none.

    A rescored run may have rules that the suite does not have: those of somebody's draft.
    """
    run = _run(suite, asked.get("again", ""))
    source = None if run is None else run.snapshot.get(RESCORED)
    if run is None or source is None or _goes_by(suite, run.snapshot):
        return ""
    return (
        f"Run #{run.number} was scored again from run #{source['run']} by other rules"
        f"{f', {run.note}' if run.note else ''}. They are not taken over: the new run goes by the suite "
        f"as it is, v{suite.version}, and by what is changed here."
    )


def _goes_by(suite: Suite, snapshot: Mapping[str, Any]) -> bool:
    """Tell whether the suite has the rules of a snapshot by now, apart from the run's own samples."""
    spec = suite.spec
    plan = read_plan(snapshot)
    now = with_own_samples(spec.evaluators, None, snapshot)
    return (plan.root.as_json(), plan.policy) == (now.as_json(), spec.policy)


def _changed(run: Run) -> Iterator[Mapping[str, Any]]:
    yield from run.snapshot.get(CHANGED) or ()


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
    """Which cases of a suite a run is of; `case` are ticked keys, `keys` has others one a line."""

    data: QueryDict

    cases = forms.ChoiceField(label="Cases")
    tag = forms.MultipleChoiceField(required=False, label="Tags")
    keys = forms.CharField(
        required=False,
        max_length=MAX_KEYS_LENGTH,
        label="Other keys",
        help_text="of cases, one a line, besides the ticked ones",
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
        """Return the tags of the suite's cases with the number of cases, most frequent first."""
        counts: Counter[str] = Counter()
        for tags, total, _ in self._by_tags:
            counts.update(dict.fromkeys(tags, total))
        return dict(counts.most_common())

    @cached_property
    def chosen_tags(self) -> set[str]:
        """Return the tags that are ticked."""
        return set(self._list("tag"))

    @cached_property
    def chosen_keys(self) -> tuple[str, ...]:
        """Return the keys that are ticked or written, each once."""
        written = str(self["keys"].value() or "").splitlines()
        found = [*self._list("case"), *(line.strip() for line in written)]
        return tuple(dict.fromkeys(key for key in found if key))

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
        """Return which cases are asked for: a value of `cases`."""
        return str(self["cases"].value())

    def clean(self) -> dict[str, Any]:
        """Refuse an empty choice of cases, and keys that are no case's."""
        found: dict[str, Any] = super().clean() or self.cleaned_data
        if self.choice == BY_TAG and not found.get("tag") and "tag" not in self.errors:
            self.add_error("tag", "Tick at least one tag, or choose all cases.")
        if self.choice == CHOSEN and "keys" not in self.errors:
            self._check_keys()
        if not self.has_cases:
            self.add_error(None, f"{self.suite.title} has no cases yet. Import some first.")
        return found

    def wanted_tags(self) -> list[str] | None:
        """Return the tags that the cases are chosen by, None where they are not."""
        return sorted(self.chosen_tags) if self.choice == BY_TAG else None

    @cached_property
    def wanted_keys(self) -> list[str] | None:
        """Return the keys of the chosen cases that the suite has, None where they are not chosen by key."""
        if self.choice == CHOSEN:
            return [key for key in self.chosen_keys if key in self._outcomes]
        if self.choice.startswith(FAILED):
            run_keys = self._not_passed.get(self.choice.removeprefix(FAILED))
            return [key for key in (run_keys[1] if run_keys else ()) if key in self._outcomes]
        return None

    @property
    def counts(self) -> tuple[int, int]:
        """Return how many cases are chosen, and how many of them have expected outcomes."""
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
        """Return the values of a name that can stand in the form several times."""
        if self.is_bound:
            return [str(value) for value in self.data.getlist(name)]
        found = self.initial.get(name) or []
        return [str(found)] if isinstance(found, str) else [str(value) for value in found]

    @cached_property
    def _not_passed(self) -> dict[str, tuple[Run, list[str]]]:
        """Return the cases not passed in the last run, and in the one that was asked for, by its number."""
        runs = [last_ended(self.suite)]
        asked = str(self.data.get("cases", "") if self.is_bound else self.initial.get("cases", ""))
        if asked.startswith(FAILED) and (number := read_integer(asked.removeprefix(FAILED))):
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
        """Return of every list of tags how many current cases have it, and how many of them outcomes."""
        rows = Case.objects.filter(suite=self.suite, is_current=True).order_by().values("tags")
        counted = rows.annotate(
            total=Count("id"), with_outcomes=Count("id", filter=~Q(expected_outcomes=[]))
        )
        return list(counted.values_list("tags", "total", "with_outcomes"))


MAX_REPETITIONS = 100
MAX_AT_ONCE = 200


class TargetsField(forms.ModelMultipleChoiceField[Target]):
    """Targets by their ids; an id that no column could hold is a wrong choice like any other."""

    def clean(self, value: Any) -> Any:
        """Return the targets."""
        for pk in value or ():
            if read_integer(str(pk)) is None:
                raise forms.ValidationError("Tick targets that are listed.", code="invalid_choice")
        return super().clean(value)


class StartRunForm(CaseChoiceForm):
    """One run for each target that is ticked, all of the same cases, judge, rules and limits."""

    target = TargetsField(
        Target.objects.filter(archived_at=None),
        label="Targets",
        error_messages={"required": "Tick at least one target."},
    )
    repetitions = forms.IntegerField(
        min_value=1,
        max_value=MAX_REPETITIONS,
        initial=1,
        help_text="Scores are averaged, cost adds up",
    )
    concurrency = forms.IntegerField(
        label="At the same time",
        min_value=1,
        max_value=MAX_AT_ONCE,
        initial=8,
        help_text="executions of each run",
    )
    judge = forms.ModelChoiceField(
        LanguageModel.objects.all(), required=False, empty_label="None", label="Model"
    )
    samples = forms.IntegerField(
        label="Samples",
        required=False,
        min_value=1,
        max_value=MAX_SAMPLES,
        help_text="judge calls for each score; empty as in the suite",
    )
    budget = MoneyField(
        label="Stop at",
        required=False,
        min_value=Decimal("0.000001"),
        help_text="US dollars a run, target and judges; empty for no limit",
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
        """Offer the suite's cases, judge and rules; `rules` are what was asked for before."""
        super().__init__(suite, data, **options)
        self.asked_rules = rules or RunRules()
        self.initial.setdefault("judge", suite.judge_id)
        judges = LanguageModel.objects.all()
        if suite.judge_id:
            self.fields["judge"] = forms.ModelChoiceField(judges, empty_label=None, label="Judge")
        self.initial["form_key"] = secrets.token_urlsafe(16)

    @cached_property
    def options(self) -> tuple[TargetOption, ...]:
        """Return the targets to choose from."""
        return target_options(self.suite)

    @cached_property
    def unavailable_targets(self) -> tuple[UnavailableTarget, ...]:
        """Return what the address asked for that no run can be started against."""
        return () if self.is_bound else unavailable_targets(self.chosen_targets)

    @cached_property
    def chosen_targets(self) -> set[str]:
        """Return the ids of the targets that are ticked."""
        return set(self._list("target"))

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
        """Return what the runs change of the suite, as far as it is valid."""
        samples = self._as_filled.get("samples")
        return (
            replace(self.asked_rules, samples=samples)
            if not self.is_bound
            else self.rules.rules(samples)
        )

    def clean(self) -> dict[str, Any]:
        """Refuse rules that no run could be scored by, naming field or evaluator."""
        found = super().clean()
        wanted = self.wanted_rules
        if self.rules.errors:
            self.add_error(None, "Weights and thresholds: correct what is marked there.")
        else:
            try:
                apply_rules(self.rules.spec, wanted)
            except DomainError as refusal:
                self.add_error(None, f"For this run only: {refusal}")
        return found

    def start(self, *, started_by: User) -> list[Run]:
        """Start the runs, all or none; raises DomainError saying what is in the way.

        Sent twice, it gives what it has started the first time.
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
            note=chosen["note"],
            tags=self.wanted_tags(),
            case_keys=self.wanted_keys,
            judge=chosen["judge"],
            rules=self.wanted_rules,
            version=chosen["version"],
        )

    def estimate(self) -> Estimate:
        """Return what the form as it stands would start and cost; wrong fields count as their default."""
        chosen = self._as_filled
        cases, with_outcomes = self.counts
        return estimate(
            EstimateRequest(
                suite=self.suite,
                root=self._root(),
                targets=self._estimated_targets(),
                cases=cases,
                with_outcomes=with_outcomes,
                repetitions=chosen.get("repetitions") or 1,
                concurrency=chosen.get("concurrency") or 8,
                judge=chosen.get("judge"),
                budget_usd=chosen.get("budget"),
                choice=CaseChoice(tuple(self.wanted_tags() or ()), self.wanted_keys),
            )
        )

    def scripts_problem(self, user: User) -> str:
        """Return why the site would not start this for the user, when programs are to run; else ""."""
        kinds = {target.kind for target in self._estimated_targets()}
        known = target_kinds()
        targets = [known[kind] for kind in sorted(kinds) if kind in known]
        return suite_scripts_problem(self.suite, targets, user)

    @property
    def _as_filled(self) -> dict[str, Any]:
        """Return what the fields hold as far as it is right, also before anything was sent."""
        if self.is_bound:
            return self.cleaned_data if hasattr(self, "cleaned_data") else {}
        found = {}
        for name in ("repetitions", "concurrency", "samples", "budget", "judge"):
            field = self.fields[name]
            with suppress(forms.ValidationError):
                found[name] = field.clean(self.initial.get(name, field.initial))
        return found

    def _root(self) -> EvaluatorSpec:
        """Return the tree that the runs are scored by, the suite's while the rules are wrong."""
        try:
            return apply_rules(self.rules.spec, self.wanted_rules).root
        except DomainError:
            return self.rules.spec.evaluators

    def _estimated_targets(self) -> list[Target]:
        read = map(read_integer, self.chosen_targets)
        numbers = [number for number in read if number is not None]
        targets = Target.objects.filter(archived_at=None, pk__in=numbers)
        return list(targets.select_related("model"))
