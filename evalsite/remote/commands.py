"""The commands import, evaluate, compare and export against a site elsewhere, with the options that work there."""

from __future__ import annotations

import json
import os
import signal
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from evalsite.client import (
    CONCURRENCY,
    SERVER,
    TOKEN,
    Evalsite,
    EvalsiteError,
    batches,
)
from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import counted
from runs.cli.files import (
    CASES,
    JUNIT,
    OUT,
    STANDARD_OUTPUT,
    SUMMARY,
    FileOptions,
    check_writable,
    write_file,
)
from runs.cli.options import (
    JSON,
    MARKDOWN,
    add_compare_options,
    add_export_options,
    add_judging_options,
    add_run_options,
    add_suite_file_options,
)
from runs.cli.terminal import ProgressLine, import_message, print_line
from runs.specs.problems import UnreadableFileError

if TYPE_CHECKING:
    from runs.formats.finding import FoundSuite

DONE, MISUSED, FAILED = 0, 2, 3
CHAT = "chat"
NOT_FOUND = 404
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

exit codes:
  0  everything is stored
  2  wrong usage
  3  something is not stored, with the reason

examples:
  evalsite import evals/ --server https://evals.example.com
  evalsite import refunds.yaml --slug refunds-2 --judge gpt
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
TABLE_REMEDY = "Import a table of cases on the site, under From a spreadsheet, or send its rows to /api/suites/SUITE/cases"
REFUSED: Mapping[tuple[str, str], str] = {
    ("import", "--note"): "The site itself says what a version changes; leave it out",
    **dict.fromkeys((("import", "--outputs"), ("import", "--target")), OUTPUTS_REMEDY),
    **{
        ("import", option): TABLE_REMEDY
        for option in ("--suite", "--map", "--existing", "--leave-out-rejected")
    },
}
# What a run is started with, by the names of the options.
OF_A_START = (
    *("target", "model", "judge", "profile", "slug", "tag", "case", "samples", "repetitions"),
    *("budget", "max_minutes", "metric", "metric_weight"),
)


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
    except OSError as error:
        message = f"{error.filename or 'A file'}: {error.strerror}."
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


def _add_suite_options(parser: ArgumentParser) -> None:
    add_suite_file_options(parser)
    parser.add_argument("--judge", metavar="SLUG", help="Language model that judges.")


def _add_import(parser: ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="What to import.")
    _add_suite_options(parser)


def _add_evaluate(parser: ArgumentParser) -> None:
    parser.add_argument("suite", metavar="SUITE", help="Short name of a suite, or a path.")
    for option, metavar, text in (
        ("--agent", "COMMAND|URL", "The agent, on this machine."),
        ("--model", "SLUG", "A language model of the site, alone or for a chat target."),
        ("--run", "RUN", "Continue this run."),
    ):
        parser.add_argument(option, metavar=metavar, help=text)
    parser.add_argument(
        "--target",
        action="append",
        metavar="NAME",
        help="What the site calls the agent; alone: a target that the site asks, repeatable.",
    )
    parser.add_argument("--outputs", type=Path, metavar="FILE", help="Outputs to evaluate.")
    parser.add_argument(
        "--set", action="append", metavar="NAME=VALUE", help="A setting of the agent; repeatable."
    )
    parser.add_argument(
        "--concurrency",
        type=int,
        metavar="N",
        help=f"How many cases run in parallel; with an agent {CONCURRENCY}, if not given.",
    )
    add_run_options(parser)
    add_judging_options(parser)
    _add_suite_options(parser)
    FileOptions.add_to(parser)


def _add_compare(parser: Parser) -> None:
    parser.misuse_code = FAILED
    add_compare_options(parser)


def _import(site: Evalsite, options: Namespace, parser: Parser) -> int:
    for _, message in _store_suites(site, _read_suites(options.paths, options), options):
        print_line(sys.stdout, message)
    return DONE


def _read_suites(paths: Sequence[Path], options: Namespace) -> Sequence[FoundSuite]:
    """Return the suites at the paths; raises UnreadableFileError."""
    # Imported here: reading files takes longer to load than a run of the site to start.
    from runs.formats.bundles import bundles_at
    from runs.formats.finding import read_suites

    reading = read_suites(bundles_at(paths), profile=options.profile)
    for warning in reading.warnings:
        print_line(sys.stderr, f"Note: {warning}")
    return reading.suites


def _store_suites(
    site: Evalsite, suites: Sequence[FoundSuite], options: Namespace
) -> Iterator[tuple[str, str]]:
    """Store the suites, and yield the short name of each with a message about it, once it is stored."""
    from runs.formats.suite_files import pack_suite

    if options.slug and len(suites) > 1:
        raise EvalsiteError("--slug is for a single suite; name its file.")
    if not options.slug:
        problems = [suite.unrelated_problem(_keys(site, suite.content.slug)) for suite in suites]
        if unrelated := [problem for problem in problems if problem is not None]:
            raise UnreadableFileError(unrelated)
    for suite in suites:
        slug = options.slug or suite.content.slug
        content = suite.content.replace(slug=slug, judge=options.judge or suite.content.judge)
        packed = pack_suite(content, slug)
        media_type = "application/zip" if packed.name.endswith(".zip") else "application/yaml"
        stored = site.put_file(f"suites/{slug}", b"".join(packed.parts), media_type)
        for warning in stored["warnings"]:
            print_line(sys.stderr, f"Note: {warning}")
        message = import_message(slug, stored["version"], stored["version_before"], stored["note"])
        yield slug, f"{message} From {suite.path}"


def _keys(site: Evalsite, slug: str) -> set[str]:
    """Return the keys of the cases that the site has under a name, none where it has no such suite."""
    try:
        return {row["key"] for row in site.rows(f"suites/{slug}/cases")}
    except EvalsiteError as error:
        if error.status == NOT_FOUND:
            return set()
        raise


def _evaluate(site: Evalsite, options: Namespace, parser: Parser) -> int:
    files = FileOptions.read(vars(options))
    _check_what_answers(options, files, parser)
    progress = ProgressLine(sys.stderr)
    answers = _answers(options)
    if options.run:
        runs: Sequence[str] = [_run_name(options.run)]
        if site.get(f"runs/{runs[0]}")["exit_code"] is not None:
            site.post(f"runs/{runs[0]}/resume")
    else:
        runs = _start(site, options, progress)
    documents = [site.get(f"runs/{run}") for run in runs]
    titles = [f"{run['suite']} #{run['number']} against {run['target']}" for run in documents]
    for title, document in zip(titles, documents, strict=True):
        progress.say(f"{title}: {site.server}{document['url']}")
    try:
        for run in runs:
            answers(site, run, progress)
            site.wait(run, on_look=lambda seen: _show(progress, seen))
    except KeyboardInterrupt:
        progress.say("Stopping; a second Ctrl-C leaves the rest as it is.")
        how = " ".join(f"--{name} …" for name in ("agent", "outputs") if vars(options)[name])
        for run in runs:
            _unless_over(partial(site.post, f"runs/{run}/stop"))
            progress.say(
                f"Continue it: evalsite evaluate {options.suite} --run {run} {how}".rstrip()
            )
    finally:
        progress.close()
    if len(runs) == 1:
        return _conclude(site, runs[0], files)
    codes = []
    for run, title in zip(runs, titles, strict=True):
        print_line(sys.stdout, f"\n{title}")
        codes.append(_conclude(site, run, files))
    campaign = site.get(f"campaigns/{documents[0]['campaign']}")
    print_line(sys.stdout, f"\n{campaign['headline']}")
    print_line(sys.stdout, f"Leaderboard: {site.server}/campaigns/{campaign['id']}/")
    return max(codes)


def _check_what_answers(options: Namespace, files: FileOptions, parser: Parser) -> None:
    if options.agent and options.outputs:
        parser.error("--agent and --outputs contradict each other.")
    others = any(vars(options)[name] for name in ("agent", "outputs", "target", "model", "run"))
    _check_judging(options, parser, others=others)
    if options.set and not options.agent:
        parser.error("--set is a setting of --agent.")
    targets = options.target or ()
    here = next((f"--{name}" for name in ("agent", "outputs") if vars(options)[name]), "")
    if here and options.model:
        parser.error(f"{here} and --model contradict each other: the model is for the site to ask.")
    if here and len(targets) > 1:
        parser.error(f"{here} answers for one target; name at most one --target with it.")
    if repeated := sorted({name for name in targets if targets.count(name) > 1}):
        parser.error(f"--target {repeated[0]!r} is repeated.")
    if len(options.outputs_of or targets) > 1 and any(
        (files.out, files.summary, files.cases, files.junit)
    ):
        parser.error(
            "files are of one run, and these are several runs. Evaluate each on its own, or use the command "
            "on the machine of the site."
        )
    if options.concurrency is not None and options.concurrency < 1:
        parser.error(f"--concurrency {options.concurrency}: write 1 or more.")
    if options.run:
        _refuse_what_the_run_has(options, parser)
    if not (others or options.outputs_of):
        parser.error(
            "say what answers: --agent COMMAND or URL on this machine, --outputs FILE, --target NAME for a target "
            "that the site asks, or --outputs-of RUN for outputs that it has."
        )


def _check_judging(options: Namespace, parser: Parser, *, others: bool) -> None:
    if options.outputs_of and others:
        parser.error("--outputs-of says what answers; name nothing else that does.")
    if (options.version or options.filter) and not options.outputs_of:
        parser.error(
            "--version and --filter are for stored outputs; name their run with --outputs-of."
        )
    if options.outputs_of and (options.tag or options.repetitions != 1):
        parser.error(
            "--outputs-of takes no --tag and no --repetitions; choose cases by --case or --filter."
        )


def _refuse_what_the_run_has(options: Namespace, parser: Parser) -> None:
    """Refuse what --run would ignore: a run keeps what it was started with."""
    given = [name for name in OF_A_START if vars(options)[name] != parser.get_default(name)]
    if options.concurrency is not None and not options.agent:
        given.append("concurrency")
    if given:
        option = f"--{given[0].replace('_', '-')}"
        parser.error(f"{option} is of a new run; {options.run} keeps what it was started with.")


Answers = Callable[[Evalsite, str, ProgressLine], object]


def _answers(options: Namespace) -> Answers:
    """Return what makes the answers and pushes them into a run; raises EvalsiteError, UnreadableFileError."""
    if options.agent:
        from evalsite.remote.agents import UnusableAgentError, agent_here

        try:
            agent = agent_here(options.agent, dict(_settings(options.set or ())))
        except UnusableAgentError as error:
            raise EvalsiteError(str(error)) from error

        def ask(site: Evalsite, run: str, progress: ProgressLine) -> None:
            site.answer(
                run,
                agent,
                concurrency=CONCURRENCY if options.concurrency is None else options.concurrency,
                on_progress=lambda done, total: progress.show(
                    f"{done} of {counted(total, 'answer')}", done=done, total=total
                ),
            )

        return ask
    if options.outputs:
        from runs.formats.recorded_outputs import read_outputs, unknown_keys

        lines = read_outputs(options.outputs.read_bytes(), file=options.outputs.name)

        def push(site: Evalsite, run: str, progress: ProgressLine) -> None:
            for note in unknown_keys(lines, options.outputs.name):
                progress.say(f"Note: {note}")
            places = {(row["case"], row["repetition"]) for row in site.rows(f"runs/{run}/awaited")}
            outputs = {line.key: line.output for line in lines}
            pushed = [
                {"case": key, "repetition": repetition, **outputs[key]}
                for key, repetition in sorted(places)
                if key in outputs
            ]
            for batch in batches(pushed):
                site.push(run, batch)
            if len(pushed) < len(places):
                missing = len(places) - len(pushed)
                progress.say(f"{counted(missing, 'result')} without an output in the file.")
                _unless_over(lambda: site.post(f"runs/{run}/close"))

        return push
    return lambda site, run, progress: None


def _settings(pairs: Sequence[str]) -> Iterator[tuple[str, Any]]:
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign:
            raise EvalsiteError(f"--set {pair}: write NAME=VALUE.")
        try:
            yield name, json.loads(value)
        except ValueError:
            yield name, value


def _start(site: Evalsite, options: Namespace, progress: ProgressLine) -> Sequence[str]:
    """Start the runs that the options describe, and return their names."""
    slug, path = options.suite, Path(options.suite)
    if path.name != slug or path.suffix:
        suites = _read_suites([path], options)
        if len(suites) != 1:
            raise EvalsiteError(f"{path} contains {len(suites)} suites, and a run needs one.")
        [(slug, message)] = _store_suites(site, suites, options)
        progress.say(message)
    if options.outputs_of:
        return _judge_again(site, slug, options, progress)
    if options.agent or options.outputs:
        targets = options.target or [options.outputs.stem if options.outputs else "agent"]
        site.add_target(targets[0])
    elif options.model:
        targets = [_chat_target(site, name, options.model) for name in options.target or [""]]
    else:
        targets = options.target
    choices = {
        "repetitions": options.repetitions,
        # With an agent, it says how many cases this machine asks about at once.
        "concurrency": None if options.agent else options.concurrency,
        "judge": options.judge,
        "cases": options.case,
        "tags": options.tag,
        "budget_usd": options.budget,
        "max_minutes": options.max_minutes,
        "rules": {"samples": options.samples, "metrics": _metrics(site, slug, options)},
    }
    return site.start_campaign(slug, targets, **choices)


def _metrics(site: Evalsite, slug: str, options: Namespace) -> Mapping[str, Any]:
    """Return the metrics that count in the run; raises DomainError naming the option."""
    if not (options.metric or options.metric_weight):
        return {}
    from evaluators.scoring.tree import EvaluatorSpec
    from runs.cli.metric_options import metric_choices

    tree = EvaluatorSpec.model_validate(site.get(f"suites/{slug}")["evaluators"])
    return metric_choices(slug, tree, options.metric or (), options.metric_weight or ())


def _chat_target(site: Evalsite, name: str, model: str) -> str:
    """Return the name of a chat target that asks the model, with the settings of the named target if there is one.

    It is added unless the site has it, so that the run can be repeated there. Raises EvalsiteError.
    """
    stored = {row["name"]: row for row in site.rows("targets")}
    if name and name not in stored:
        raise EvalsiteError(f"There is no target {name!r}.")
    if name and stored[name]["kind"] != CHAT:
        raise EvalsiteError(
            f"The target {name} is of kind {stored[name]['kind']} and uses no language model; --model works with "
            "chat targets only."
        )
    if name and stored[name]["model"] == model:
        return name
    own = f"{name} with {model}" if name else model
    config = stored[name]["config"] if name else {}
    body = {"name": own, "kind": CHAT, "model": model, "config": config}
    same = stored.get(own)
    if same is None:
        site.post("targets", body)
    elif (same["kind"], same["model"]) != (CHAT, model):
        raise EvalsiteError(
            f"There is already another target named {own}. Use it with --target, or rename it."
        )
    elif name and same["config"] != config:
        content = json.dumps(body).encode()
        site.put_file(f"targets/{same['id']}", content, "application/json")
    return own


def _judge_again(
    site: Evalsite, slug: str, options: Namespace, progress: ProgressLine
) -> Sequence[str]:
    """Start the runs that judge stored outputs again, and return their names."""
    sources = [_run_name(word) for word in options.outputs_of]
    for word, source in zip(options.outputs_of, sources, strict=True):
        if site.get(f"runs/{source}")["suite"] != slug:
            raise EvalsiteError(f"{word} is no run of {slug}, so {slug} cannot judge its outputs.")
    choices = {
        "outputs_of": sources,
        "version": options.version,
        "judge": options.judge,
        "cases": options.case,
        "filter": options.filter,
        "concurrency": options.concurrency,
        "budget_usd": options.budget,
        "rules": {"samples": options.samples, "metrics": _metrics(site, slug, options)},
    }
    for estimate in site.post("runs/judge-again/estimate", choices)["runs"]:
        for text in (*estimate["left_out"], estimate["text"]):
            progress.say(text)
    body = choices | {"max_minutes": options.max_minutes}
    started = site.post("runs/judge-again", body, key=os.urandom(16).hex())
    return [run["name"] for run in started["runs"]]


def _unless_over(action: Callable[[], object]) -> None:
    try:
        action()
    except EvalsiteError as error:
        if error.code != "run_not_active":
            raise


def _show(progress: ProgressLine, run: Mapping[str, Any]) -> None:
    counts = run["counts"]
    verdicts = ", ".join(f"{counts[name]} {name}" for name in ("pass", "borderline", "fail"))
    line = f"{run['done']} of {run['results']}, {verdicts}, {counted(counts['error'], 'error')}"
    progress.show(line, done=run["done"], total=run["results"])


def _conclude(site: Evalsite, run: str, files: FileOptions) -> int:
    """Print the figures and the conclusion of a run, write its files, and return its exit code."""
    report = site.get(f"runs/{run}/report")
    stream = sys.stderr if files.use_standard_output else sys.stdout
    print_line(stream, f"\n{report['text']}")
    if files.summary:
        document = site.get(f"runs/{run}") | {"url": report["url"]}
        write_file(
            SUMMARY, files.summary, [json.dumps(document, indent=2, ensure_ascii=False), "\n"]
        )
    keys = "camelCase" if files.is_camel else "snake_case"
    for option, path, name, parameters in (
        (OUT, files.out, "results.jsonl", {"keys": keys}),
        (CASES, files.cases, "cases.jsonl", {}),
        (JUNIT, files.junit, "junit.xml", {}),
    ):
        if path is not None:
            content = site.file(f"runs/{run}/{name}", **parameters)
            write_file(option, path, [content.decode()])
    code = report["exit_code"]
    return FAILED if code is None else int(code)


def _compare(site: Evalsite, options: Namespace, parser: Parser) -> int:
    written = [(JSON, options.json), (MARKDOWN, options.markdown)]
    check_writable(written)
    limits = {name: vars(options)[name] for name in COMPARISON_LIMITS}
    params = {
        "baseline_run_id": _run_name(options.baseline),
        "candidate_run_id": _run_name(options.candidate),
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


def _run_name(word: str) -> str:
    """Return the name of a run as the API has it: SUITE#12 is SUITE:12."""
    return word.replace("#", ":")


def _export(site: Evalsite, options: Namespace, parser: Parser) -> int:
    from runs.cli.suite_out import write_out
    from runs.formats.bundles import read_uploads
    from runs.formats.finding import read_suites

    version = {"version": options.version} if options.version else {}
    content = site.file(f"suites/{options.suite}/file", **version)
    name = "suite.zip" if content.startswith(b"PK") else "suite.yaml"
    [found] = read_suites(read_uploads([(name, BytesIO(content))])).suites
    suite = found.content.replace(slug=options.suite)
    written = write_out(
        suite,
        options.suite,
        options.out,
        options.format,
        note=lambda text: print_line(sys.stderr, text),
    )
    if written:
        print_line(sys.stderr, f"{options.suite} is written to {', '.join(map(str, written))}")
    return DONE


# By the names of evalsite.cli.REMOTE.
PARSERS: Mapping[str, Callable[[Any], None]] = {
    "import": _add_import,
    "evaluate": _add_evaluate,
    "compare": _add_compare,
    "export": add_export_options,
}
RUN: Mapping[str, Callable[[Evalsite, Namespace, Parser], int]] = {
    "import": _import,
    "evaluate": _evaluate,
    "compare": _compare,
    "export": _export,
}
