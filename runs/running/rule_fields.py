"""The fields of the start form that change the suite's rules for one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from django.http import QueryDict

from evaluators.kinds import InvalidConfigError, all_kinds
from evaluators.kinds.metrics_judge import FACTS, MetricSetting
from evaluators.scoring.policy import CHOICES
from evaluators.scoring.tree import EvaluatorSpec, walk
from runs.engine.plan import METRICS_KIND
from runs.running.rules import RunRules, judge_metrics
from runs.specs.suites import SuiteSpec
from runs.suites.numbers import WrongNumberError, number_text, read_share, read_weight, share_text
from runs.suites.tree_forms import BANDS_CROSSED, PERCENT

SCORES = ("pass_threshold", "borderline_threshold", "fallback_threshold")
RATES = ("metrics_pass_threshold", "cases_pass_threshold")
LABELS: Mapping[str, str] = {
    "pass_threshold": "Pass from",
    "borderline_threshold": "Borderline from",
    "fallback_threshold": "Pass score for cases without outcomes",
    "metrics_pass_threshold": "Score gate",
    "cases_pass_threshold": "Pass-rate gate",
}


@dataclass(frozen=True, slots=True)
class RuleField:
    """One field: its name in the form, its text, the suite's value, and the error."""

    name: str
    text: str
    saved: str
    error: str = ""

    @property
    def label(self) -> str:
        """Return the label in the form."""
        return LABELS.get(self.name, self.name)

    @property
    def errors_id(self) -> str:
        """Return the id of the element with the error; an id has no spaces, as names may."""
        return f"errors-{quote(self.name)}"

    @property
    def unit(self) -> str:
        """Return the unit of the number."""
        return "percent" if self.name in RATES else "score"

    @property
    def is_changed(self) -> bool:
        """Tell whether it differs from the suite."""
        return self.text.strip() != self.saved


@dataclass(frozen=True, slots=True)
class MetricRuleRow:
    """One metric that a metrics judge has or could have: whether it counts, and its weight."""

    key: str
    name: str
    tier: str
    counts_name: str
    counts: bool
    counts_saved: bool
    weight: RuleField

    @property
    def is_changed(self) -> bool:
        """Tell whether the run judges it otherwise than the suite."""
        return self.counts != self.counts_saved or (self.counts and self.weight.is_changed)


@dataclass(frozen=True, slots=True)
class RuleRow:
    """One evaluator: its place in the tree, its weight, its required minimum, and a judge's metrics."""

    path: str
    name: str
    kind: str
    depth: int
    weight: RuleField
    required_name: str
    required: bool
    required_saved: bool
    below: RuleField
    metrics: Sequence[MetricRuleRow] = ()

    @property
    def saved_required(self) -> str:
        """Return what the suite requires of it in words, "" for nothing."""
        return (self.below.saved or "above 0") if self.required_saved else ""


GATE = "case_gate"


@dataclass(slots=True)
class RunRulesFields:
    """All fields, filled from the suite, from earlier rules, and from the sent form.

    `made_for` is the suite that the form was made from. A field that still has the value of that
    suite is unchanged, even if the suite has changed since.
    """

    spec: SuiteSpec
    made_for: SuiteSpec
    before: RunRules
    data: QueryDict | None = None
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def scale(self) -> int:
        """Return the scale of the suite's scores."""
        return self.spec.policy.scale

    def rules(self, samples: int | None = None) -> RunRules:
        """Return the changed rules; wrong values are in `errors` by the field's name."""
        policy: dict[str, Any] = {}
        for name in (*SCORES, *RATES):
            self._read(policy, name, self._policy_field(name), self._most(name))
        bands = {name: policy.get(name, getattr(self.spec.policy, name)) for name in SCORES[:2]}
        if not self.errors and bands["borderline_threshold"] > bands["pass_threshold"]:
            self.errors["borderline_threshold"] = BANDS_CROSSED
        gate = self._policy_field(GATE)
        if gate.is_changed:
            policy[GATE] = gate.text
            if gate.text not in CHOICES[GATE]:
                self.errors[GATE] = "Choose one of the two."
        weights: dict[str, float] = {}
        required: dict[str, bool | float] = {}
        metrics: dict[str, dict[str, float | None]] = {}
        for row in self._rows():
            self._read(weights, row.path, row.weight)
            if changed := self._read_metrics(row.metrics):
                metrics[row.path] = changed
            if (row.required, row.below.text) == (row.required_saved, row.below.saved):
                continue
            if not row.required or not row.below.text:
                required[row.path] = row.required
            else:
                self._read(required, row.path, row.below, self.scale)
        return RunRules(policy, weights, required, samples, metrics)

    @property
    def rows(self) -> list[RuleRow]:
        """Return the evaluators in tree order, without the outermost composite."""
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
        """Return the field for the gate of cases."""
        return self._policy_field(GATE)

    @property
    def lost(self) -> list[str]:
        """Name the evaluators and metrics that the earlier rules change but the suite no longer has."""
        before = self.before
        present = {path for path, _ in walk(self.spec.evaluators)}
        changed = dict.fromkeys((*before.weights, *before.required, *before.metrics))
        judged = {row.path: {metric.key for metric in row.metrics} for row in self._rows()}
        return [
            *(path for path in changed if path not in present),
            *(
                f"{key} of {path}"
                for path, metrics in before.metrics.items()
                if path in present
                for key in metrics
                if key not in judged[path]
            ),
        ]

    @property
    def changed(self) -> int:
        """Return how many fields differ from the suite."""
        policy = [*self.scores, *self.rates, self.gate]
        of_rows = sum(
            row.weight.is_changed
            + ((row.required, row.below.text) != (row.required_saved, row.below.saved))
            + sum(metric.is_changed for metric in row.metrics)
            for row in self._rows()
        )
        return sum(rule.is_changed for rule in policy) + of_rows

    def _read(self, values: dict[str, Any], key: str, rule: RuleField, most: int = 0) -> None:
        """Read a share of `most`, or a weight without `most`; keep the error of a wrong value."""
        if not rule.is_changed:
            return
        try:
            values[key] = read_share(rule.text, most) if most else read_weight(rule.text)
        except WrongNumberError as refusal:
            self.errors[rule.name] = str(refusal)

    def _read_metrics(self, rows: Sequence[MetricRuleRow]) -> dict[str, float | None]:
        values: dict[str, float | None] = {}
        for row in rows:
            if row.is_changed and not row.counts:
                values[row.key] = None
            elif row.is_changed:
                try:
                    values[row.key] = read_weight(row.weight.text)
                except WrongNumberError as refusal:
                    self.errors[row.weight.name] = str(refusal)
        return values

    def _policy_field(self, name: str) -> RuleField:
        saved, then = (self._format(name, dict(spec.policy)) for spec in (self.spec, self.made_for))
        wanted = (
            self._format(name, {name: self.before.policy[name]})
            if name in self.before.policy
            else saved
        )
        return self._field(name, wanted, saved, then)

    def _format(self, name: str, policy: Mapping[str, Any]) -> str:
        return str(policy[name]) if name == GATE else share_text(policy[name], self._most(name))

    def _most(self, name: str) -> int:
        return self.scale if name in SCORES else PERCENT

    def _field(self, name: str, wanted: str, saved: str, then: str) -> RuleField:
        sent = None if self.data is None else self.data.get(name)
        # A field that the user did not change follows the suite.
        text = wanted if sent is None else saved if sent.strip() == then else sent.strip()
        return RuleField(name, text, saved, self.errors.get(name, ""))

    def _rows(self) -> Iterator[RuleRow]:
        walked = _walk(self.made_for)
        then = {path: _Saved.of(node, above, self.scale) for path, node, above in walked}
        for path, node, parent in _walk(self.spec):
            if parent is not None:
                saved = _Saved.of(node, parent, self.scale)
                row = self._row(path, node, saved, then.get(path, saved))
                yield replace(row, metrics=self._metrics(path, node))

    def _metrics(self, path: str, node: EvaluatorSpec) -> Sequence[MetricRuleRow]:
        """Return the metrics of a metrics judge, then those that every such judge knows."""
        if node.kind != METRICS_KIND:
            return ()
        old = dict(walk(self.made_for.evaluators)).get(path, node)
        try:
            saved, then = (
                {metric.key: metric for metric in judge_metrics(judge.config, evaluator=path)}
                for judge in (node, old if old.kind == METRICS_KIND else node)
            )
        except InvalidConfigError:
            # The start is refused by the same error.
            return ()
        known = {key: MetricSetting.model_validate(key) for key in FACTS}
        wanted = self.before.metrics.get(path, {})
        rows = []
        for key, metric in (saved | {key: known[key] for key in known if key not in saved}).items():
            counts_name, weight_name = f"metric:{path}:{key}", f"metric-weight:{path}:{key}"
            counts = wanted[key] is not None if key in wanted else key in saved
            if self.data is not None and weight_name in self.data:
                sent = counts_name in self.data
                counts = key in saved if sent == (key in then) else sent
            weight = wanted.get(key)
            texts = (metric.weight if weight is None else weight, metric.weight)
            before = then.get(key, metric).weight
            field = self._field(weight_name, *map(number_text, (*texts, before)))
            rows.append(
                MetricRuleRow(
                    key, metric.name, metric.tier, counts_name, counts, key in saved, field
                )
            )
        return rows

    def _row(self, path: str, node: EvaluatorSpec, saved: _Saved, then: _Saved) -> RuleRow:
        weight, required = saved.weight, saved.required
        below = saved.below
        if path in self.before.weights:
            weight = number_text(self.before.weights[path])
        if path in self.before.required:
            minimum = self.before.required[path]
            required = bool(minimum) or not isinstance(minimum, bool)
            below = "" if isinstance(minimum, bool) else share_text(minimum, self.scale)
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
    """The suite's values for one evaluator, as text of its fields."""

    weight: str
    required: bool
    below: str

    @classmethod
    def of(cls, node: EvaluatorSpec, parent: EvaluatorSpec | None, scale: int) -> _Saved:
        below = node.required_below
        return cls(
            weight="" if parent is None else number_text(parent.child_weight(node)),
            required=node.is_required,
            below="" if below is None else share_text(below, scale),
        )


def _walk(
    spec: SuiteSpec,
) -> Iterator[tuple[str, EvaluatorSpec, EvaluatorSpec | None]]:
    """Yield path, node and parent of every evaluator in tree order."""
    nodes = dict(walk(spec.evaluators))
    for path, node in nodes.items():
        yield path, node, nodes[path.rpartition("/")[0]] if path else None
