"""The command evaluate against a site elsewhere: what answers, the run, and its conclusion."""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from evalsite.client import CONCURRENCY, Evalsite, EvalsiteError, batches
from evalsite.remote import FAILED
from evalsite.remote.suites import add_suite_options, read_suites_at, store_suites
from evaluators.templatetags.figures import counted
from runs.cli.files import CASES, JUNIT, OUT, SUMMARY, FileOptions, write_file
from runs.cli.options import add_judging_options, add_run_options
from runs.cli.terminal import ProgressLine, print_line

CHAT = "chat"
# What a run is started with, by the names of the options.
OF_A_START = (
    *("target", "model", "judge", "profile", "slug", "tag", "case", "samples", "repetitions"),
    *("budget", "max_minutes", "metric", "metric_weight", "baseline"),
)


def add_evaluate_options(parser: ArgumentParser) -> None:
    """Add the options of the command."""
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
    add_suite_options(parser)
    FileOptions.add_to(parser)


def evaluate(site: Evalsite, options: Namespace, parser: ArgumentParser) -> int:
    """Evaluate what the options name, and return the exit code."""
    files = FileOptions.read(vars(options))
    _check_what_answers(options, files, parser)
    progress = ProgressLine(sys.stderr)
    answers = _answers(options)
    if options.run:
        runs: Sequence[str] = [run_name(options.run)]
        if site.get(f"runs/{runs[0]}")["exit_code"] is not None:
            site.post(f"runs/{runs[0]}/resume")
    else:
        runs = _start(site, options, progress)
    documents = [site.get(f"runs/{run}") for run in runs]
    titles = [f"{run['suite']} #{run['number']} against {run['target']}" for run in documents]
    for title, document in zip(titles, documents, strict=True):
        progress.say(f"{title}: {site.server}{document['url']}")
    how = " ".join(f"--{name} …" for name in ("agent", "outputs") if vars(options)[name])
    ways = [
        f"Continue it: evalsite evaluate {options.suite} --run {run} {how}".rstrip() for run in runs
    ]
    try:
        for run, way in zip(runs, ways, strict=True):
            try:
                answers(site, run, progress)
            except EvalsiteError:
                progress.say(way)
                raise
            site.wait(run, on_look=lambda seen: _show(progress, seen))
    except KeyboardInterrupt:
        progress.say("Stopping; a second Ctrl-C leaves the rest as it is.")
        for run, way in zip(runs, ways, strict=True):
            _unless_over(partial(site.post, f"runs/{run}/stop"))
            progress.say(way)
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


def _check_what_answers(options: Namespace, files: FileOptions, parser: ArgumentParser) -> None:
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


def _check_judging(options: Namespace, parser: ArgumentParser, *, others: bool) -> None:
    if options.outputs_of and others:
        parser.error("--outputs-of says what answers; name nothing else that does.")
    if (options.version or options.filter or options.ask_again) and not options.outputs_of:
        parser.error(
            "--version, --filter and --ask-again are for stored outputs; name their run with --outputs-of."
        )
    if options.outputs_of and (options.tag or options.repetitions != 1):
        parser.error(
            "--outputs-of takes no --tag and no --repetitions; choose cases by --case or --filter."
        )


def _refuse_what_the_run_has(options: Namespace, parser: ArgumentParser) -> None:
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
        suites = read_suites_at([path], options)
        if len(suites) != 1:
            raise EvalsiteError(f"{path} contains {len(suites)} suites, and a run needs one.")
        [(slug, message)] = store_suites(site, suites, options)
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
        "baseline": options.baseline and run_name(options.baseline),
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
        site.replace(f"targets/{same['id']}", same, body)
    return own


def _judge_again(
    site: Evalsite, slug: str, options: Namespace, progress: ProgressLine
) -> Sequence[str]:
    """Start the runs that judge stored outputs again, and return their names."""
    sources = [run_name(word) for word in options.outputs_of]
    for word, source in zip(options.outputs_of, sources, strict=True):
        if site.get(f"runs/{source}")["suite"] != slug:
            raise EvalsiteError(f"{word} is no run of {slug}, so {slug} cannot judge its outputs.")
    choices = {
        "outputs_of": sources,
        "version": options.version,
        "judge": options.judge,
        "baseline": options.baseline and run_name(options.baseline),
        "cases": options.case,
        "filter": options.filter,
        "ask_again": options.ask_again,
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


def run_name(word: str) -> str:
    """Return the name of a run as the API has it: SUITE#12 is SUITE:12."""
    return word.replace("#", ":")


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
