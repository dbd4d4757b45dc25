"""Write a suite to a file, in its current or an earlier version."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from runs.cli.command import SiteCommand, get_suite
from runs.cli.options import add_export_options
from runs.cli.suite_out import write_out
from runs.suites.files import suite_with_cases

EPILOG = """\
The command writes a suite file that other tools of the AgentEvals family can read too; importing it
again changes nothing. PATH decides the format:

  suite.yaml     only the suite file, for a suite that refers to no prompt or script files
  suite.jsonl    one case on each line, everything else in suite.yaml in the same folder
  suite.zip      the suite file with the files it refers to
  evals/         the same, unpacked in this folder, with the suite file as SUITE.yaml
  -              the YAML, or the zip if the suite refers to files, on standard output

With --format promptfoo the file is a configuration of promptfoo, and what has no counterpart there is
printed on standard error.

Without --out the file is SUITE.yaml or SUITE.zip in the current folder. Existing files are replaced.

exit codes:
  0  everything is written
  2  wrong usage
  3  nothing is written, with the reason

examples:
  evalsite export support-agent
  evalsite export support-agent --out evals/support-agent/
  evalsite export support-agent --version 3 --out - | less
  evalsite export support-agent --format promptfoo --out promptfooconfig.yaml
"""


class Command(SiteCommand):
    """Find the version and write it part by part."""

    help = "Write a suite of this site to a file: its cases, evaluators, policy and the files it refers to."
    epilog = EPILOG
    action = "The export"

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the suite, its version and the path."""
        add_export_options(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Write the suite and print the paths."""
        suite = get_suite(options["suite"])
        content = suite_with_cases(suite, version=options["version"])
        out, format = options["out"], options["format"]
        if written := write_out(content, suite.slug, out, format, note=self.stderr.write):
            version = options["version"] or suite.version
            names = ", ".join(map(str, written))
            self.stderr.write(f"{suite.slug}, version {version}, is written to {names}")
