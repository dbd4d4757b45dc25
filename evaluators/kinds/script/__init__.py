"""Run a script of your own that looks at the output and prints a score.

The script runs on the machine of a worker, locked into a sandbox: a fresh directory, no secrets, no
network, limits on time, memory, processes and output. Scripts are off until whoever runs the site
switches them on (`EVALSITE_SCRIPTS`), and only members who may run scripts can start such runs.

**Program.** `command` is a list, or one command in a line; its parts may name files of the suite:
`["python", "./judges/check.py"]`. Those files are stored with the suite's version together with all
others in the same folder and below, and lie at the same places when the script runs, so that it can
import and read them; hidden files, and suites beside the suite's own file, are left out. A text of several lines is the script itself: the
interpreter stands in its first line (`#!/usr/bin/env python3`), else `sh` runs it.

**Protocol `env`**, that of the type `script`. The script prints
`{"score": 85, "reasoning": "…"}`, from 0 to 100. It finds the answer in `EVAL_OUTPUT`, cut at 128 KiB,
and whole in the file `EVAL_OUTPUT_FILE` names.

**Protocol `stdin`**, that of the types `code_judge` and `code_grader`. The script reads case and answer
as one JSON object and prints
`{"score": 0.85, "hits": ["…"], "misses": ["…"], "reasoning": "…"}`, from 0 to 1; in place of hits and
misses it may print `assertions` or `checks`, a list of `{"text": "…", "passed": true}`. It reads
`question`, `criteria`, `expected_output`, `output` (also `reference_answer`, `candidate_answer`), the
messages in `input_messages` and `output_messages`, tool calls with them, `trace_summary`, `metadata`,
`config` and more, in snake_case and in camelCase. `protocol:` asks for the other one.

**In both** stand `EVAL_CASE_ID`, `EVAL_INPUT`, `EVAL_EXPECTED_OUTPUT`, `EVAL_CRITERIA`,
`EVAL_EXPECTED_OUTCOMES` and `EVAL_METADATA` (JSON), `EVAL_EVALUATOR` and `EVAL_WORKSPACE`, a copy of the
files the agent left; under bubblewrap it is `/workspace`.

The output of the script is that one JSON object and nothing else: what it has to tell besides goes to
stderr. A crash, a time-out, anything else on stdout and a score out of range are no score, never 0;
the page shows the end of stderr.

Good: checks what a program can decide, such as running the tests against the agent's code.

Bad: prints the agent's answer before its own JSON. An answer could then pose as the verdict, so two
objects are refused.

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
from evaluators.kinds.script.running import judged_by_script
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
    return await judged_by_script(config, config.protocol, context)
