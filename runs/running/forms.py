"""The form that starts runs of one suite: targets, cases, repetitions, judge and budget."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib.auth.models import User
from django.db.models import Count, Q
from django.http import QueryDict

from evaluators.kinds._judging import MAX_SAMPLES
from evaluators.models import LanguageModel
from evaluators.scoring.tree import EvaluatorSpec
from evaluators.scoring.types import DomainError
from runs.case_groups import ResultsQuery, in_state, matching_cases
from runs.engine.plan import ASKED, CHANGED, read_plan
from runs.form_fields import MoneyField
from runs.lists import read_integer
from runs.models.runs import RESCORED, Run
from runs.models.suites import Case, Suite
from runs.models.targets import Target
from runs.running.checks import scripts_problem_of_suite
from runs.running.choices import (
    CasePick,
    TargetOption,
    UnavailableTarget,
    case_keys_not_passed,
    case_keys_of_run,
    case_pick,
    last_ended,
    outcomes_by_key,
    target_options,
    unavailable_targets,
)
from runs.running.estimate import ENDED, Estimate, EstimateRequest, estimate
from runs.running.retry_forms import RunRetryForm
from runs.running.rules import SAMPLES, RunRules, ruled, with_own_samples
from runs.running.rules_forms import RunRulesFields
from runs.running.services import start_campaign
from runs.target_kinds import target_kinds

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
                ruled(self.rules.spec, wanted)
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
                tags=tuple(self.wanted_tags() or ()),
                keys=self.wanted_keys,
            )
        )

    def scripts_problem(self, user: User) -> str:
        """Return why the site would not start this for the user, when programs are to run; else ""."""
        kinds = {target.kind for target in self._estimated_targets()}
        known = target_kinds()
        targets = [known[kind] for kind in sorted(kinds) if kind in known]
        return scripts_problem_of_suite(self.suite, targets, user)

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
            return ruled(self.rules.spec, self.wanted_rules).root
        except DomainError:
            return self.rules.spec.evaluators

    def _estimated_targets(self) -> list[Target]:
        read = map(read_integer, self.chosen_targets)
        numbers = [number for number in read if number is not None]
        targets = Target.objects.filter(archived_at=None, pk__in=numbers)
        return list(targets.select_related("model"))
