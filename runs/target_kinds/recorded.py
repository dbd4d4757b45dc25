"""Use outputs that were recorded earlier, one for each case.

The output comes from the case itself or from an uploaded JSONL file with one line per case. Nothing is
called, so a run against recorded outputs can be repeated exactly and costs only what its judges cost.
"""

from __future__ import annotations

from evaluators.kinds._base import Output
from runs.engine.ports import Cause, TargetFailure
from runs.target_kinds._base import TargetConfig, TargetContext, target_kind
from runs.target_kinds._outputs import output_from_json


class RecordedConfig(TargetConfig):
    """Nothing to set: the outputs are stored with the target or with the cases."""


@target_kind(label="Recorded outputs", icon="i-file", config=RecordedConfig, replays=True)
async def answer(config: RecordedConfig, context: TargetContext) -> Output | TargetFailure:
    """Return the stored output of the case."""
    if context.recorded is None:
        reason = f"no recorded output for case {context.case.key} in target {context.target}"
        return TargetFailure(reason, Cause.MISSING)
    try:
        return output_from_json(context.recorded, beside=context.files)
    except (ValueError, TypeError, AttributeError) as error:
        reason = f"the recorded output of case {context.case.key} cannot be read: {error}"
        return TargetFailure(reason, Cause.BAD_REPLY)
