"""What the start form is filled in with: as a run was asked for, and what an address names besides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

from django.http import QueryDict

from evaluators.models import LanguageModel
from runs.drafting.content import policy_of, tree_of
from runs.drafting.for_one_run import SAMPLES, RunRules
from runs.forms.retrying import RunRetryForm
from runs.models import Run, Suite
from runs.plan import ASKED, CHANGED, read_plan
from runs.reports.matching import matching_groups, narrowed
from runs.reports.results_query import ResultsQuery
from runs.reports.start_cases import keys_of_run
from runs.rescoring.own_samples import with_own_samples
from runs.rescoring.writing import RESCORED
from runs.versions import parts_of

# An address can name several of these.
SEVERAL = ("target", "tag", "case")
CHOSEN = "chosen"
FILTERED = "filtered"
LONGEST_NUMBER = 9


def filled_from(suite: Suite, asked: QueryDict) -> tuple[dict[str, Any], RunRules]:
    """Return the initial values of the form, and what the run is to do otherwise than the suite.

    `again` is the number of a run of the suite, whose every choice is taken over; what the address
    names by itself comes before that.
    """
    several = {name: asked.getlist(name) for name in SEVERAL if name in asked}
    named: dict[str, Any] = {**asked.dict(), **several}
    run = _run(suite, named.get("again", ""))
    before = {} if run is None else as_asked(run)
    if run is not None and FILTERED in named:
        query = ResultsQuery.read({name: str(asked[name]) for name in asked})
        groups = narrowed(matching_groups(run, query), query)
        keys = groups.order_by("case__position").values_list("case__key", flat=True)
        several["case"] = named["case"] = list(keys)
    if "case" in several:
        before.pop("tag", None)
        named.setdefault("cases", CHOSEN)
    if "tag" in several:
        before.pop("keys", None)
    return before | named, RunRules() if run is None else rules_of(run)


def chosen_in(form: RunRetryForm) -> str:
    """Return the address parameters that fill the start form with the chosen rows of a run.

    All rows of a filter are named by the filter; they can be too many for an address.
    """
    again = {"again": form.run.number}
    if form.cleaned_data["everything"]:
        return urlencode({**again, FILTERED: 1, **form.query.as_parameters()})
    keys = dict.fromkeys(form.meant().order_by("position").values_list("case__key", flat=True))
    return urlencode({**again, "case": list(keys)}, doseq=True)


def as_asked(run: Run) -> dict[str, Any]:
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
        found |= {"cases": CHOSEN, "keys": "\n".join(keys_of_run(run))}
    elif asked.get("tags"):
        found["tag"] = asked["tags"]
    return found


def rules_of(run: Run) -> RunRules:
    """Return what a run did otherwise than its suite, samples apart."""
    policy: dict[str, Any] = {}
    found: dict[str, dict[str, Any]] = {"weight": {}, "required": {}}
    for one in _changed(run):
        if one["evaluator"] is None:
            policy[one["name"]] = one["new"]
        elif one["name"] in found:
            found[one["name"]][one["evaluator"]] = one["new"]
    return RunRules(policy, found["weight"], found["required"])


def left_behind(suite: Suite, asked: QueryDict) -> str:
    """Return which rules of the run to be started again are not taken over, in a sentence; "" for none.

    A run that was scored again went by rules that the suite may not have: those of somebody's draft.
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
    """Tell whether the suite has the rules of a snapshot by now, samples of the run alone apart."""
    parts = parts_of(suite)
    plan = read_plan(snapshot)
    now = with_own_samples(tree_of(parts), None, snapshot)
    return (plan.root.as_json(), plan.policy) == (now.as_json(), policy_of(parts))


def _changed(run: Run) -> Iterator[Mapping[str, Any]]:
    yield from run.snapshot.get(CHANGED) or ()


def _run(suite: Suite, number: Any) -> Run | None:
    text = str(number)
    if not text.isdecimal() or len(text) > LONGEST_NUMBER:
        return None
    return suite.runs.filter(number=int(text)).defer("summary", "leaf_scores").first()
