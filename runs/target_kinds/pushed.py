"""Wait for outputs that a program pushes while the run is open.

The agent runs wherever it is: in a test, a pipeline, or another language. A program starts the run, asks the agent
about each case, and pushes what it answered to the API (`/api/runs/<run>/outputs`), in any order. Each output is
scored as soon as it arrives. A result whose output never comes ends with the run.
"""

from __future__ import annotations

from evaluators.kinds._base import Output
from runs.engine.ports import Cause, TargetFailure
from runs.target_kinds._base import TargetConfig, TargetContext, target_kind
from runs.target_kinds._outputs import output_from_json

ERROR = "error"
# Lists show it whole.
MAX_ERROR_LENGTH = 2_000


class PushedConfig(TargetConfig):
    """Nothing to set: the program that pushes knows the agent."""


@target_kind(label="Pushed outputs", icon="i-upload", config=PushedConfig, awaits=True)
async def answer(config: PushedConfig, context: TargetContext) -> Output | TargetFailure:
    """Return the pushed output, or the error that was pushed in its place."""
    pushed = context.recorded
    if pushed is None:
        return TargetFailure(f"no output was pushed for case {context.case.key}", Cause.MISSING)
    if error := pushed.get(ERROR):
        text = str(error)
        is_long = len(text) > MAX_ERROR_LENGTH
        return TargetFailure(f"{text[:MAX_ERROR_LENGTH]}…" if is_long else text, Cause.FAILED)
    try:
        return output_from_json(pushed)
    except (ValueError, TypeError) as error:
        reason = f"the pushed output of case {context.case.key} cannot be read: {error}"
        return TargetFailure(reason, Cause.BAD_REPLY)
