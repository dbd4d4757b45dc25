"""Whole suites drawn at random: every kind and composite, files, turns, recorded outputs, policy."""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from evaluators.kinds import all_kinds, read_config
from evaluators.kinds._refusals import InvalidConfigError
from evaluators.kinds.hybrid_judge.opinions import TwoFinalScoresError, check_final_score
from evaluators.reading.yaml import write_yaml
from evaluators.scoring.policy import REVIEW_RULES, PolicySpec
from evaluators.scoring.tree import COMPOSITE, Aggregator, EvaluatorSpec
from runs.formats import suite_files
from runs.formats.suite_evaluators import make_root
from runs.specs.suites import MAX_MINUTES, CaseSpec, SuiteWithCases

STORABLE = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
TEXT = st.text(STORABLE, min_size=1, max_size=40)
TRICKY = st.sampled_from(
    ["two words", "# no comment", "- item", "key: value", " indented", "", "{{output}}", "yes",
     "~", "<<", "1.50", "0x1F", "null", "\ttab", "end ", "'", '"', "...", "---", "%TAG", "&a *a !t"]
)  # fmt: skip
ANY_TEXT = st.text(STORABLE, max_size=60) | st.lists(TRICKY, max_size=4).map("\n".join)
NAMES = st.text(string.ascii_letters + string.digits + "_- .é", min_size=1, max_size=12).filter(
    lambda name: name.strip() == name
)
SHARES = st.floats(0, 1)
WEIGHTS = st.floats(0.001, 1e6) | st.integers(1, 9).map(float)
# A database keeps larger numbers otherwise than they are written.
NUMBERS = st.integers(-(10**15), 10**15) | st.floats(-1e15, 1e15).filter(lambda n: n != 0)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=6,
)
METADATA = st.dictionaries(ANY_TEXT, JSON, max_size=3)
FILES: Mapping[str, bytes] = {
    "prompts/tone.md": b"Is {{output}} kind?\r\n",
    "prompts/deep/facts.txt": "Is it true? é".encode(),
    "judges/check.py": b"print(1)\n",
    "judges/words/list.yaml": b"tests: [{id: no suite, input: x}]\n",
    "in/question.txt": b"What is this?",
    "in/suite.yaml": b"tests: [{id: neither, input: x}]\n",
    "out/report.bin": bytes(range(256)),
}
PROMPTS = ["./prompts/tone.md", "./prompts/deep/facts.txt"]
SCRIPT = {"command": ["python3", "./judges/check.py", "--strict"]}


def configured(kind: str, config: Mapping[str, Any]) -> dict[str, Any]:
    return read_config(kind, config).model_dump(mode="json")


def _examples() -> dict[str, dict[str, Any]]:
    """Return by kind the settings of the example in its manual."""
    around = dict.fromkeys(("judges/check.py", "judges/word_count.py", "judges/pii.py"), b"")
    found: dict[str, dict[str, Any]] = {}
    for name, kind in all_kinds().items():
        if kind.in_gallery and name != COMPOSITE:
            listed = "\n".join(f"    {line}" for line in kind.example.splitlines()).lstrip()
            suite = f"evaluators:\n  - {listed}\ntests: [{{id: A, input: x}}]\n"
            node = suite_files.read_suite(suite.encode(), files=around).evaluators.children[0]
            found[name] = dict(node.config)
    return found


def _variants() -> list[tuple[str, dict[str, Any]]]:
    """Return every example, and each again with one setting changed to every value that it may have."""
    tried = (
        True,
        False,
        0,
        1,
        3,
        0.5,
        "x y",
        "median",
        "mean",
        "majority",
        "graded",
        "stdin",
        ["a"],
    )
    found = []
    for name, example in EXAMPLES.items():
        found.append((name, example))
        for setting in example:
            for value in tried:
                try:
                    found.append((name, configured(name, {**example, setting: value})))
                except InvalidConfigError:
                    continue
    return found


EXAMPLES = _examples()
VARIANTS = _variants()


def _check(operator: str, **config: Any) -> tuple[str, dict[str, Any]]:
    return "text_check", configured("text_check", {"operator": operator, **config})


PLAIN = ANY_TEXT.filter(lambda text: "{{" not in text)
COMPARING = st.sampled_from(["equals", "contains", "starts_with", "ends_with"])
LEAVES = st.one_of(
    st.sampled_from(VARIANTS),
    st.builds(lambda op, text, fold: _check(op, value=text, ignore_case=fold), COMPARING, TEXT, st.booleans()),
    st.builds(lambda op, texts: _check(op, values=texts), st.sampled_from(["contains_any", "contains_all"]), st.lists(TEXT, min_size=1, max_size=3)),
    st.integers(0, 5000).map(lambda n: _check("max_length", max_length=n)),
    st.dictionaries(st.sampled_from(["title", "default"]), JSON.map(str), max_size=2).map(lambda schema: _check("json_schema", json_schema=schema)),
    st.builds(
        lambda prompt, seconds: ("llm_judge", configured("llm_judge", {"prompt": prompt, "timeout_s": seconds})),
        PLAIN.map(lambda text: text + " end.") | st.sampled_from([*PROMPTS, "", "Is {{output}} as {{criteria}} says?"]),
        st.none() | st.integers(1, 3600),
    ),
    st.builds(
        lambda texts, mode, weight: (
            "rubric",
            configured("rubric", {"mode": mode, "rubrics": [
                {"id": f"r{n}", "expected_outcome": text, "weight": weight, "required": n == 1}
                for n, text in enumerate(texts)
            ]}),
        ),
        st.lists(TEXT, min_size=1, max_size=3), st.sampled_from(["satisfied", "graded"]), WEIGHTS,
    ),
    st.builds(
        lambda protocol, text, seconds: ("script", configured("script", {**SCRIPT, "protocol": protocol, "timeout_s": seconds})),
        st.sampled_from(["env", "stdin"]), TEXT, st.integers(1, 60),
    ),
    PLAIN.map(lambda text: ("metrics_judge", configured("metrics_judge", {"instructions": text}))),
    st.builds(
        lambda text, negate, weight, weighed: (
            "hybrid_judge",
            configured("hybrid_judge", {
                "checks": [
                    {"type": "contains", "value": text, "negate": negate, "dimensions": ["own"]},
                    {"type": "tool_call_count", "tool": text, "max": 3},
                    {"type": "script", "protocol": "stdin", **SCRIPT},
                ],
                "dimensions": ["task", {"key": "own", "weight": weight, "policy": "weighted"}],
                "hard_expectations": [text],
                "score_from": "dimension_weights" if weighed else "judge_overall",
            }),
        ),
        TEXT, st.booleans(), WEIGHTS, st.booleans(),
    ),
    st.builds(
        lambda tokens, usd, shared: (
            "execution_metrics",
            configured("execution_metrics", {"max_tokens": tokens, "max_cost_usd": usd, "proportional": shared}),
        ),
        st.none() | st.integers(0, 10**9), st.decimals(0, 10**5, places=9), st.booleans(),
    ),
    st.builds(
        lambda mode, tool, args, rule: (
            "tool_trajectory",
            configured("tool_trajectory", {"mode": mode, "args_match": rule, "expected": [tool, {"tool": tool, "args": args}]}),
        ),
        st.sampled_from(["any_order", "in_order", "exact", "subset", "superset"]), TEXT,
        st.none() | st.dictionaries(NAMES, JSON, max_size=2), st.sampled_from(["exact", "partial", "ignored"]),
    ),
    st.builds(
        lambda expected, weight, required: (
            "field_accuracy",
            configured("field_accuracy", {"fields": [
                {"path": "lines[*].price", "expected": expected, "weight": weight, "required": required},
                {"path": "total", "match": "numeric_tolerance", "tolerance": weight, "relative": required},
            ]}),
        ),
        JSON, WEIGHTS, st.booleans(),
    ),
)  # fmt: skip


@st.composite
def nodes(
    draw: st.DrawFn, depth: int = 2, taken: frozenset[str] = frozenset()
) -> tuple[EvaluatorSpec, ...]:
    free = NAMES.filter(lambda name: name not in taken)
    names = draw(st.lists(free, min_size=1, max_size=3, unique=True))
    return tuple(draw(node(name, depth)) for name in names)


@st.composite
def node(draw: st.DrawFn, name: str, depth: int) -> EvaluatorSpec:
    facts: dict[str, Any] = {
        "weight": draw(WEIGHTS),
        "required": draw(st.booleans()),
        "required_below": draw(st.none() | st.floats(0, 1)),
        "negate": draw(st.booleans()),
    }
    if depth and draw(st.booleans()):
        children = draw(nodes(depth - 1))
        config = {"aggregator": draw(aggregators(children))}
        made = EvaluatorSpec(name=name, kind=COMPOSITE, config=config, children=children, **facts)
        return EvaluatorSpec.model_validate(made.as_json())
    kind, config = draw(LEAVES)
    return EvaluatorSpec(name=name, kind=kind, config=config, **facts)


@st.composite
def aggregators(draw: st.DrawFn, children: tuple[EvaluatorSpec, ...]) -> dict[str, Any]:
    names = [child.name for child in children]
    share = draw(st.floats(0, 1))
    plain = draw(
        st.sampled_from(
            [
                *(Aggregator(type=name) for name in ("weighted_average", "minimum", "maximum")),
                Aggregator(type="all_or_nothing", threshold=share),
                Aggregator(type="threshold", share=share),
                Aggregator(type="safety_gate", required=(names[0],), gate_threshold=share),
                Aggregator(weights={names[-1]: draw(WEIGHTS)}),
            ]
        )
    )
    scripted = {"type": "code_judge", **SCRIPT, "timeout_s": 7.0}
    judged = {"type": "llm_judge", "prompt": draw(PLAIN) + " end.", "model": "big", "samples": 3}
    return draw(st.sampled_from([*[plain.as_json()] * 3, scripted, judged]))


TURN = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool"]), "content": ANY_TEXT},
    optional={"name": TEXT, "tool_calls": st.lists(JSON, max_size=2)},
)  # fmt: skip
BLOCKS = [
    {"type": "text", "value": "Look at this:"},
    {"type": "file", "value": "./in/question.txt"},
    {"type": "file", "value": "./in/suite.yaml"},
]
MESSAGE = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": TEXT})
RECORDED = st.fixed_dictionaries(
    {"output": ANY_TEXT},
    optional={
        "messages": st.lists(MESSAGE, min_size=1, max_size=3),
        "trace": st.lists(
            st.fixed_dictionaries(
                {"type": st.just("tool"), "name": TEXT},
                optional={"input": JSON, "output": JSON, "duration_ms": st.integers(0, 9_999)},
            ),
            max_size=2,
        ),
        "usage": st.fixed_dictionaries(
            {}, optional={"input_tokens": st.integers(0, 9_999), "output_tokens": st.just(3)}
        ),
        "latency_ms": st.integers(0, 99_999),
        "cost_usd": st.floats(0, 99).map(lambda usd: round(usd, 6)),
        "model": NAMES,
        "files": st.dictionaries(
            st.sampled_from(["report.md", "data/x.bin"]),
            ANY_TEXT.map(lambda text: {"text": text}) | st.just({"path": "./out/report.bin"}),
            max_size=2,
        ),
        "team": JSON,
    },
)


@st.composite
def inputs(draw: st.DrawFn) -> tuple[Mapping[str, Any], ...]:
    turns = draw(st.lists(TURN, min_size=1, max_size=3))
    blocks = draw(st.none() | st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=3))
    if blocks and any(block["type"] == "file" for block in blocks):
        # What the text of blocks is, is the reader's affair: it is told by reading them once.
        case = {"id": "A", "input": [{"role": "user", "content": blocks}]}
        text = suite_files.read_suite(write_yaml({"tests": [case]}).encode(), files=FILES)
        turns += text.cases[0].input
    return tuple(turns)


@st.composite
def case(draw: st.DrawFn, key: str, taken: frozenset[str]) -> CaseSpec:
    append = draw(st.booleans())
    own = draw(st.none() | nodes(1, taken if append else frozenset()))
    aggregator = None if own is None or append else draw(st.none() | aggregators(own))
    return CaseSpec(
        key=key,
        input=draw(inputs()),
        title=draw(ANY_TEXT),
        tags=tuple(draw(st.lists(ANY_TEXT, max_size=2))),
        expected_output=draw(ANY_TEXT),
        expected_outcomes=tuple(draw(st.lists(TEXT.filter(str.strip), max_size=2))),
        criteria=draw(ANY_TEXT),
        metadata=draw(METADATA),
        evaluators=None if own is None else make_root(own, aggregator),
        evaluators_append=own is not None and append,
        recorded_output=draw(st.none() | RECORDED),
    )


@st.composite
def policies(draw: st.DrawFn) -> PolicySpec:
    bands = sorted([draw(st.floats(0, 1)), draw(st.floats(0, 1))])
    return PolicySpec(
        borderline_threshold=bands[0],
        pass_threshold=bands[1],
        case_gate=draw(st.sampled_from(["score", "expected_outcomes"])),
        final_score=draw(st.sampled_from(["aggregate", "judge_overall"])),
        fallback_threshold=draw(SHARES),
        on_unscored=draw(st.sampled_from(["error", "exclude", "zero"])),
        judge_outcomes=draw(st.sampled_from(["auto", "always", "never"])),
        metrics_pass_threshold=draw(SHARES),
        cases_pass_threshold=draw(SHARES),
        max_pass_rate_drop=draw(st.floats(0, 1)),
        max_avg_score_drop=draw(SHARES),
        max_latency_increase_pct=draw(st.floats(0, 1e6)),
        count_reviews=draw(st.booleans()),
        scale=draw(st.sampled_from([1, 5, 10, 100])),
        **{name: draw(st.booleans()) for name in (*REVIEW_RULES, "review_blind")},
        review_distance=draw(SHARES),
        review_pass_sample=draw(SHARES),
        review_fail_sample=draw(SHARES),
        review_reviewers=draw(st.integers(1, 9)),
    )


def with_one_final_score(suite: SuiteWithCases) -> SuiteWithCases:
    """Return the suite with the aggregate as its final score if it would have two otherwise."""
    try:
        for tree in (suite.evaluators, *(case.evaluators for case in suite.cases)):
            if tree is not None:
                check_final_score(tree, suite.policy)
    except TwoFinalScoresError:
        return suite.replace(policy=suite.policy.replace(final_score="aggregate"))
    return suite


@st.composite
def suites(draw: st.DrawFn) -> SuiteWithCases:
    children = draw(nodes())
    names = frozenset(child.name for child in children)
    keys = draw(st.lists(TEXT.filter(str.strip), min_size=1, max_size=3, unique=True))
    root = make_root(children, draw(st.none() | aggregators(children)))
    made = tuple(draw(case(key, names)) for key in keys)
    made_suite = SuiteWithCases(
        slug=draw(st.from_regex(r"[a-z0-9_]{1,5}(-[a-z0-9_]{1,5}){0,2}", fullmatch=True)),
        title=draw(TEXT),
        description=draw(ANY_TEXT),
        tags=tuple(draw(st.lists(ANY_TEXT, max_size=2))),
        judge=draw(st.sampled_from(["", "strict"])),
        max_minutes=draw(st.none() | st.integers(1, MAX_MINUTES)),
        policy=draw(policies()),
        evaluators=root,
        cases=made,
        files=files_of(root, made),
        metadata=draw(METADATA),
    )
    return with_one_final_score(made_suite)


def files_of(root: EvaluatorSpec, cases: tuple[CaseSpec, ...]) -> dict[str, bytes]:
    """Return the files a suite says it needs; a script takes along all that lies in its folder."""
    said = repr([root, cases])
    named = {path for path in FILES if f"./{path}" in said}
    if "./judges/check.py" in said:
        named |= {path for path in FILES if path.startswith("judges/")}
    return {path: FILES[path] for path in sorted(named)}
