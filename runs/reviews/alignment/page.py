"""The page of one alignment: how far it is, its candidates with their figures, and the cases that turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

from evaluators.scoring.significance import MIN_CASES
from evaluators.scoring.tree import EvaluatorSpec, walk
from evaluators.templatetags.figures import counted, money, p_value, pct
from runs import lists
from runs.lists import ListQuery
from runs.models.jobs import ModelJob
from runs.models.results import ANSWERED, Result
from runs.models.suites import SuiteDraft
from runs.reviews.agreement import JudgeAgreement
from runs.reviews.agreement_page import kappa_text, rate_interval, signed
from runs.reviews.alignment.rules import (
    TODAY,
    CandidateFigures,
    CandidateFinding,
    held_out_power,
    measure_candidates,
    wins_needed,
)
from runs.reviews.alignment.services import draft_node
from runs.reviews.alignment.specs import AlignmentOutcome, AlignmentSpec, HeldOutOpinion
from runs.reviews.judge_choice import JudgedOutput, JudgingFigures, OutputOpinion, measure_judging
from runs.texts import DiffLine, text_diff

FINDINGS: Mapping[CandidateFinding, tuple[str, str]] = {
    CandidateFinding.BETTER: ("pass", "Agrees better"),
    CandidateFinding.WORSE: ("fail", "Agrees less"),
    CandidateFinding.UNPROVEN: ("borderline", "Could be chance"),
    CandidateFinding.INCOMPLETE: ("error", "Not all judged"),
    CandidateFinding.TOO_FEW: ("borderline", "Too few cases"),
}
HUNDRED = 100


@dataclass(frozen=True, slots=True)
class AlignmentQuery(ListQuery):
    """Which candidate is shown: 0 for the best one."""

    candidate: int = lists.integer(0)


@dataclass(frozen=True, slots=True)
class AlignmentFigures:
    """What an alignment found: the figures of today's instructions and of each candidate on the held-out half."""

    spec: AlignmentSpec
    outcome: AlignmentOutcome
    today: JudgingFigures
    candidates: Sequence[CandidateFigures]

    @property
    def best(self) -> CandidateFigures | None:
        """Return the candidate that agrees best, one that counts before all others; None without any."""
        ranked = sorted(
            self.candidates,
            key=lambda entry: (
                entry.finding == CandidateFinding.BETTER,
                entry.won - entry.lost,
                -entry.key,
            ),
        )
        return ranked[-1] if ranked else None

    @property
    def conclusion(self) -> str:
        """Say in one sentence whether a candidate is better, and on what evidence."""
        best, today = self.best, self.today.people
        if best is None:
            return "There is no candidate yet."
        now = f"today's instructions with {_agreed(today)}"
        own = f"Candidate {best.key} agrees with people on {_agreed(best.judging.people)}"
        tests = counted(len(self.candidates), "candidate")
        p = f"{p_value(best.evidence.p)}, corrected for {tests}"
        if best.finding == CandidateFinding.BETTER:
            return f"{own} held-out results, {now}: more than chance explains ({p})."
        if best.finding == CandidateFinding.TOO_FEW:
            cases = counted(best.evidence.shared, "held-out case")
            return (
                f"No candidate counts: {cases} are too few for a test, and {MIN_CASES} are needed."
            )
        if best.finding == CandidateFinding.INCOMPLETE:
            return (
                "No candidate counts as better, because not every held-out result was judged by every candidate, "
                "and what is missing counts against it."
            )
        if best.won <= best.lost:
            return f"No candidate agrees with people more often than {now}."
        return f"No candidate is better than chance explains: {own}, {now} ({p}).{self._more(best)}"

    def _more(self, best: CandidateFigures) -> str:
        if best.cases_needed is None:
            return ""
        return (
            f" If such a difference is real, about {counted(2 * best.cases_needed, 'decided case')} in all "
            f"would show it; there are {len({d.case for d in (*self.spec.seen, *self.spec.held_out)})}."
        )


def _agreed(people: JudgeAgreement) -> str:
    same = sum(people.matrix[place][place] for place in range(len(people.categories)))
    return f"{same} of {people.n}"


def alignment_figures(job: ModelJob) -> AlignmentFigures:
    """Return what an alignment found so far."""
    spec = AlignmentSpec.model_validate(job.request)
    outcome = AlignmentOutcome.model_validate(job.outcome or {})
    outputs = [
        JudgedOutput(
            decision.case,
            {
                key: OutputOpinion(given[decision.result].verdict, given[decision.result].score)
                for key, given in outcome.opinions.items()
                if decision.result in given and given[decision.result].verdict
            },
            decision.person,
        )
        for decision in spec.held_out
    ]
    keys = range(1, len(outcome.candidates) + 1)
    return AlignmentFigures(
        spec,
        outcome,
        measure_judging(outputs, TODAY, TODAY, seed=job.pk),
        measure_candidates(outputs, keys, seed=job.pk) if keys else [],
    )


@dataclass(frozen=True, slots=True)
class CandidateRow:
    """One row of the table: today's instructions, or a candidate with its difference."""

    label: str
    address: str
    figures: JudgingFigures
    is_on: bool = False
    candidate: CandidateFigures | None = None

    @property
    def agreed(self) -> str:
        """Return on how many results it agrees with people."""
        return _agreed(self.figures.people)

    @property
    def share(self) -> str:
        """Return the share of results on which it agrees."""
        return pct(self.figures.people.agreement.share)

    @property
    def share_interval(self) -> str:
        """Return Wilson's interval of the share."""
        return rate_interval(self.figures.people.agreement)

    @property
    def kappa(self) -> str:
        """Return kappa with its interval."""
        return kappa_text(self.figures.people)

    @property
    def gain(self) -> str:
        """Return the difference of agreement from today's instructions, in points with its interval."""
        gain = self.candidate.gain if self.candidate else None
        if gain is None or gain.mean is None:
            return ""
        text = f"{signed(gain.mean * HUNDRED, 1)} pts"
        if gain.low is None or gain.high is None:
            return text
        ends = [signed(end * HUNDRED, 1) for end in (gain.low, gain.high)]
        return f"{text} ({ends[0]} to {ends[1]})"

    @property
    def p(self) -> str:
        """Return the corrected p, "" without a test."""
        return p_value(self.candidate.evidence.p) if self.candidate else ""

    @property
    def tone(self) -> str:
        """Return the tone of what was found."""
        return FINDINGS[self.candidate.finding][0] if self.candidate else ""

    @property
    def word(self) -> str:
        """Say what was found."""
        return FINDINGS[self.candidate.finding][1] if self.candidate else ""


@dataclass(frozen=True, slots=True)
class TurnedRow:
    """A held-out result whose verdict differs under a candidate."""

    result: Result
    person: str
    before: HeldOutOpinion
    after: HeldOutOpinion

    @property
    def is_won(self) -> bool:
        """Tell whether it turned to people's verdict."""
        return self.after.verdict == self.person

    @property
    def is_lost(self) -> bool:
        """Tell whether it turned away from people's verdict."""
        return self.before.verdict == self.person


@dataclass(frozen=True)
class AlignmentPage:
    """The whole page of one alignment; `earlier` ones of the same evaluator tried candidates, too.

    `answered` of its `calls` have a reply.
    """

    job: ModelJob
    query: AlignmentQuery
    found: AlignmentFigures
    calls: int
    answered: int
    spent_usd: Decimal
    earlier: int
    lacks_worker: bool
    draft: SuiteDraft | None

    @property
    def activity(self) -> str:
        """Say what is being done."""
        if self.answered:
            return f"{self.answered} of {counted(self.job.planned_calls, 'call')} answered"
        writes = f"{self.job.model_name} writes the candidates"
        failed = counted(self.calls, "try,tries")
        return f"{writes}; {failed} failed so far" if self.calls else writes

    @property
    def spec(self) -> AlignmentSpec:
        """Return what was asked for."""
        return self.found.spec

    @property
    def facts(self) -> Sequence[tuple[str, str]]:
        """Return what was asked for, in words."""
        job, spec = self.job, self.found.spec
        shown = [entry for entry in spec.seen if entry.result in set(spec.shown)]
        wrong = sum(entry.is_disagreement for entry in shown)
        return (
            ("Decisions", f"{len(spec.seen) + len(spec.held_out)}, {len(spec.held_out)} held out"),
            (
                "Seen by the writer",
                f"{counted(wrong, 'disagreement')}, {len(shown) - wrong} others",
            ),
            ("Writer", job.model_name),
            ("Calls", f"{self.calls}, about {job.planned_calls} planned"),
            ("Cost", f"{money(self.spent_usd)} of at most {money(job.budget_usd)}"),
            ("Suite", f"v{spec.version}"),
        )

    @property
    def is_changed(self) -> bool:
        """Tell whether the suite has other instructions now than those of today then."""
        return not _has_texts(self.job.suite.spec.evaluators, self.spec)

    @property
    def shown(self) -> CandidateFigures | None:
        """Return the candidate that is shown."""
        named = (each for each in self.found.candidates if each.key == self.query.candidate)
        return next(named, self.found.best)

    @property
    def rows(self) -> Iterator[CandidateRow]:
        """Yield today's instructions and the candidates."""
        if not self.found.candidates:
            return
        yield CandidateRow("Today's instructions", "", self.found.today)
        for each in self.found.candidates:
            yield CandidateRow(
                f"Candidate {each.key}",
                self.query.address(candidate=each.key),
                each.judging,
                each is self.shown,
                each,
            )

    @property
    def text(self) -> str:
        """Return the instructions of the candidate that is shown."""
        return self.found.outcome.candidates[self.shown.key - 1].text if self.shown else ""

    @property
    def reason(self) -> str:
        """Return how the writer explains the candidate that is shown."""
        return self.found.outcome.candidates[self.shown.key - 1].reason if self.shown else ""

    @property
    def diff(self) -> Sequence[DiffLine]:
        """Return the lines of both instructions; none where they are too different to be compared by line."""
        return text_diff(self.spec.text, self.text) or ()

    @cached_property
    def turned(self) -> Sequence[TurnedRow]:
        """Return the held-out results whose verdict differs under the shown candidate; one query."""
        if self.shown is None:
            return ()
        opinions = self.found.outcome.opinions
        before, after = opinions.get(TODAY, {}), opinions.get(self.shown.key, {})
        people = {entry.result: entry.person for entry in self.spec.held_out}
        differs = [
            pk
            for pk in people
            if pk in before and pk in after and before[pk].verdict != after[pk].verdict
        ]
        rows = Result.objects.filter(pk__in=differs).select_related("case", "run")
        rows = rows.defer("run__snapshot", "run__summary", "run__leaf_scores")
        turned = [
            TurnedRow(row, people[row.pk], before[row.pk], after[row.pk])
            for row in rows.order_by("position", "repetition", "pk")
        ]
        return sorted(turned, key=lambda row: (not row.is_lost, not row.is_won))

    @property
    def power_text(self) -> str:
        """Say what the held-out half can prove."""
        return power_text(self.spec, len(self.found.outcome.candidates) or self.spec.candidates)

    @property
    def node(self) -> Mapping[str, Any] | None:
        """Return the evaluator of the reader's draft, None where it has none or may not change the suite."""
        return draft_node(self.draft, self.spec) if self.draft else None

    @property
    def draft_differs(self) -> bool:
        """Tell whether the reader's draft has other instructions than those of today then."""
        text = self.node["config"].get(self.spec.setting, "") if self.node else ""
        return text not in (self.spec.text, self.spec.written)

    @property
    def is_taken(self) -> bool:
        """Tell whether the reader's draft has the candidate that is shown."""
        return self.node is not None and self.node["config"].get(self.spec.setting) == self.text


def _has_texts(root: EvaluatorSpec, spec: AlignmentSpec) -> bool:
    node = dict(walk(root)).get(spec.path)
    text = node.config.get(spec.setting) if node is not None else None
    return text in (spec.text, spec.written)


def power_text(spec: AlignmentSpec, candidates: int) -> str:
    """Say whether the held-out half can prove anything, and what it takes."""
    power = held_out_power(spec.held_out, candidates)
    wrong = counted(power.disagreements, "case")
    unknown = f" ({power.unknown} are not known yet)" if power.unknown else ""
    of = f"{counted(power.cases, 'case')} are held out; today's judge differs from people on {wrong}{unknown}"
    if power.is_able:
        return (
            f"{of}. At least {power.needed} must turn to people's verdict for a candidate to count."
        )
    if power.cases < MIN_CASES:
        return f"{of}, but {MIN_CASES} held-out cases are needed, so no candidate can count. Review more results first."
    possible = power.disagreements + power.unknown
    fewer = ", or choose fewer candidates" if possible >= wins_needed(1) else ""
    return f"{of}, but {power.needed} such cases are needed, so no candidate can count. Review more results first{fewer}."


def alignment_page(job: ModelJob, query: AlignmentQuery, draft: SuiteDraft | None) -> AlignmentPage:
    """Return the page of an alignment; the number of queries does not grow."""
    same = ModelJob.objects.filter(suite=job.suite, purpose=job.purpose, subject=job.subject)
    return AlignmentPage(
        job,
        query,
        alignment_figures(job),
        calls=job.calls.count(),
        answered=job.calls.filter(status__in=ANSWERED).count(),
        spent_usd=job.spent_usd(),
        earlier=same.filter(pk__lt=job.pk, outcome__isnull=False).count(),
        lacks_worker=job.lacks_worker(),
        draft=draft,
    )
