"""Prompts of promptfoo that functions write: one call for each test, all of them in few processes.

A function gets the `vars` of a test, and the provider where there is one, and returns a text or messages. A file in
Python without a function is a program that reads the same as JSON from its first argument and prints the prompt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from evaluators.reading.json import read_json
from runs.formats.prompt_programs import RunProgram, program_output
from runs.formats.tools._base import as_text

# What one process writes stays far below what is read of it.
CALLS_AT_ONCE = 100

PYTHON = """#!/usr/bin/env python3
import asyncio, contextlib, importlib.util, inspect, io, json, os, runpy, sys

given = json.load(sys.stdin)
file, function = os.path.abspath(given["file"]), given["function"]
sys.path.insert(0, os.path.dirname(file))


def write(context):
    if function:
        got = getattr(module, function)(context)
        return asyncio.run(got) if inspect.isawaitable(got) else got
    sys.argv = [file, json.dumps(context)]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(file, run_name="__main__")
    return printed.getvalue().strip()


with contextlib.redirect_stdout(sys.stderr):
    if function:
        spec = importlib.util.spec_from_file_location("prompts_of_the_suite", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    prompts = [write(context) for context in given["contexts"]]
print(json.dumps(prompts))
"""
JAVASCRIPT = """#!/usr/bin/env node
const path = require("path");
const { pathToFileURL } = require("url");
const given = JSON.parse(require("fs").readFileSync(0, "utf8"));
console.log = console.info = console.error;
(async () => {
  const module = await import(pathToFileURL(path.resolve(given.file)).href);
  const whole = module.default && module.default.default ? module.default.default : module.default || module;
  const write = given.function ? module[given.function] || whole[given.function] : whole;
  const prompts = [];
  for (const context of given.contexts) prompts.push(await write(context));
  process.stdout.write(JSON.stringify(prompts));
})().catch((error) => {
  const isOld = error && error.code === "ERR_UNKNOWN_FILE_EXTENSION" && given.file.endsWith(".ts");
  console.error(isOld ? `TypeScript needs Node 22.18 or newer; this is ${process.version}` : error);
  process.exitCode = 1;
});
"""
WRAPPERS = {".py": PYTHON, **dict.fromkeys((".js", ".cjs", ".mjs", ".ts"), JAVASCRIPT)}


def is_function(program: str) -> bool:
    """Tell whether a program, such as `prompts.py:ask`, is in a language whose functions can be called here."""
    return _suffix(program) in WRAPPERS


def written_prompts(
    program: str,
    contexts: Sequence[Mapping[str, Any]],
    folder: str,
    files: Mapping[str, bytes],
    run: RunProgram,
) -> list[str]:
    """Return the prompt that a program writes for each context; raises ValueError with the reason."""
    file, _, function = program.partition(":")
    prompts: list[str] = []
    for start in range(0, len(contexts), CALLS_AT_ONCE):
        some = contexts[start : start + CALLS_AT_ONCE]
        given = {"file": file, "function": function, "contexts": some}
        printed = program_output(
            [file],
            folder,
            files,
            run,
            wrapper=WRAPPERS[_suffix(program)],
            stdin=json.dumps(given, ensure_ascii=False).encode(),
        )
        try:
            written = read_json(printed, unstorable="replace")
        except ValueError:
            written = []
        if not isinstance(written, list) or len(written) < len(some) or None in written:
            raise ValueError(
                f"the program {program} returned no prompt for some tests; it has to return one for each, without "
                "ending the process or writing to standard output itself"
            )
        prompts += [as_text(_prompt(each)) for each in written]
    return prompts


def _prompt(written: Any) -> Any:
    """Return a prompt, also of a function that returns it beside a configuration."""
    return written["prompt"] if isinstance(written, Mapping) and "prompt" in written else written


def _suffix(program: str) -> str:
    return PurePosixPath(program.partition(":")[0]).suffix.lower()
