"""Run your own script, which looks at the output and prints a score.

The script runs in a sandbox on a worker's machine: in a fresh directory, without secrets or network, with
limits on time, memory, processes and output. Scripts are off until the administrator enables them
(`EVALSITE_SCRIPTS`), and only members who may run scripts can start runs that use them.

**Program.** `command` is a list, or one command on one line. Its parts may name files of the suite:
`["python", "./judges/check.py"]`. Those files and everything else in their folders and below are stored with the
version of the suite and keep their places when the script runs, so it can import and read them. Hidden files
and other suites are left out. A text of several lines is the script itself: its first line names the
interpreter (`#!/usr/bin/env python3`), otherwise `sh` runs it.

**Protocol `env`** belongs to the type `script`. The script prints `{"score": 85, "reasoning": "…"}`, with a
score from 0 to 100. `EVAL_OUTPUT` holds the answer, cut at 128 KiB; the file that `EVAL_OUTPUT_FILE` names
holds all of it.

**Protocol `stdin`** belongs to the types `code_judge` and `code_grader`. The script reads the case and the
answer as one JSON object and prints
`{"score": 0.85, "hits": ["…"], "misses": ["…"], "reasoning": "…"}`, with a score from 0 to 1. Instead of hits
and misses it may print `assertions` or `checks`, a list of `{"text": "…", "passed": true}`. It reads
`question`, `criteria`, `expected_output`, `output` (also `reference_answer`, `candidate_answer`), the messages
with their tool calls in `input_messages` and `output_messages`, the paths of files in the input in
`input_files`, `trace_summary`, `metadata`, `config` and more, in snake_case and in camelCase. With
`messages: true`, which `code_grader` implies, `output` and `expected_output` are messages as well, and
`output_text` and `expected_output_text` are the texts. `protocol:` chooses the other protocol. In suite files, settings that no
script has are put into `config`, so that a script finds its own there.

**Both protocols** set `EVAL_CASE_ID`, `EVAL_INPUT`, `EVAL_EXPECTED_OUTPUT`, `EVAL_CRITERIA`,
`EVAL_EXPECTED_OUTCOMES` and `EVAL_METADATA` (JSON), `EVAL_EVALUATOR`, and `EVAL_WORKSPACE`, a folder with a
copy of the files the agent left; under bubblewrap it is `/workspace`.

The script prints that one JSON object and nothing else; anything more belongs on stderr. If the script
crashes, times out, prints anything else on stdout or gives a score out of range, there is no score. It is
never 0. The page shows the end of stderr, or of stdout if stderr is empty.

Good: checks what a program can decide, for example by running tests against the agent's code.

Bad: prints the agent's answer before its own JSON. The answer could then pose as the verdict, so two objects
are refused.

```yaml
name: says_what_happens
type: script
timeout_s: 30
script: |
  #!/usr/bin/env python3
  import json, os

  answer = os.environ["EVAL_OUTPUT"].lower()
  wanted = ("refund", "invoice", "business days")
  missing = [word for word in wanted if word not in answer]
  print(json.dumps({
      "score": 100 * (1 - len(missing) / len(wanted)),
      "reasoning": f"does not name {', '.join(missing)}" if missing else "names all of it",
  }))
```
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from posixpath import relpath
from typing import Any, Self

from pydantic import Field, model_validator

from evaluators.kinds._base import (
    ChildResult,
    Context,
    KindConfig,
    Message,
    SandboxRefusal,
    ScriptCall,
    ScriptResult,
    Step,
    kind,
)
from evaluators.kinds._judging import keep_findings
from evaluators.kinds._prompts import last_question
from evaluators.kinds.script.program import (
    OUTPUT_FILE,
    Protocol,
    ScriptSettings,
    named_settings,
    read_program,
)
from evaluators.reading.json import MAX_REPLY_VALUES, read_json, storable
from evaluators.scoring.numbers import on_scale
from evaluators.scoring.types import (
    DomainError,
    Finding,
    Outcome,
    Score,
    ScoreOutOfRangeError,
    Skipped,
    Unscored,
    Usage,
)

ENV_SCALE = 100.0
STDIN_SCALE = 1.0
TEXT_KEYS = ("text", "name", "description", "message")
STAGE = "script"
USUAL_SECONDS = 60.0
MAX_KEPT = 4_000
MAX_REASON = 400
MAX_TEXT = 10_000
SCORE_BELOW_1 = (
    "the score is below 1 of 100; a script that scores from 0 to 1 needs the protocol stdin"
)
MAX_REPLY_LENGTH = 1_000_000
NO_SANDBOX = (
    "scripts are switched off on the machine that executes this run, or no sandbox works there"
)


class ScriptConfig(ScriptSettings, KindConfig):
    """The program, the protocol by which it gets the output, and what it may use."""

    protocol: Protocol = Field(
        "env",
        description="env: variables in, a score of 0 to 100 out. stdin: JSON in, 0 to 1 out.",
    )

    messages: bool = Field(
        False,
        description="Give output and expected_output on stdin as lists of messages instead of texts.",
    )

    @model_validator(mode="after")
    def _has_one_program(self) -> Self:
        if problem := self.program_problem:
            raise ValueError(problem)
        return self


def read(config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a file under their names: run and code are a script, cmd is a command."""
    return named_settings(config)


@kind(
    label="Script",
    icon="e-code",
    config=ScriptConfig,
    uses_sandbox=True,
    read=read,
    spellings={
        "code_judge": {"protocol": "stdin"},
        "code_grader": {"protocol": "stdin", "messages": True},
    },
)
async def score(config: ScriptConfig, context: Context) -> Outcome:
    """Return the score that the script prints, with its hits and misses."""
    return await judge_by_script(config, config.protocol, context, messages=config.messages)


async def judge_by_script(
    settings: ScriptSettings, protocol: Protocol, context: Context, *, messages: bool = False
) -> Outcome:
    """Return the score that a script prints for an output, or Unscored with the end of what it printed.

    With `messages` the script gets output and expected output as messages instead of texts.
    """
    if context.sandbox is None:
        return Unscored(NO_SANDBOX, stage=STAGE)
    program = read_program(settings, context.files)
    stdin = payload(context, settings, messages=messages) if protocol == "stdin" else b""
    answer = {OUTPUT_FILE: context.output.text.encode("utf-8", "replace")}
    call = ScriptCall(
        command=program.command,
        stdin=stdin,
        environment=environment(context),
        files={**context.files, **program.files, **answer},
        workspace=context.output.files,
        seconds=settings.timeout_s or USUAL_SECONDS,
        needs_network=settings.network,
    )
    try:
        result = await context.sandbox.run(call)
    except SandboxRefusal as refusal:
        return Unscored(f"the script was not started: {refusal}", stage=STAGE)
    return _read(result, protocol)


def _read(result: ScriptResult, protocol: Protocol) -> Outcome:
    details = {"protocol": protocol, **_kept_details(result)}
    usage = Usage(latency_ms=result.duration_ms)
    if failure := failure_text(result):
        return Unscored(failure, stage=STAGE, details=details, usage=usage)
    try:
        score = (
            read_env_reply(result.stdout) if protocol == "env" else read_stdin_reply(result.stdout)
        )
    except ScriptReplyError as error:
        reason = _storable(str(error), MAX_REASON) + _printed_text(result)
        return Unscored(reason, stage=STAGE, details=details, usage=usage)
    return _storable_score(score, details, usage)


def failure_text(result: ScriptResult) -> str:
    """Say what stopped a script or how it failed, with the end of what it printed; "" if it succeeded."""
    failure = _failure(result)
    return failure + _printed_text(result) if failure else ""


def _failure(result: ScriptResult) -> str:
    if result.exit_code is None:
        return f"the script was stopped by {result.ended_by or 'something outside'}"
    at = f" at {result.ended_by}" if result.ended_by else ""
    if result.exit_code or at:
        return f"the script ended with exit code {result.exit_code}{at}"
    if len(result.stdout) > MAX_REPLY_LENGTH:
        return f"the script printed {len(result.stdout):,} characters; at most a million are read"
    return ""


def _printed_text(result: ScriptResult) -> str:
    """Return the end of stderr, or else of stdout, as the end of a sentence; "" if both are empty."""
    for name, text in (("stderr", result.stderr), ("stdout", result.stdout)):
        if end := " ".join(_storable(text.strip()[-MAX_REASON:]).split()):
            return f"; {name} ends: {end}"
    return ""


def _kept_details(result: ScriptResult) -> Mapping[str, Any]:
    return {
        "exit_code": result.exit_code,
        "ended_by": result.ended_by,
        "duration_ms": result.duration_ms,
        "sandbox": result.sandbox,
        "stdout": _storable(result.stdout.strip()[-MAX_KEPT:]),
        "stdout_length": len(result.stdout.strip()),
        "stderr": _storable(result.stderr.strip()[-MAX_KEPT:]),
        "stderr_length": len(result.stderr.strip()),
    }


def _storable_score(score: Score, details: Mapping[str, Any], usage: Usage) -> Score:
    is_tiny = score.scale == ENV_SCALE and 0 < (score.raw_score or 0) < 1
    kept, warnings = keep_findings(score.findings, "findings")
    findings = tuple(
        Finding(_storable(finding.text), finding.passed, _storable(finding.evidence))
        for finding in kept
    )
    return replace(
        score,
        reasoning=_storable(score.reasoning),
        findings=findings,
        details=details,
        usage=usage,
        warnings=(*warnings, SCORE_BELOW_1) if is_tiny else warnings,
    )


def _storable(text: str, most: int = MAX_TEXT) -> str:
    plain: str = storable(text)
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"


# The longest variable that a program can be started with, with its name and the closing NUL.
MAX_VARIABLE_LENGTH = 128 * 1024


def environment(context: Context) -> dict[str, str]:
    """Return the variables of a script, each cut to the length that programs can be started with."""
    case = context.case
    variables = {
        "EVAL_OUTPUT": context.output.text,
        "EVAL_CASE_ID": case.key,
        "EVAL_INPUT": last_question(context),
        "EVAL_EXPECTED_OUTPUT": case.expected_output,
        "EVAL_CRITERIA": case.criteria,
        "EVAL_EXPECTED_OUTCOMES": _json(list(case.expected_outcomes)),
        "EVAL_METADATA": _json(dict(case.metadata)),
        "EVAL_EVALUATOR": context.path,
    }
    return {name: _fit_variable(name, value) for name, value in variables.items()}


def payload(context: Context, settings: ScriptSettings, *, messages: bool = False) -> bytes:
    """Return the JSON object of the stdin protocol.

    Unknown figures are null at the top and missing within the summary of the trace, as in AgentV.
    """
    case, output = context.case, context.output
    question = last_question(context)
    expected = [{"role": "assistant", "content": case.expected_output}]
    answered = _output_messages(context)
    conversation = [{"role": turn.role, "content": turn.content} for turn in case.input]
    summary = _trace_summary(context)
    facts = {
        **{"eval_id": case.key, "case_id": case.key, "evaluator": context.path},
        **{"question": question, "input_text": question, "task": question},
        **{"input": conversation, "input_messages": conversation},
        **{"criteria": case.criteria, "expected_outcome": case.criteria, "outcome": case.criteria},
        "expected_outcomes": list(case.expected_outcomes),
        "expected_output": (expected if case.expected_output else [])
        if messages
        else case.expected_output,
        "expected": case.expected_output,
        **{"reference_answer": case.expected_output, "expected_output_text": case.expected_output},
        "expected_messages": expected if case.expected_output else [],
        **{"output": answered if messages else output.text, "output_text": output.text},
        **{"candidate_answer": output.text, "answer": output.text},
        **{"output_messages": answered, "messages": answered},
        **{"guideline_files": [], "input_files": _input_files(context, settings.cwd)},
        "output_files": sorted(output.files),
        **{"trace": summary, "trace_summary": summary},
        **{name: summary.get(name) for name in ("token_usage", "cost_usd", "duration_ms")},
        **{"metadata": case.metadata, "config": settings.config},
    }
    if context.results:
        results = [_result(child) for child in context.results]
        facts["evaluator_results"] = results
        facts["results"] = {str(result["name"]): result for result in results}
    # A key at a time: together they name a long output nine times.
    body, separator = BytesIO(), "{"
    for name, value in _both_cases(facts).items():
        body.write(f"{separator}{_json(name)}: {_json(value)}".encode())
        separator = ", "
    body.write(b"}")
    return body.getvalue()


def _input_files(context: Context, cwd: str) -> list[str]:
    """Return the files in the input of the case, by their paths from where the script starts."""
    named = dict.fromkeys(path for turn in context.case.input for path in turn.files)
    return [relpath(path, cwd or ".") for path in named if path in context.files]


def _both_cases(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping with its keys in snake_case and in camelCase."""
    camel = {re.sub(r"_([a-z])", lambda m: m.group(1).upper(), key): values[key] for key in values}
    return {**values, **camel}


def _output_messages(context: Context) -> list[dict[str, Any]]:
    """Return the target's messages, with its tool calls in the last one."""
    turns = context.output.messages or (Message("assistant", context.output.text),)
    messages: list[dict[str, Any]] = [{"role": t.role, "content": t.content} for t in turns]
    calls = [_both_cases(_call(step)) for step in context.output.trace or () if step.type == "tool"]
    last = next((turn for turn in reversed(messages) if turn["role"] == "assistant"), None)
    if calls and last is not None:
        last |= {"tool_calls": calls, "toolCalls": calls}
    return messages


def _call(step: Step) -> dict[str, Any]:
    facts = {
        **{"tool": step.name, "input": step.input, "output": step.output},
        **{"duration_ms": step.duration_ms, "error": step.error or None},
    }
    return {name: value for name, value in facts.items() if value is not None}


def _trace_summary(context: Context) -> dict[str, Any]:
    output = context.output
    steps = output.trace or ()
    calls = Counter(step.name for step in steps if step.type == "tool")
    tokens = {"input": output.usage.input_tokens, "output": output.usage.output_tokens}
    cost = output.usage.cost_usd
    summary = {
        "event_count": len(steps),
        "tool_names": sorted(calls),
        "tool_calls_by_name": dict(calls),
        "tool_calls": dict(calls),
        "error_count": sum(1 for step in steps if step.error),
        "token_usage": None if None in tokens.values() else tokens,
        "cost_usd": None if cost is None else float(cost),
        "duration_ms": output.usage.latency_ms,
    }
    return _both_cases({name: value for name, value in summary.items() if value is not None})


def describe_child(child: ChildResult) -> dict[str, Any]:
    """Return the result of a child and of everything below it, as plain JSON values."""
    outcome = child.outcome
    facts: dict[str, Any] = {
        **{"name": child.name, "type": child.kind, "weight": child.weight, "score": child.score},
        **{"verdict": child.verdict or None, "status": _status(outcome)},
        "hits": [finding.text for finding in _findings(outcome) if finding.passed],
        "misses": [finding.text for finding in _findings(outcome) if not finding.passed],
        "reasoning": outcome.reasoning if isinstance(outcome, Score) else "",
        "error": outcome.reason if isinstance(outcome, Unscored | Skipped) else None,
    }
    if child.results:
        facts["evaluator_results"] = [describe_child(result) for result in child.results]
    return facts


def _result(child: ChildResult) -> dict[str, Any]:
    """Return the result of a child with its keys in both cases."""
    facts = describe_child(child)
    if child.results:
        facts["evaluator_results"] = [_result(result) for result in child.results]
    return _both_cases(facts)


def _findings(outcome: Outcome | None) -> Sequence[Finding]:
    return outcome.findings if isinstance(outcome, Score) else ()


def _status(outcome: Outcome | None) -> str:
    if isinstance(outcome, Score):
        return "scored"
    return "skipped" if isinstance(outcome, Skipped) else "unscored"


def _fit_variable(name: str, value: str) -> str:
    """Return a value that fits into a variable: without NUL, cut between characters."""
    room = MAX_VARIABLE_LENGTH - len(name) - 2
    encoded = value.replace("\0", "").encode("utf-8", "replace")
    return encoded[:room].decode("utf-8", "ignore")


def _json(value: Any) -> str:
    return json.dumps(value, default=str)


class ScriptReplyError(DomainError):
    """A script printed something that is not a score."""

    code = "unreadable_script_reply"


def read_env_reply(stdout: str) -> Score:
    """Return the score of the env protocol: {"score": 0–100, "reasoning"}.

    Raises ScriptReplyError if the output is not one JSON object with a score in that range.
    """
    return _score(_object(stdout), ENV_SCALE)


def read_stdin_reply(stdout: str) -> Score:
    """Return the score of the stdin protocol: {"score": 0–1, "hits", "misses", "reasoning"}.

    `assertions` and `checks` are findings too, each with text and passed (or pass). Raises ScriptReplyError
    if the output is not one JSON object of that form.
    """
    return _score(_object(stdout), STDIN_SCALE)


def _object(stdout: str) -> Mapping[str, Any]:
    if not stdout.strip():
        raise ScriptReplyError("the script printed nothing")
    try:
        reply = read_json(
            stdout, keeps_last=True, unstorable="replace", max_values=MAX_REPLY_VALUES
        )
    except ValueError as error:
        raise ScriptReplyError(
            f"the script printed no JSON ({error}); stdout must be one JSON object and nothing else"
        ) from error
    if not isinstance(reply, dict):
        raise ScriptReplyError("the script printed JSON that is not an object")
    return reply


def _score(reply: Mapping[str, Any], scale: float) -> Score:
    raw = reply.get("score")
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        raise ScriptReplyError(f"score {raw!r} is not a number")
    try:
        score = on_scale(raw, scale, "score")
    except ScoreOutOfRangeError as error:
        raise ScriptReplyError(str(error)) from error
    reasoning = reply.get("reasoning") or reply.get("reason") or ""
    return Score(
        score=score,
        raw_score=float(raw),
        scale=scale,
        reasoning=reasoning if isinstance(reasoning, str) else json.dumps(reasoning),
        findings=_printed_findings(reply),
    )


def _printed_findings(reply: Mapping[str, Any]) -> tuple[Finding, ...]:
    findings = [Finding(text, passed=True) for text in _texts(reply, "hits")]
    findings += [Finding(text, passed=False) for text in _texts(reply, "misses")]
    for name in ("assertions", "checks"):
        findings += [_finding(entry, name) for entry in _entries(reply, name)]
    return tuple(findings)


def _finding(entry: Any, name: str) -> Finding:
    facts = entry if isinstance(entry, Mapping) else {}
    passed = facts.get("passed", facts.get("pass"))
    text = next((facts[key] for key in TEXT_KEYS if key in facts), None)
    if not isinstance(passed, bool) or not isinstance(text, str):
        raise ScriptReplyError(f"{name}: {entry!r} is not an object with text and passed")
    evidence = facts.get("evidence") or facts.get("reason") or ""
    return Finding(text, passed, evidence if isinstance(evidence, str) else json.dumps(evidence))


def _texts(reply: Mapping[str, Any], name: str) -> Sequence[str]:
    entries = _entries(reply, name)
    if not all(isinstance(entry, str) for entry in entries):
        raise ScriptReplyError(f"{name} is not a list of texts")
    return entries


def _entries(reply: Mapping[str, Any], name: str) -> Sequence[Any]:
    entries = reply.get(name)
    if entries is None:
        return ()
    if not isinstance(entries, list):
        raise ScriptReplyError(f"{name} is not a list")
    return entries
