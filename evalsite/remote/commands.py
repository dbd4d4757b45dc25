"""The commands that work against a site elsewhere: their help, their options, and what ends each of them."""

from __future__ import annotations

import json
import signal
import sys
import traceback
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from evalsite.client import SERVER, TOKEN, Evalsite, EvalsiteError
from evalsite.remote import FAILED, MISUSED
from evalsite.remote.evaluation import add_evaluate_options, evaluate, run_name
from evalsite.remote.suites import add_suite_options, export_suite, import_files
from evaluators.scoring.types import DomainError
from runs.cli.files import STANDARD_OUTPUT, check_writable, write_file
from runs.cli.options import JSON, MARKDOWN, add_compare_options, add_export_options
from runs.cli.terminal import not_text, print_line
from runs.specs.problems import UnreadableFileError

COMPARISON_LIMITS = (
    "max_pass_rate_drop",
    "max_avg_score_drop",
    "max_latency_increase_pct",
    "min_cases",
)
SITE = f"""\
The site is the one of --server, or of {SERVER}; {TOKEN} holds a token for it, with the scopes run and edit.
"""
EPILOGS = {
    "import": f"""\
{SITE}
PATH is a folder, a zip or a suite file, as on the site's own machine. It is read here: nothing is sent unless
everything can be read. A suite that shares no case with the file is replaced only with --slug.

With --suite, PATH is a table whose rows are cases of that suite of the site, read as on the site's own machine.

exit codes:
  0  everything is stored
  2  wrong usage
  3  something is not stored, with the reason

examples:
  evalsite import evals/ --server https://evals.example.com
  evalsite import refunds.yaml --slug refunds-2 --judge gpt
  evalsite import cases.csv --suite refunds --map input=question
""",
    "evaluate": f"""\
{SITE}
SUITE is the short name of a suite of the site, or a path, which is imported first.

what answers:
  --agent "python agent.py"           a command on this machine, started for each case in this folder: the case is
                                      JSON on its standard input, its answer is what it prints
  --agent http://127.0.0.1:9000/ask   an agent that this machine reaches: {{"input": …}} is posted to it
  --outputs FILE                      outputs in this file (JSON Lines: {{"id": …, "output": …}})
  --target NAME                       a target of the site, which the site asks itself; several are a campaign
  --model SLUG                        a language model of the site, which gets only the messages of the case
  --target NAME --model SLUG          a chat target of the site with another model
  --outputs-of RUN                    the outputs of a finished run of the site, which are judged again

--set gives a setting of a target of the kind command or http, as text or JSON: --set reply=json,
--set 'body={{"messages": "{{{{messages}}}}"}}'. A command runs as you, without a sandbox.

Outputs are pushed while the agent is asked, and scored by the site. Ctrl-C stops the run and keeps what was
answered; --run continues it and asks only about the rest.

exit codes:
  0  both gates passed
  1  a gate failed
  2  wrong usage
  3  not evaluated: no such suite, no answer from the site, a run that was stopped, errors that decide

examples:
  evalsite evaluate support-agent --agent "python agent.py" --server https://evals.example.com
  evalsite evaluate ./evals --agent http://127.0.0.1:9000/ask --target "my agent" --junit report.xml
  evalsite evaluate support-agent --agent "python agent.py" --run support-agent#12
""",
    "compare": f"""\
{SITE}
BASELINE and CANDIDATE each name a run: SUITE#N, SUITE:latest or SUITE:baseline. The other options are those of
the site's own machine.

exit codes:
  0  no regression
  1  a regression
  2  inconclusive: not comparable, not completed, or too few shared cases
  3  not compared: wrong usage, no such run, no answer from the site

examples:
  evalsite compare support-agent:baseline support-agent:latest --markdown comment.md
""",
    "export": f"""\
{SITE}
The files are those that the command writes on the site's own machine; the ending of PATH says which.

exit codes:
  0  everything is written
  2  wrong usage
  3  nothing is written, with the reason

examples:
  evalsite export support-agent --out evals/support-agent/
""",
}
# Options of the site's own machine that need what the API does not take, with the way to the same end.
OUTPUTS_REMEDY = "Push the outputs into a run: evalsite evaluate SUITE --outputs FILE"
REFUSED: Mapping[tuple[str, str], str] = {
    ("import", "--note"): "The site itself says what a version changes; leave it out",
    **dict.fromkeys((("import", "--outputs"), ("import", "--target")), OUTPUTS_REMEDY),
}


class Parser(ArgumentParser):
    """Ends wrong usage with the command's own exit code."""

    misuse_code = MISUSED

    def error(self, message: str) -> NoReturn:
        """Print the usage and the reason."""
        self.print_usage(sys.stderr)
        self.exit(self.misuse_code, f"{self.prog}: {message}\n")


def main(words: Sequence[str]) -> int:
    """Run a command against a site elsewhere, and return its exit code."""
    name, *arguments = words
    parser = _parser(name)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        option = unknown[0].partition("=")[0]
        remedy = REFUSED.get((name, option), "Leave it out")
        parser.error(
            f"{option} is not an option for a site elsewhere. {remedy}, or use the command on the machine of the site."
        )
    # A terminal or a job that ends stops a run as Ctrl-C does.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    try:
        with Evalsite(options.server) as site:
            return RUN[name](site, options, parser)
    except EvalsiteError as error:
        places = [f"{place}: {' '.join(texts)}" for place, texts in error.errors.items()]
        message = "\n".join(places) or str(error)
    except UnreadableFileError as error:
        message = "\n".join(map(str, error.problems))
    except DomainError as error:
        message = str(error)
    except UnicodeEncodeError as error:
        message = not_text(error)
    except OSError as error:
        message = f"{error.filename or 'A file'}: {error.strerror}."
    except Exception as error:  # noqa: BLE001 - the exit code of a traceback would say that a gate failed
        traceback.print_exc()
        message = f"The command failed: {type(error).__name__}: {error}"
    print_line(sys.stderr, message)
    return FAILED


def _parser(name: str) -> Parser:
    parser = Parser(
        prog=f"evalsite {name}",
        epilog=EPILOGS[name],
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--server", default="", metavar="URL", help="Address of the site.")
    PARSERS[name](parser)
    return parser


def _add_import(parser: ArgumentParser) -> None:
    # Imported here: reading files takes longer to load than a run of the site to start.
    from runs.cli.table_in import add_table_options

    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="What to import.")
    add_suite_options(parser)
    add_table_options(parser)


def _add_compare(parser: Parser) -> None:
    parser.misuse_code = FAILED
    add_compare_options(parser)


def _compare(site: Evalsite, options: Namespace, parser: Parser) -> int:
    written = [(JSON, options.json), (MARKDOWN, options.markdown)]
    check_writable(written)
    limits = {name: vars(options)[name] for name in COMPARISON_LIMITS}
    params = {
        "baseline_run_id": run_name(options.baseline),
        "candidate_run_id": run_name(options.candidate),
        "cases": "shared" if options.shared else "all",
        "force": options.force,
        **{name: value for name, value in limits.items() if value is not None},
    }
    report = site.get("runs/compare/report", **params)
    is_piped = any(path == STANDARD_OUTPUT for _, path in written)
    print_line(sys.stderr if is_piped else sys.stdout, report["text"])
    if options.json:
        outcome = {name: report[name] for name in ("exit_code", "conclusion")}
        document = site.get("runs/compare", **params) | outcome
        write_file(JSON, options.json, [json.dumps(document, indent=2), "\n"])
    if options.markdown:
        write_file(MARKDOWN, options.markdown, [report["comment"]])
    return int(report["exit_code"])


# By the names of evalsite.cli.REMOTE.
PARSERS: Mapping[str, Callable[[Any], None]] = {
    "import": _add_import,
    "evaluate": add_evaluate_options,
    "compare": _add_compare,
    "export": add_export_options,
}
RUN: Mapping[str, Callable[[Evalsite, Namespace, Parser], int]] = {
    "import": import_files,
    "evaluate": evaluate,
    "compare": _compare,
    "export": export_suite,
}
