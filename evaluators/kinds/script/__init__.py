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
with their tool calls in `input_messages` and `output_messages`, `trace_summary`, `metadata`, `config` and
more, in snake_case and in camelCase. `protocol:` chooses the other protocol.

**Both protocols** set `EVAL_CASE_ID`, `EVAL_INPUT`, `EVAL_EXPECTED_OUTPUT`, `EVAL_CRITERIA`,
`EVAL_EXPECTED_OUTCOMES` and `EVAL_METADATA` (JSON), `EVAL_EVALUATOR`, and `EVAL_WORKSPACE`, a folder with a
copy of the files the agent left; under bubblewrap it is `/workspace`.

The script prints that one JSON object and nothing else; anything more belongs on stderr. If the script
crashes, times out, prints anything else on stdout or gives a score out of range, there is no score, never 0;
the page shows the end of stderr.

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

from typing import Any, Self

from pydantic import Field, model_validator

from evaluators.kinds._base import Context, KindConfig, kind
from evaluators.kinds.script.program import Protocol, ScriptSettings, named_settings
from evaluators.kinds.script.running import judge_by_script
from evaluators.scoring.types import Outcome


class ScriptConfig(ScriptSettings, KindConfig):
    """The program, how it is told of the output, and what it may use."""

    protocol: Protocol = Field(
        "env",
        description="env: variables in, a score of 0 to 100 out. stdin: JSON in, 0 to 1 out.",
    )

    @model_validator(mode="after")
    def _has_one_program(self) -> Self:
        if problem := self.program_problem:
            raise ValueError(problem)
        return self


def read(config: dict[str, Any]) -> dict[str, Any]:
    """Return a file's settings under their names: run and code are a script, cmd is a command."""
    return named_settings(config)


@kind(
    label="Script",
    icon="e-code",
    config=ScriptConfig,
    uses_sandbox=True,
    read=read,
    spellings={"code_judge": {"protocol": "stdin"}, "code_grader": {"protocol": "stdin"}},
)
async def score(config: ScriptConfig, context: Context) -> Outcome:
    """Return the score the script prints, with its hits and misses."""
    return await judge_by_script(config, config.protocol, context)
