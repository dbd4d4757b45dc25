"""How a suite file scores its cases: its evaluators, read into trees, and its policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any

from evaluators.kinds import all_kinds, is_spelling, kind_for_spelling, read_config, type_names
from evaluators.kinds._base import Kind
from evaluators.kinds._prompts import is_reference, literal_variable, reference_text
from evaluators.kinds._refusals import InvalidConfigError, UnknownKindError, normal_spelling
from evaluators.kinds.composite import prompt_file, read_options, runs_script
from evaluators.reading.yaml import Path
from evaluators.scoring.policy import CHOICES, REVIEW_RULES, PolicySpec
from evaluators.scoring.tree import (
    COMPOSITE,
    MAX_EVALUATORS,
    Aggregator,
    EvaluatorSpec,
    below,
    check_paths,
    check_size,
    validate,
)
from evaluators.scoring.types import DomainError
from runs.formats.generations import Generation, with_meaning
from runs.formats.reading import Fields, Reading
from runs.formats.yaml import YamlDocument
from runs.specs.problems import did_you_mean, most_similar
from runs.specs.suites import CaseSpec, ModelPlace

ROOT_NAME = "suite"
DEFAULT_KIND = "llm_judge"

# Types of AgentV that cannot be translated, with the way to the same end.
WITHOUT_COUNTERPART = dict.fromkeys(
    ("skill_used", "skill_trigger"),
    "Targets do not say here which skills they loaded. Check the call of the tool that loads one, with "
    "tool_trajectory and its arguments.",
)


def make_root(
    children: tuple[EvaluatorSpec, ...], aggregator: Mapping[str, Any] | None = None
) -> EvaluatorSpec:
    """Return the outermost composite of a suite or of a case with a tree of its own."""
    config = {"aggregator": dict(aggregator)} if aggregator else {}
    return canonical(
        EvaluatorSpec(name=ROOT_NAME, kind=COMPOSITE, config=config, children=children)
    )


def canonical(node: EvaluatorSpec) -> EvaluatorSpec:
    """Return the tree in its stored form."""
    return EvaluatorSpec.model_validate(node.as_json())


def default_children() -> tuple[EvaluatorSpec, ...]:
    """Return the evaluators of a suite that lists none: one judge, which scores by each case's criteria."""
    settings = read_config(DEFAULT_KIND, {}).model_dump(mode="json")
    return (EvaluatorSpec(name=DEFAULT_KIND, kind=DEFAULT_KIND, config=settings),)


def read_aggregator(
    reading: Reading, path: Path, value: Mapping[str, Any], *, case: str = ""
) -> dict[str, Any]:
    """Return the options of an aggregator; problems are noted and the rest is dropped."""
    options = {normal_spelling(key): part for key, part in value.items()}
    if isinstance(options.get("type"), str):
        options["type"] = normal_spelling(options["type"])
    try:
        options = read_options(options)
        if runs_script(options):
            options = reading.place_script(options)
        if named := prompt_file(options):
            options["prompt"] = f"./{reading.use(named)}"
            text = reference_text(options["prompt"], reading.used_files)
            read_config(COMPOSITE, {"aggregator": {**options, "prompt": text}})
        settings = read_config(COMPOSITE, {"aggregator": options})
    except InvalidConfigError as error:
        for refusal in error.refusals:
            inner = refusal.path[1:]
            message = f"{'.'.join(map(str, inner))}: {refusal.reason}" if inner else refusal.reason
            reading.refuse((*path, *inner), message, case=case)
        return {}
    except ValueError as error:
        reading.refuse(path, str(error), case=case)
        return {}
    values = settings.model_dump(mode="json", exclude_defaults=True).get("aggregator", {})
    return {**values, **Aggregator.model_validate(values).as_json()}


def check_composite(reading: Reading, path: Path, node: EvaluatorSpec, *, case: str = "") -> None:
    """Note problems that keep a composite from being scored; deeper ones are checked on their own."""
    known_bad = any(refused[: len(path)] == path for refused in reading.refused)
    children = tuple(EvaluatorSpec(name=c.name, kind="", weight=c.weight) for c in node.children)
    if known_bad or not children:
        return
    try:
        check_paths(node)
        check_size(node)
        validate(node.replace(children=children))
    except DomainError as error:
        reading.refuse(path, str(error), case=case)


# The setting that a script reads as it likes.
PASSED = "config"
COMMON = ("name", "type", "weight", "required", "min_score", "negate", "pass_mark")
# Keys that other tools allow for evaluators and that change no score.
IGNORED_KEYS = frozenset(
    {"config", "cwd", "description", "id", "max_steps", "metadata", "note", "target", "temperature"}
)


def read_settings(
    fields: Fields, kind: Kind, preset: Mapping[str, Any], path: str
) -> dict[str, Any]:
    """Return the settings left in a mapping, for the evaluator at a path of the tree.

    Problems are noted; unknown harmless keys are kept.
    """
    left = {normal_spelling(key): (key, value) for key, value in fields.rest().items()}
    config = {**preset, **{name: value for name, (_, value) in left.items()}}
    name = path.rpartition("/")[2]
    try:
        config = dict(with_meaning(fields.reading.generation, kind.name, preset, config))
        config = kind.read(config) if kind.read else config
        known = (*kind.config.model_fields, *COMMON)
        if PASSED in kind.config.model_fields:
            config = _with_passed(fields, config, known)
        kept = keep_unknown(fields, path, known=known, names=config.keys() - set(known))
        config = {key: value for key, value in config.items() if key not in kept}
        config |= _files_named(fields, kind, name, config)
        if kind.uses_sandbox:
            config = fields.reading.place_script(config)
        if isinstance(parts := config.get(kind.programs_in), list):
            config[kind.programs_in] = [_placed(fields.reading, part) for part in parts]
        settings = read_config(kind.name, config, evaluator=name, files=fields.reading.used_files)
    except InvalidConfigError as error:
        for refusal in error.refusals:
            message = f"{refusal.setting}: {refusal.reason}" if refusal.setting else refusal.reason
            message += _suggestion(refusal.path, (*kind.config.model_fields, *COMMON))
            at = (*fields.path, *_as_written(refusal.path, left))
            fields.reading.refuse(at, f"evaluator {name}: {message}", case=fields.case)
        return {}
    except ValueError as error:
        fields.refuse("", f"evaluator {name}: {error}")
        return {}
    return settings.model_dump(mode="json")


def _with_passed(
    fields: Fields, config: Mapping[str, Any], known: tuple[str, ...]
) -> dict[str, Any]:
    """Return a script's settings with those that only the script knows among the settings passed to it.

    A name similar to a known one is probably a mistake and stays; so do names that change no score.
    """
    written = {normal_spelling(key): key for key in fields.rest()}
    passed = {
        name: written[name]
        for name in sorted(config.keys() - {*known, *IGNORED_KEYS})
        if name in written and not most_similar(name, known)
    }
    own = config.get(PASSED)
    if not passed or not isinstance(own, Mapping | None):
        return dict(config)
    for name in passed:
        if passed[name] in (own or {}):
            message = f"is under {PASSED} too, where the script reads it; keep one of them"
            fields.refuse(passed[name], message)
    rest = {name: value for name, value in config.items() if name not in passed}
    return {**rest, PASSED: {**(own or {}), **{passed[name]: config[name] for name in passed}}}


def _files_named(
    fields: Fields, kind: Kind, name: str, config: Mapping[str, Any]
) -> dict[str, str]:
    """Return the settings that name a file of the suite, with its path there; "" for a missing file."""
    settings = (*kind.config.prompt_fields, *kind.config.file_fields)
    paths = {key: str(config[key]) for key in settings if key in config}
    for key, reference in list(paths.items()):
        if not is_reference(reference):
            del paths[key]
            continue
        try:
            paths[key] = f"./{fields.reading.use(reference)}"
        except ValueError as error:
            at = next((key for key, value in fields.rest().items() if value == reference), "")
            fields.refuse(at, f"evaluator {name}: {error}")
            paths[key] = ""
    return paths


def _placed(reading: Reading, part: Any) -> Any:
    """Return one part of an evaluator; a script is placed among the suite's files."""
    is_script = isinstance(part, Mapping) and part.get("type") == "script"
    return reading.place_script(part) if is_script else part


def keep_unknown(
    fields: Fields, path: str, *, known: Iterable[str], names: Iterable[str]
) -> set[str]:
    """Return the names that are kept with the metadata because they change no score.

    A name similar to a known one, or that is a setting of another kind, is probably a mistake and not kept.
    """
    keys = {normal_spelling(key): key for key in fields.rest()}
    kept = {
        name: keys[name]
        for name in sorted(names)
        if name in keys and (name in IGNORED_KEYS or not _is_likely_mistake(name, tuple(known)))
    }
    values = fields.rest()
    for key in kept.values():
        fields.warn(key, "is not used by Evalsite and is kept with the metadata")
        of_case = fields.reading.kept.setdefault(fields.case, {})
        of_case.setdefault(path, {})[key] = values[key]
    return set(kept)


def _suggestion(path: tuple[str | int, ...], known: tuple[str, ...]) -> str:
    """Return a suggestion for an unknown setting, "" for a known one."""
    name = str(path[0]) if len(path) == 1 else ""
    return did_you_mean(name, known) if name and name not in known else ""


def _is_likely_mistake(name: str, known: tuple[str, ...]) -> bool:
    return name in _all_setting_names() or bool(most_similar(name, known))


@cache
def _all_setting_names() -> frozenset[str]:
    return frozenset(name for kind in all_kinds().values() for name in kind.config.model_fields)


def _as_written(
    path: tuple[str | int, ...], left: Mapping[str, tuple[str, Any]]
) -> tuple[str | int, ...]:
    """Return the path of a setting with its first key as written in the file, so that its line is found."""
    first, rest = path[:1], path[1:]
    return (*(left[str(key)][0] if str(key) in left else key for key in first), *rest)


CASES = ("tests", "cases", "evalcases", "eval_cases")
JUDGE = "judge"
NAMES = ("model", JUDGE)
# A panel of judges is named in a list.
LISTS = ("models", "judges", "participants")


def model_places(
    document: YamlDocument, cases: tuple[CaseSpec, ...]
) -> Mapping[tuple[str, str], tuple[ModelPlace, ...]]:
    """Return the files and lines that name each language model, by case ("" for the suite) and slug."""
    places_by_model: dict[tuple[str, str], list[ModelPlace]] = {}
    for path, slug in _named(document.value, ()):
        place = ModelPlace(document.file_at(path), document.line_at(path), len(path) == 1)
        places_by_model.setdefault((_case(path, cases), slug), []).append(place)
    return {named: tuple(places) for named, places in places_by_model.items()}


def with_file_prefix(
    places: Mapping[tuple[str, str], tuple[ModelPlace, ...]], before: str
) -> Mapping[tuple[str, str], tuple[ModelPlace, ...]]:
    """Return the places with a prefix before the paths of their files."""
    return {
        named: tuple(replace(place, file=f"{before}{place.file}") for place in model_places)
        for named, model_places in places.items()
    }


def _named(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    parts: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, dict) else ()
    for name, part in enumerate(value) if isinstance(value, list) else parts:
        if isinstance(part, dict | list):
            yield from _named(part, (*path, name))
            if isinstance(part, list) and normal_spelling(str(name)) in LISTS:
                yield from _listed(part, (*path, name))
        elif isinstance(part, str) and part and normal_spelling(str(name)) in NAMES:
            yield (*path, name), part


def _listed(panel: list[Any], path: Path) -> Iterator[tuple[Path, str]]:
    """Yield each text of a list at its first place: a missing model is one problem, however often it votes."""
    first: dict[str, int] = {}
    for at, slug in enumerate(panel):
        if isinstance(slug, str) and slug:
            first.setdefault(slug, at)
    yield from (((*path, at), slug) for slug, at in first.items())


def _case(path: Path, cases: tuple[CaseSpec, ...]) -> str:
    if normal_spelling(str(path[0])) not in CASES or len(path) < 2:
        return ""
    number = path[1]
    return cases[number].key if isinstance(number, int) and number < len(cases) else ""


MAX_NAME_LENGTH = 100
ALIASES = {
    "type": ("kind",),
    "name": ("metric",),
    "required_below": ("min_score",),
    "negate": ("negated",),
    "evaluators": ("assertions", "assert"),
}
RUBRIC, ASSERT_SET = "rubric", "assert_set"


def read_evaluators(
    reading: Reading,
    path: Path,
    items: list[Any],
    *,
    case: str = "",
    beside: tuple[EvaluatorSpec, ...] = (),
    above: str = "",
) -> tuple[EvaluatorSpec, ...]:
    """Return the evaluators of a list; unreadable ones are noted and left out.

    Sentences in it become the criteria of one rubric, at the place of the first. Names must differ from
    those of the siblings in `beside`; `above` is the path of their composite.
    """
    if len(items) > MAX_EVALUATORS:
        message = (
            f"contains {len(items)} evaluators, and {MAX_EVALUATORS} is the limit; remove some"
        )
        reading.refuse(path, message, case=case)
        return ()
    taken = {node.name for node in beside}
    nodes: list[EvaluatorSpec] = []
    for n, item in _gathered(reading, path, items, case):
        node = _Item(reading, (*path, n), item, case, above).node(taken)
        if node is not None:
            nodes.append(node)
            taken.add(node.name)
    return tuple(nodes)


def _gathered(
    reading: Reading, path: Path, items: list[Any], case: str
) -> Iterator[tuple[int, Any]]:
    """Yield the evaluators of a list with their places, its sentences gathered into one rubric."""
    sentences = {n: item for n, item in enumerate(items) if isinstance(item, str)}
    for n, item in sentences.items():
        if not item.strip():
            message = "the sentence is empty; write what must be true of the answer, or remove it"
            reading.refuse((*path, n), message, case=case)
        elif is_spelling(item):
            message = f"{item!r} is a type, not a sentence to judge by; write type: {item.strip()}"
            reading.refuse((*path, n), message, case=case)
    for n, item in enumerate(items):
        if n not in sentences:
            yield n, item
        elif n == next(iter(sentences)):
            yield n, {"type": RUBRIC, "rubrics": list(sentences.values())}


def _without_not(spelling: str) -> tuple[str, bool]:
    """Return the type that a type such as `not-contains` inverts, and whether it inverts one."""
    inverted = normal_spelling(spelling).removeprefix("not_")
    is_inverted = inverted != normal_spelling(spelling) and is_spelling(inverted)
    return (inverted, True) if is_inverted else (spelling, False)


class _Item:
    """One evaluator of a list."""

    def __init__(self, reading: Reading, path: Path, item: Any, case: str, above: str) -> None:
        self.reading = reading
        self.path = path
        self.case = case
        self.above = above
        self.is_read = isinstance(item, dict)
        self.fields = Fields(
            reading, path, aliases=ALIASES, value=item if self.is_read else {}, case=case
        )
        if not self.is_read:
            message = "an evaluator with name and type, or a sentence to judge by, is expected here"
            self.fields.refuse("", message)

    def node(self, taken: set[str]) -> EvaluatorSpec | None:
        """Return the evaluator, None when its type is not known."""
        before = len(self.reading.problems)
        written = self.fields.text("type")
        spelling, is_inverted = _without_not(written)
        named = self.fields.text("name")
        if not spelling or not self.is_read:
            if self.is_read and len(self.reading.problems) == before:
                message = (
                    "type is missing; it says what scores, such as contains, rubric or llm_judge"
                )
                self.fields.refuse("", f"evaluator {named or '?'}: {message}")
            return None
        try:
            kind, preset = kind_for_spelling(spelling, self.fields.rest())
        except UnknownKindError as error:
            name, normal = (named or spelling)[:MAX_NAME_LENGTH], normal_spelling(spelling)
            message = (
                WITHOUT_COUNTERPART.get(normal.removeprefix("not_"))
                or f"{error}{did_you_mean(normal, type_names())}"
            )
            self.fields.refuse("type", f"evaluator {name}: {message}")
            return None
        name = self._name(named, normal_spelling(written), taken)
        weight = self.fields.number("weight")
        required, required_below = self._required(name)
        facts: dict[str, Any] = {
            "weight": 1.0 if weight is None else weight,
            "required": required,
            "required_below": required_below,
            "negate": bool(self.fields.flag("negate")) != is_inverted,
            "pass_mark": self.fields.number("pass_mark"),
        }
        if (mark := facts["pass_mark"]) is not None and not 0 <= mark <= 1:
            message = f"{mark!r} is not a number from 0 to 1"
            self.fields.refuse("pass_mark", f"evaluator {name}: {message}")
        if facts["weight"] < 0:
            message = f"the weight {weight!r} is below 0; 0 records a score without counting it"
            self.fields.refuse("weight", f"evaluator {name}: {message}")
        if kind.name == COMPOSITE:
            if normal_spelling(spelling) == ASSERT_SET:
                facts |= self._least_of_set(name, facts)
            return self._composite(name, facts)
        config = read_settings(self.fields, kind, preset, below(self.above, name))
        if variable := literal_variable(kind.name, config):
            self.reading.warn(self.path, f"evaluator {name}: {variable.text}", case=self.case)
        return EvaluatorSpec(name=name, kind=kind.name, config=config, **facts)

    def _name(self, named: str, spelling: str, taken: set[str]) -> str:
        if not named:
            free = (spelling if n == 1 else f"{spelling}_{n}" for n in range(1, len(taken) + 2))
            return next(name for name in free if name not in taken)
        if named in taken:
            message = (
                "evaluators scored together, the suite's own among them, need names of their own"
            )
            self.fields.refuse("name", f"the evaluator {named!r} is repeated; {message}")
        if "/" in named or len(named) > MAX_NAME_LENGTH:
            message = f"a name has at most {MAX_NAME_LENGTH} characters and no slash"
            self.fields.refuse("name", f"evaluator {named[:MAX_NAME_LENGTH]!r}: {message}")
        return named

    def _required(self, name: str) -> tuple[bool, float | None]:
        minimum_key, _ = self.fields.peek("required_below")
        below = self.fields.number("required_below")
        key, required = self.fields.take("required")
        if isinstance(required, int | float) and not isinstance(required, bool):
            below, required = float(required), False
        if required is not None and not isinstance(required, bool):
            message = f"{required!r} is neither true or false nor a number from 0 to 1"
            self.fields.refuse(key, f"evaluator {name}: required: {message}")
        if below is not None and not 0 <= below <= 1:
            message = f"evaluator {name}: {below!r} is not a number from 0 to 1"
            self.fields.refuse(key or "min_score", message)
        if self.reading.generation is not Generation.LATER:
            return required is True, below
        if required is True:
            return False, self.reading.passing_score if below is None else below
        if below is not None and minimum_key and not key:
            message = "fails nothing in AgentV without required, so it is not used; write required: true beside it"
            self.fields.warn(minimum_key, f"evaluator {name}: {message}")
            return False, None
        return False, below

    def _least_of_set(self, name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the threshold of a set requires of it: below, the set fails and the result with it."""
        least = self.fields.number("threshold")
        if least is None:
            return {}
        if facts["required"] or facts["required_below"] is not None:
            message = "threshold and required both say what the set must reach; keep one of them"
            self.fields.refuse("threshold", f"evaluator {name}: {message}")
        elif not 0 <= least <= 1:
            message = f"{least:g} is not a number from 0 to 1"
            self.fields.refuse("threshold", f"evaluator {name}: {message}")
        elif least > 0:
            message = f"a result fails when the set scores below it, as with required: {least:g}"
            self.fields.warn("threshold", f"evaluator {name}: {message}")
            return {"required_below": least}
        return {}

    def _composite(self, name: str, facts: dict[str, Any]) -> EvaluatorSpec:
        key, items = self.fields.items("evaluators")
        aggregator_key, options = self.fields.mapping("aggregator")
        path = below(self.above, name)
        children = read_evaluators(
            self.reading, (*self.path, key), items, case=self.case, above=path
        )
        if not items:
            message = "a composite needs evaluators; list what it combines under evaluators"
            self.fields.refuse("", f"evaluator {name}: {message}")
        aggregator = read_aggregator(
            self.reading, (*self.path, aggregator_key), options, case=self.case
        )
        known = (*COMMON, "evaluators", "aggregator")
        left = {normal_spelling(key): key for key in self.fields.rest()}
        kept = keep_unknown(self.fields, path, known=known, names=left)
        for spelling in left.keys() - kept:
            message = f"is not known here; known are {', '.join(known)}"
            self.fields.refuse(left[spelling], message + did_you_mean(spelling, known))
        config = {"aggregator": aggregator} if aggregator else {}
        node = EvaluatorSpec(name=name, kind=COMPOSITE, config=config, children=children, **facts)
        check_composite(self.reading, self.path, node, case=self.case)
        return node


# File name -> column. In files pass_threshold is the fallback of the metrics system, 0 to 100.
PERCENTS = {
    "pass_threshold": "fallback_threshold",
    "metrics_pass_threshold": "metrics_pass_threshold",
    "cases_pass_threshold": "cases_pass_threshold",
    "max_avg_score_drop": "max_avg_score_drop",
}
NUMBERS = ("max_pass_rate_drop", "max_latency_increase_pct")
SCALE = "scale"
WORDS = {name: choices for name, choices in CHOICES.items() if name != SCALE}
BANDS = {"pass": "pass_threshold", "borderline": "borderline_threshold"}
# The block `review` inside `policy`: file name -> column.
REVIEW = "review"
REVIEW_FLAGS = {name.removeprefix("review_"): name for name in (*REVIEW_RULES, "review_blind")}
REVIEW_NUMBERS = {
    "distance": "review_distance",
    "pass_sample": "review_pass_sample",
    "fail_sample": "review_fail_sample",
    "reviewers": "review_reviewers",
}
KNOWN = (*PERCENTS, *NUMBERS, *WORDS, "count_reviews", SCALE, REVIEW)
POLICY_ALIASES = {"pass_threshold": ("fallback_threshold",)}
HUNDRED = Decimal(100)


def read_policy(reading: Reading, suite: Fields, usual: PolicySpec) -> PolicySpec:
    """Return the policy of the blocks `policy` and `verdicts`, with defaults for what they do not set.

    Problems are noted.
    """
    key, block = suite.mapping("policy")
    policy = Fields(reading, (key,), aliases=POLICY_ALIASES, value=block)
    bands_key, band_block = suite.mapping("verdicts")
    bands = Fields(reading, (bands_key,), value=band_block)
    values: dict[str, Any] = {
        **{column: _share(policy, name) for name, column in PERCENTS.items()},
        **{name: policy.number(name) for name in NUMBERS},
        **{name: _word(policy, name, words) for name, words in WORDS.items()},
        **{column: bands.number(name) for name, column in BANDS.items()},
        "count_reviews": policy.flag("count_reviews"),
        "scale": _scale(policy),
        **_review(policy),
    }
    if bands.number("fail"):
        bands.refuse("fail", "fail begins at 0; set pass and borderline")
    policy.refuse_rest(", ".join(KNOWN))
    bands.refuse_rest("pass and borderline")
    given = {name: value for name, value in values.items() if value is not None}
    try:
        return usual.replace(**given)
    except DomainError as error:
        at = bands_key if set(BANDS.values()) & set(str(error).split()) else key
        reading.refuse((at,), str(error))
        return PolicySpec()


def written_policy(policy: PolicySpec) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the blocks `policy` and `verdicts` that read back as this policy; defaults are left out."""
    usual = PolicySpec()
    changed = {name: value for name, value in policy if value != getattr(usual, name)}
    block: dict[str, Any] = {
        name: _percent(changed[column]) for name, column in PERCENTS.items() if column in changed
    }
    named = (*NUMBERS, *WORDS, "count_reviews", SCALE)
    block |= {name: changed[name] for name in named if name in changed}
    review = {
        name: changed[column]
        for name, column in (REVIEW_FLAGS | REVIEW_NUMBERS).items()
        if column in changed
    }
    block |= {REVIEW: review} if review else {}
    bands = {name: getattr(policy, column) for name, column in BANDS.items()}
    return block, bands if any(column in changed for column in BANDS.values()) else {}


def _review(policy: Fields) -> dict[str, Any]:
    """Return the block's settings of the review queue: shares of 0 to 1, and the number of reviewers."""
    key, block = policy.mapping(REVIEW)
    review = Fields(policy.reading, policy.place(key), value=block)
    flags = {column: review.flag(name) for name, column in REVIEW_FLAGS.items()}
    numbers = {column: review.number(name) for name, column in REVIEW_NUMBERS.items()}
    reviewers = numbers["review_reviewers"]
    if reviewers is not None and reviewers != int(reviewers):
        review.refuse("reviewers", f"{reviewers:g} is not a whole number")
        reviewers = None
    review.refuse_rest(", ".join([*REVIEW_FLAGS, *REVIEW_NUMBERS]))
    whole = {"review_reviewers": None if reviewers is None else int(reviewers)}
    return {**flags, **numbers, **whole}


def _share(policy: Fields, name: str) -> float | None:
    """Return a percentage as a share, computed from its digits because floats are not exact."""
    written = policy.written(*policy.peek(name))
    percent = policy.number(name)
    if percent is None:
        return None
    try:
        return float(Decimal(str(written)) / HUNDRED)
    except InvalidOperation:
        return float(Decimal(str(percent)) / HUNDRED)


def _percent(share: float) -> Decimal | int:
    percent = Decimal(str(share)) * HUNDRED
    return int(percent) if percent == percent.to_integral_value() else percent


def _word(policy: Fields, name: str, words: tuple[str, ...]) -> str | None:
    value = policy.text(name)
    if value and value not in words:
        policy.refuse(name, f"{value!r} is not one of {', '.join(words)}")
        return None
    return value or None


def _scale(policy: Fields) -> int | None:
    scale = policy.number(SCALE)
    if scale is not None and scale not in CHOICES[SCALE]:
        policy.refuse(SCALE, f"{scale:g} is not one of {', '.join(map(str, CHOICES[SCALE]))}")
        return None
    return None if scale is None else int(scale)
