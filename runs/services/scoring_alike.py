"""Score two runs under the rules of one of them, so that a comparison differs in their targets alone."""

from __future__ import annotations

from dataclasses import replace

from django.contrib.auth.models import User

from runs.models import Run, RunStatus
from runs.plan import read_plan
from runs.services.rescoring import CannotRescoreError, rescore_run
from runs.what_if import RuleSet

RULES = ("policy", "evaluators")


def score_alike(run: Run, like: Run, *, by: User | None) -> Run:
    """Return the run by the policy and evaluators that another froze; it costs nothing.

    It is the run itself where its rules are these already, else one that was scored so before, else
    a new run that names its source. What its judge said stays what it said.

    Raises CannotRescoreError for runs of two suites and for an archived suite, and what
    `rescore_run` refuses with, as where evaluators need new calls.
    """
    if has_rules_of(run, like):
        return run
    if reason := cannot_score_alike(run, like):
        raise CannotRescoreError(reason)
    known = Run.objects.filter(source_run=run, status=RunStatus.COMPLETED).exclude(pk=like.pk)
    for made in known.order_by("-number").select_related("suite").defer("leaf_scores", "summary"):
        if has_rules_of(made, like):
            return made
    rules = RuleSet.of_plan(read_plan(like.snapshot))
    rules = replace(rules, judge=read_plan(run.snapshot).judge)
    return rescore_run(run, rules, by=by, text=f"under the policy of run #{like.number}")


def has_rules_of(run: Run, like: Run) -> bool:
    """Tell whether both runs froze the same policy and evaluators."""
    return all(run.snapshot[name] == like.snapshot[name] for name in RULES)


def cannot_score_alike(run: Run, like: Run) -> str:
    """Return what is in the way before anything is read of the scores, "" where nothing is."""
    if run.suite_id != like.suite_id:
        return "Runs of two suites cannot be scored under one policy."
    if run.suite.archived_at is not None:
        return f"{run.suite.title} is archived. Take it out of the archive first."
    if run.is_active:
        return f"Run #{run.number} is still on. Score it again when it is over."
    return ""
