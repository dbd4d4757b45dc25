"""Make cases and recorded outputs of traces in the inbox, and delete traces."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from evaluators.models import AuditEntry
from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import counted
from runs.cases.services import put_cases
from runs.files.importing import import_recorded_outputs
from runs.models.database import update_rows
from runs.models.suites import RecordedOutput, Suite
from runs.models.traces import Trace, TraceState
from runs.specs.suites import CaseSpec
from runs.traces.queries import read_traces

MAX_USED_AS_LENGTH = 300
MAX_REASONS = 5
# The last digits are random in every kind of trace id.
FROM_TRACE, KEY_DIGITS = "from_trace", 12


class NothingToRecordError(DomainError):
    """None of the traces has an answer for a case of the suite."""

    code = "nothing_to_record"


@dataclass(slots=True)
class UsedTraces:
    """How many traces were used, and why others were left."""

    count: int = 0
    refused: list[str] = field(default_factory=list)

    @property
    def reasons(self) -> list[str]:
        """Return the first reasons, each once with how often it holds."""
        counts = Counter(self.refused).most_common(MAX_REASONS)
        return [f"{counted(count, 'trace')} {reason}." for reason, count in counts]


def create_cases(
    traces: Sequence[Trace], *, suite: Suite, keeps_answer: bool, expects_answer: bool, by: User
) -> UsedTraces:
    """Make a case of each trace that has a question, in one version of the suite.

    Its key follows from the trace, so doing it twice makes one case. Raises SuiteArchivedError and InvalidCaseError.
    """
    used, whole, made = UsedTraces(), read_traces(traces), dict[int, CaseSpec]()
    for trace in traces:
        content = whole.get(trace.pk)
        if content is None or not content.question:
            used.refused.append("without a question")
            continue
        has_answer = "output" in content.output
        made[trace.pk] = CaseSpec(
            key=f"trace-{trace.trace_id[-KEY_DIGITS:]}",
            input=tuple(dict(turn) for turn in content.question),
            expected_output=content.output["output"] if expects_answer and has_answer else "",
            recorded_output=dict(content.output) if keeps_answer and has_answer else None,
            metadata={FROM_TRACE: trace.trace_id},
        )
    with transaction.atomic():
        if made:
            put_cases(suite, list(made.values()), by=by)
        _note_uses({pk: f"case {case.key}" for pk, case in made.items()}, suite)
    used.count = len(made)
    return used


def record_outputs(traces: Sequence[Trace], *, suite: Suite, target: str, by: User) -> UsedTraces:
    """Record the answer of each trace for the case that it names, or else the one with the same input.

    They join the outputs that the target has. Raises NothingToRecordError, and TargetKindDiffersError.
    """
    used, whole = UsedTraces(), read_traces(traces)
    cases = suite.cases.filter(is_current=True).order_by().values_list("key", "input")
    by_input = {_input_text(turns): key for key, turns in cases}
    keys = set(by_input.values()) | {key for key, _ in cases}
    chosen: dict[str, Trace] = {}
    for trace in traces:
        content = whole.get(trace.pk)
        key = trace.case_key if trace.case_key in keys else ""
        if content is None or "output" not in content.output:
            used.refused.append("without an answer")
        elif not (key := key or by_input.get(_input_text(content.question), "")):
            used.refused.append(f"without a case in {suite.title}")
        elif key in chosen:
            used.refused.append("with the same case as an earlier one")
        else:
            chosen[key] = trace
    if not chosen:
        raise NothingToRecordError(" ".join(used.reasons))
    with transaction.atomic():
        before = RecordedOutput.objects.filter(target__name=target.strip())
        outputs = {
            **dict(before.values_list("case_key", "output")),
            **{key: whole[trace.pk].output for key, trace in chosen.items()},
        }
        lines = (json.dumps({**output, "id": key}) for key, output in outputs.items())
        import_recorded_outputs(target_name=target, lines=lines, imported_by=by)
        _note_uses({trace.pk: f"output of case {key}" for key, trace in chosen.items()}, suite)
    used.count = len(chosen)
    return used


def _input_text(turns: Sequence[Mapping[str, Any]]) -> str:
    """Return what people compare: the texts of the input, without the instructions to the model."""
    texts = (turn["content"] for turn in turns if turn["role"] != "system")
    return "\n".join(" ".join(str(text).split()) for text in texts)


def _note_uses(uses: Mapping[int, str], suite: Suite) -> None:
    """Note of traces, by id, what they became in a suite."""
    rows = [
        (TraceState.USED, f"{use} of {suite.title}"[:MAX_USED_AS_LENGTH], suite.pk, pk)
        for pk, use in uses.items()
    ]
    update_rows(Trace, ("state", "used_as", "suite_id"), rows, key=("id",))


def delete_traces(traces: Sequence[Trace], *, by: User) -> int:
    """Delete traces, record it in the audit, and return how many."""
    with transaction.atomic():
        size = sum(trace.size for trace in traces)
        count = Trace.objects.filter(pk__in=[trace.pk for trace in traces]).remove()
        AuditEntry.objects.record(
            "delete",
            by=by,
            object_type="traces",
            object_name=counted(count, "trace"),
            before={"traces": count, "bytes": size},
            after={},
        )
    return count
