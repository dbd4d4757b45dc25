"""Say in one sentence why a result has its verdict: the evaluator that caused it first, then how it led there.

"Failed: no_card_numbers found “4111 1111” and scored 0, so safety is 0.00, below its gate of 0.60. To pass, …":
what SCORING §4.5 stores as a decision and a trace, in the order from cause to verdict.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from evaluators.scoring.aggregate import (
    JUDGE_OVERALL,
    Values,
    aggregate_tree,
    counted_children,
    is_forced,
    is_held_back,
    passes,
)
from evaluators.scoring.compile import LEAF, NO_INDEX, CompiledNode
from evaluators.scoring.decision import (
    ROOT,
    VERDICT_WORDS,
    CausePart,
    Flip,
    VerdictCause,
    decide_verdict,
    forcing_nodes,
)
from evaluators.scoring.explain import deciding_path, error_text
from evaluators.scoring.flip import RANKS, TINY, DecidedCase
from evaluators.scoring.numbers import (
    format_limit,
    format_number,
    format_rounded_up,
    quote_names,
    rounded,
)
from evaluators.scoring.types import Outcome, OutcomeResult, Score, Unscored, Verdict

NEXT_WORDS = {Verdict.BORDERLINE: "To be borderline", Verdict.PASS: "To pass"}
# Longer than this, a reason or a quotation is cut.
MAX_QUOTE = 140
MAX_NAMED = 4
# Averages between an evaluator and the final score are left out; these rules are not averages.
NAMED_RULES = ("minimum", "maximum", "threshold")
METRIC_SCALE = 5
SENTENCE_END = re.compile(r"(?<=[.!?…])\s+(?=[^a-z\s])")


Piece = str | CausePart


def find_cause(
    case: DecidedCase, outcomes: Mapping[str, Outcome], flip: Flip | None
) -> VerdictCause:
    """Return why a decided case has its verdict; `outcomes` are by path, `flip` is the case's smallest."""
    return _Teller(case, outcomes, flip).tell()


def first_sentence(text: str) -> str:
    """Return the first sentence of a text on one line, cut if it is long."""
    return _cut(SENTENCE_END.split(" ".join(text.split()), maxsplit=1)[0])


def _cut(text: str) -> str:
    return text if len(text) <= MAX_QUOTE else f"{text[: MAX_QUOTE - 1].rstrip()}…"


class _Teller:
    """Puts the sentence of one case together."""

    def __init__(
        self, case: DecidedCase, outcomes: Mapping[str, Outcome], flip: Flip | None
    ) -> None:
        self.case, self.outcomes, self.flip = case, outcomes, flip
        self.tree, self.values, self.result = case.tree, case.values, case.result
        self.policy, self.scale = case.tree.policy, case.tree.policy.scale

    def tell(self) -> VerdictCause:
        verdict = self.result.verdict
        if verdict is None:
            body: Iterable[Piece] = self._error()
        elif self.result.rule == "expected_outcomes":
            body = self._outcomes()
        elif verdict is Verdict.PASS:
            body = self._passed()
        elif self.result.rule in ("score", "fallback"):
            body = self._score()
        else:
            body = self._forced()
        change = () if verdict in (None, Verdict.PASS) else _joined(self._to_change(verdict))
        parts = _joined(body)
        end = "" if parts[-1].text.endswith("…") else "."
        return VerdictCause(VERDICT_WORDS[verdict], _joined((*parts, end)), change)

    # What an evaluator found.

    def _name(self, node: CompiledNode) -> CausePart:
        return CausePart(node.spec.name, node.path)

    def _number(self, index: int) -> str:
        score = self.values.scores[index] or 0.0
        return "0" if rounded(score) == 0 else format_number(score, scale=self.scale)

    def _limit(self, limit: float) -> str:
        return format_limit(limit, scale=self.scale)

    def _culprit(self, node: CompiledNode) -> Iterator[Piece]:
        """Say what a leaf found and scored."""
        outcome = self.outcomes.get(node.path)
        yield self._name(node)
        missed = self.values.parts.get(node.index)
        match = _negated_match(node, outcome)
        if missed:
            yield f" missed {quote_names(missed[:MAX_NAMED])}, which it requires"
        elif match:
            yield f" found {match} and scored {self._number(node.index)}"
        elif node.negate and node.rule == LEAF:
            before = format_number(1.0 - (self.values.scores[node.index] or 0.0), scale=self.scale)
            yield f" scored {before}, which counts as {self._number(node.index)}"
        else:
            yield f" scored {self._number(node.index)}"
        found = "" if match else _missed_part(missed[0], outcome) if missed else _found(outcome)
        yield f" ({found})" if found else ""

    # From the evaluator to the verdict.

    def _chain(self) -> list[CompiledNode]:
        """Return the nodes from the one that cost the most up to the root."""
        deciding = deciding_path(self.tree, self.values, self.result)
        nodes = [node for node in self.tree.nodes if node.index in deciding]
        return nodes[::-1]

    def _steps(self, chain: Sequence[CompiledNode]) -> Iterator[Piece]:
        """Say how the first node of a chain made each node above it what it is."""
        for child, node in pairwise(chain):
            if node.index == ROOT and self.values.failures[ROOT] == NO_INDEX:
                return
            if self.values.failures[node.index] != NO_INDEX:
                yield from self._own_rule(node, child, is_first=child is chain[0])
            elif node.rule in NAMED_RULES or node.negate or node.index == self.result.index:
                yield ", so "
                yield self._name(node)
                yield f" is {format_number(self.values.scores[node.index] or 0.0, scale=self.scale)}"

    def _own_rule(
        self, node: CompiledNode, child: CompiledNode, *, is_first: bool
    ) -> Iterator[Piece]:
        if node.rule == "threshold":
            counted, _ = counted_children(self.tree, node, self.values) or ((), ())
            passing = sum(passes(self.tree, index, self.values) for index in counted)
            yield f", and {passing} of {len(counted)} evaluators "
            yield from ("of ", self._name(node), " ") if node.index != ROOT else ()
            yield f"pass where {node.limit * 100:g}% must"
            return
        limit = self._limit(node.limit)
        if node.rule == "safety_gate":
            yield f", below its gate of {limit}"
        else:
            yield f", below the {limit} that every evaluator"
            yield from (" of ", self._name(node)) if node.index != ROOT else ()
            yield " must reach"
        is_final = node.index in (ROOT, self.result.index)
        if not is_final:
            yield ", so "
            yield self._name(node)
            yield " fails and counts as 0"

    def _score(self) -> Iterator[Piece]:
        """Tell a score below its threshold."""
        chain = self._chain()
        policy, score = self.policy, self.result.score or 0.0
        leaf = chain[0]
        source = self.tree.nodes[self.result.source]
        by_judge = policy.final_score == "judge_overall" and source.rule == LEAF
        if by_judge:
            chain, leaf = [source], source
        yield from self._culprit(leaf)
        if not by_judge and self._is_one_of_many(leaf, chain):
            yield " and cost the most"
        yield from self._steps(chain)
        if self.result.rule == "fallback":
            limit, name = policy.fallback_threshold, "threshold without judged outcomes"
        elif self.result.verdict is Verdict.FAIL:
            limit, name = policy.borderline_threshold, "borderline threshold"
        else:
            limit, name = policy.pass_threshold, "pass threshold"
        below = f"below the {name} of {self._limit(limit)}"
        if by_judge:
            yield f", {below}; the judge's overall score decides"
        elif leaf.index == ROOT:
            yield f", {below}"
        else:
            yield f", so the score is {format_number(score, scale=self.scale)}, {below}"

    def _is_one_of_many(self, leaf: CompiledNode, chain: Sequence[CompiledNode]) -> bool:
        """Tell whether other evaluators lowered the score too."""
        if leaf.index == ROOT or any(
            self.values.failures[node.index] != NO_INDEX for node in chain
        ):
            return False
        if any(node.rule in NAMED_RULES for node in chain[1:]):
            return False
        named = {node.index for node in chain}
        return any(
            (self.values.scores[index] or 0.0) < 1 and index not in named
            for node in chain[1:]
            for index in node.counted
        )

    def _forced(self) -> Iterator[Piece]:
        """Tell a fail that a rule forced whatever the score: a requirement, or the rule of the root."""
        chain = self._chain()
        node = self.tree.nodes[self.result.index]
        yield from self._culprit(chain[0])
        if self.result.rule != "required":
            yield from self._steps(chain)
            return
        # What is above the required node plays no part.
        own = chain[: chain.index(node) + 1]
        yield from self._steps(own)
        if self.values.parts.get(node.index):
            return
        if node is not chain[0]:
            yield ", which fails the required "
            yield self._name(node)
        elif node.required_below is not None:
            yield f", below the {self._limit(node.required_below)} it is required to reach"
        else:
            yield ", and it is required"

    def _outcomes(self) -> Iterator[Piece]:
        results = self.case.basis.outcomes
        missed = [outcome for outcome in results if not outcome.passed]
        noun = "expected outcome" if len(results) == 1 else "expected outcomes"
        if not missed:
            yield (
                "the expected outcome was met"
                if len(results) == 1
                else (f"{_all(len(results))} {noun} were met")
            )
            return
        verb = "was" if len(missed) == 1 else "were"
        yield f"{len(missed)} of {len(results)} {noun} {verb} missed: {_outcome(missed[0])}"
        if len(missed) > 1:
            yield f" and {len(missed) - 1} more"

    def _passed(self) -> Iterator[Piece]:
        """Tell by what margin a result passed, and which gate or evaluator came closest."""
        limit = (
            self.policy.fallback_threshold
            if self.result.rule == "fallback"
            else self.policy.pass_threshold
        )
        score = format_number(self.result.score or 0.0, scale=self.scale)
        yield f"the score is {score}, at least {self._limit(limit)}"
        gates = list(self._gates())
        if gates:
            node, needed = min(
                gates, key=lambda gate: (self.values.scores[gate[0].index] or 0.0) - gate[1]
            )
            yield f"; {'its gate was' if len(gates) == 1 else f'{_all(len(gates))} gates were'} met"
            yield ": " if len(gates) == 1 else "; closest: "
            yield self._name(node)
            yield f" {self._number(node.index)}, needs {self._limit(needed)}"
            return
        leaves = [
            leaf
            for leaf in self.tree.leaves
            if leaf.index != ROOT
            and leaf.needed
            and self.values.scores[leaf.index] is not None
            and not is_held_back(self.tree, leaf, self.values)
        ]
        if len(leaves) > 1:
            lowest = min(leaves, key=lambda leaf: self.values.scores[leaf.index] or 0.0)
            yield "; lowest: "
            yield self._name(lowest)
            yield f" {self._number(lowest.index)}"

    def _gates(self) -> Iterator[tuple[CompiledNode, float]]:
        """Yield each evaluator that had to reach a limit, with the limit."""
        for node in self.tree.nodes:
            if self.values.scores[node.index] is None:
                continue
            if node.required_below is not None:
                yield node, node.required_below
            if node.gates or node.rule == "all_or_nothing":
                for index in node.gates or node.counted:
                    if self.values.scores[index] is not None:
                        yield self.tree.nodes[index], node.limit

    def _error(self) -> Iterator[Piece]:
        result, nodes = self.result, self.tree.nodes
        if result.rule != "unscored":
            yield error_text(self.tree, self.case.basis, result, {})
            return
        first = nodes[result.unscored[0]]
        outcome = self.outcomes.get(first.path)
        reason = getattr(outcome, "reason", "") or "nothing was recorded for it"
        yield self._name(first)
        yield " has no score"
        more = [nodes[index] for index in result.unscored[1:]]
        yield f", nor {'has' if len(more) == 1 else 'have'} {len(more)} more" if more else ""
        # What a parser says comes last, under the sentence.
        is_parser = isinstance(outcome, Unscored) and outcome.stage == "parse"
        reason = reason.partition(": ")[0] if is_parser else reason
        yield f": {_cut(' '.join(reason.split()).rstrip('.'))}"

    # What would change it.

    def _to_change(self, verdict: Verdict) -> Iterator[Piece]:
        flip = self.flip
        if flip is None:
            return
        if flip.outcomes:
            if len(flip.outcomes) > 1:
                yield f"To pass, {_all(len(flip.outcomes))} must be met."
            return
        if flip.path is not None:
            yield from self._rise(flip)
            return
        missed = [
            node
            for node in forcing_nodes(self.tree, self.values)
            if node.index in self.values.parts
        ]
        if missed:
            yield "To pass, "
            for place, node in enumerate(missed[:MAX_NAMED]):
                yield " and " if place else ""
                yield self._name(node)
                yield f" must meet {quote_names(self.values.parts[node.index][:MAX_NAMED])}"
            yield "."
            return
        yield from self._raises(verdict)

    def _rise(self, flip: Flip) -> Iterator[Piece]:
        node = self.tree.nodes[self.tree.index_of[flip.path or ""]]
        end = flip.to_score or 0.0
        needed = format_rounded_up(end, scale=self.scale) if end >= TINY else "more than 0"
        yield f"{NEXT_WORDS[flip.verdict or Verdict.PASS]}, "
        yield self._name(node)
        yield f" must reach {needed}" if end >= TINY else f" must score {needed}"
        yield f" (now {self._number(node.index)})."

    def _raises(self, verdict: Verdict) -> Iterator[Piece]:
        """Say which evaluators must rise together, if that is known to be enough."""
        raises = self._needed_raises()
        reached = self._verdict_with(raises) if raises else None
        if not raises or (reached is not None and RANKS[reached] <= RANKS[verdict]):
            yield "No single evaluator can change this."
            return
        yield f"{NEXT_WORDS[reached or Verdict.PASS]}, "
        limits = set(raises.values())
        for place, (index, limit) in enumerate(raises.items()):
            yield " and " if place and place == len(raises) - 1 else ", " if place else ""
            yield self._name(self.tree.nodes[index])
            yield (
                f" ({self._number(index)})"
                if len(limits) == 1
                else (
                    f" must reach {format_rounded_up(limit, scale=self.scale)} (now {self._number(index)})"
                )
            )
        if len(limits) == 1:
            both = {1: "", 2: " both"}.get(len(raises), " all")
            yield f" must{both} reach {format_rounded_up(limits.pop(), scale=self.scale)}"
        if reached is None:
            skipped = sum(is_held_back(self.tree, leaf, self.values) for leaf in self.tree.leaves)
            noun = "evaluator" if skipped == 1 else "evaluators"
            yield f"; then the {skipped} skipped {noun} would run and decide"
        yield "."

    def _needed_raises(self) -> dict[int, float]:
        """Return the scores that the leaves behind every broken rule would need, by index; {} if not known."""
        needs: list[tuple[CompiledNode, float]] = []
        for node in forcing_nodes(self.tree, self.values):
            if self.values.failures[node.index] != NO_INDEX:
                needs.append((node, 0.0))
            elif node.required_below is not None:
                needs.append((node, node.required_below))
            else:
                return {}
        if not needs and self.values.failures[ROOT] != NO_INDEX:
            needs.append((self.tree.nodes[ROOT], 0.0))
        if not needs:
            needs = [
                (node, 0.0)
                for node in self._chain()
                if node.gates and self.values.failures[node.index] != NO_INDEX
            ]
        raises: dict[int, float] = {}
        for node, limit in needs:
            found = self._raises_for(node, limit)
            if found is None:
                return {}
            for index, end in found.items():
                raises[index] = max(end, raises.get(index, 0.0))
        return raises if len(raises) <= MAX_NAMED else {}

    def _raises_for(self, node: CompiledNode, limit: float) -> dict[int, float] | None:
        """Return which leaves below a node must reach what, so that it reaches a limit; None if unclear."""
        score = self.values.scores[node.index] or 0.0
        is_failed = self.values.failures[node.index] != NO_INDEX
        if not is_failed and rounded(score) >= rounded(limit):
            return {}
        if node.rule == LEAF:
            return {node.index: limit}
        if node.negate:
            return None
        children = {
            "safety_gate": node.gates if is_failed else (),
            "all_or_nothing": node.counted if is_failed else (),
            "minimum": node.counted,
        }.get(node.rule, ())
        if not children:
            return None
        found: dict[int, float] = {}
        for index in children:
            below = self._raises_for(
                self.tree.nodes[index], limit if node.rule == "minimum" else node.limit
            )
            if below is None:
                return None
            found |= below
        return found

    def _verdict_with(self, raises: Mapping[int, float]) -> Verdict | None:
        """Return the verdict if leaves scored that much; None if evaluators that were skipped would decide."""
        scores = list(self.values.scores)
        for index, score in raises.items():
            scores[index] = score
        values: Values = aggregate_tree(self.tree, scores, self.values.parts)
        unknown = any(
            leaf.needed
            and self.values.scores[leaf.index] is None
            and not is_held_back(self.tree, leaf, values)
            for leaf in self.tree.leaves
        )
        if unknown and not any(is_forced(node, values) for node in self.tree.nodes):
            return None
        return decide_verdict(self.tree, values, self.case.basis, self.case.judged).verdict


def _negated_match(node: CompiledNode, outcome: Outcome | None) -> str:
    """Return the passage that a negated check should not have found, "" if there is none."""
    if not node.negate or not isinstance(outcome, Score):
        return ""
    missed = (finding for finding in outcome.findings if not finding.passed and finding.evidence)
    quoted = next((finding.evidence for finding in missed if not outcome.reasoning), "")
    return _quote(_cut(quoted)) if quoted else ""


def _missed_part(name: str, outcome: Outcome | None) -> str:
    """Return what a required part of an evaluator asks for: the text of a criterion, or what was missed."""
    if not isinstance(outcome, Score):
        return ""
    criteria = outcome.details.get("criteria") or ()
    texts = [str(criterion["text"]) for criterion in criteria if criterion.get("id") == name]
    texts += [finding.text for finding in outcome.findings if not finding.passed]
    return _quote(first_sentence(texts[0])) if texts else ""


def _found(outcome: Outcome | None) -> str:
    """Return what an evaluator found, in its own words: its worst metric, its reason, or what it missed."""
    if not isinstance(outcome, Score):
        return ""
    metrics = outcome.details.get("metrics")
    if metrics:
        worst = min(metrics, key=lambda metric: float(metric["score"]))
        label = f" {str(worst['label']).replace('_', ' ')}" if worst.get("label") else ""
        shown = "" if worst.get("binary") else f", {worst['score']:g} of {METRIC_SCALE}"
        why = first_sentence(str(worst.get("justification") or ""))
        return f"{worst['name']}:{label}{shown}" + (f", {_quote(why)}" if why else "")
    # A judge's misses say what was wrong; findings with evidence repeat what was asked for.
    is_hybrid = JUDGE_OVERALL in outcome.details
    said = [f.text for f in outcome.findings if not (f.passed or f.evidence or is_hybrid)]
    if outcome.reasoning:
        text = first_sentence(said[0] if said else outcome.reasoning)
        return text.rstrip(".") if "rounds" in outcome.details else _quote(text)
    missed = next((finding for finding in outcome.findings if not finding.passed), None)
    if missed is None:
        return ""
    evidence = f": {_cut(' '.join(missed.evidence.split()))}" if missed.evidence else ""
    is_abbreviation = missed.text[1:2].isupper()
    text = missed.text if is_abbreviation else missed.text[:1].lower() + missed.text[1:]
    return f"{_cut(' '.join(text.split()))}{evidence}"


def _quote(text: str) -> str:
    text = " ".join(text.split())
    return text if text.startswith("“") and text.endswith("”") else f"“{text}”"


def _outcome(outcome: OutcomeResult) -> str:
    why = first_sentence(outcome.justification)
    return _quote(_cut(outcome.text)) + (f" ({why.rstrip('.')})" if why else "")


def _all(count: int) -> str:
    return "both" if count == 2 else f"all {count}"


def _joined(pieces: Iterable[Piece]) -> tuple[CausePart, ...]:
    """Return the pieces with neighbouring texts put together; names stay apart."""
    parts: list[CausePart] = []
    for piece in pieces:
        part = CausePart(piece) if isinstance(piece, str) else piece
        if not part.text:
            continue
        if part.path is None and parts and parts[-1].path is None:
            parts[-1] = CausePart(parts[-1].text + part.text)
        else:
            parts.append(part)
    return tuple(parts)
