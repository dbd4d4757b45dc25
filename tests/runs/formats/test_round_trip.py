"""What is exported reads back the same: import(export(x)) = x."""

from __future__ import annotations

import string
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evaluators.kinds import read_config
from evaluators.scoring.policy import Policy
from evaluators.scoring.tree import Aggregator, Node
from runs.formats import CaseContent, SuiteContent, agentv
from runs.formats._trees import root_of

TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40
)
ANY_TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60
) | st.lists(
    st.sampled_from(
        ["two words", "# no comment", "- item", "key: value", " indented", "", "{{output}}", "yes"]
    ),
    max_size=4,
).map("\n".join)
NAMES = st.text(string.ascii_letters + string.digits + "_- .é", min_size=1, max_size=12).filter(
    lambda name: name.strip() == name
)
SHARES = st.integers(0, 1000).map(lambda n: n / 1000)
WEIGHTS = st.sampled_from([0.25, 0.3, 1.0, 2.0, 7.5])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-999, 10**12) | st.floats(-1e6, 1e6) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


def configured(kind: str, config: dict[str, Any]) -> dict[str, Any]:
    return read_config(kind, config).model_dump(mode="json")


LEAVES = st.one_of(
    st.tuples(st.just("text_check"), TEXT, st.booleans()).map(
        lambda t: (
            t[0],
            configured(t[0], {"operator": "contains", "value": t[1], "ignore_case": t[2]}),
        )
    ),
    st.lists(TEXT, min_size=1, max_size=3).map(
        lambda v: (
            "text_check",
            configured("text_check", {"operator": "contains_any", "values": v}),
        )
    ),
    st.integers(0, 5000).map(
        lambda n: (
            "text_check",
            configured("text_check", {"operator": "max_length", "max_length": n}),
        )
    ),
    st.tuples(ANY_TEXT.filter(lambda text: "{{" not in text), st.none() | st.integers(1, 3600)).map(
        lambda chosen: (
            "llm_judge",
            configured("llm_judge", {"prompt": chosen[0] + " end.", "timeout_s": chosen[1]}),
        )
    ),
    st.sampled_from(["exact", "contains", "regex"]).map(
        lambda match: ("expected_output", configured("expected_output", {"match": match}))
    ),
    st.lists(TEXT, min_size=1, max_size=3).map(
        lambda texts: ("rubric", configured("rubric", {"rubrics": texts, "mode": "graded"}))
    ),
)


@st.composite
def nodes(draw: st.DrawFn, depth: int = 2) -> tuple[Node, ...]:
    names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    return tuple(draw(node(name, depth)) for name in names)


@st.composite
def node(draw: st.DrawFn, name: str, depth: int) -> Node:
    facts: dict[str, Any] = {
        "weight": draw(WEIGHTS),
        "required": draw(st.booleans()),
        "required_below": draw(st.none() | SHARES),
        "negate": draw(st.booleans()),
    }
    if depth and draw(st.booleans()):
        children = draw(nodes(depth - 1))
        config = {"aggregator": draw(aggregators(children)).as_json()}
        return Node.from_json(
            Node(name=name, kind="composite", config=config, children=children, **facts).as_json()
        )
    kind, config = draw(LEAVES)
    return Node(name=name, kind=kind, config=config, **facts)


@st.composite
def aggregators(draw: st.DrawFn, children: tuple[Node, ...]) -> Aggregator:
    names = [child.name for child in children]
    return draw(
        st.one_of(
            st.sampled_from(["weighted_average", "minimum", "maximum"]).map(Aggregator),
            SHARES.map(lambda n: Aggregator("all_or_nothing", threshold=n)),
            SHARES.map(lambda n: Aggregator("threshold", share=n)),
            SHARES.map(lambda n: Aggregator("safety_gate", required=(names[0],), gate_threshold=n)),
            WEIGHTS.map(lambda w: Aggregator(weights={names[-1]: w})),
        )
    )


@st.composite
def cases(draw: st.DrawFn, taken: set[str]) -> tuple[CaseContent, ...]:
    keys = draw(st.lists(TEXT.filter(str.strip), min_size=1, max_size=3, unique=True))
    return tuple(draw(case(key, taken)) for key in keys)


@st.composite
def case(draw: st.DrawFn, key: str, taken: set[str]) -> CaseContent:
    own = draw(st.none() | nodes(1))
    append = own is not None and draw(st.booleans()) and not taken & {n.name for n in own}
    turn = st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant"]), "content": ANY_TEXT}
    )
    return CaseContent(
        key=key,
        input=tuple(draw(st.lists(turn, min_size=1, max_size=3))),
        title=draw(ANY_TEXT),
        tags=tuple(draw(st.lists(ANY_TEXT, max_size=2))),
        expected_output=draw(ANY_TEXT),
        expected_outcomes=tuple(draw(st.lists(TEXT.filter(str.strip), max_size=2))),
        criteria=draw(ANY_TEXT),
        metadata=draw(st.dictionaries(NAMES, JSON, max_size=3)),
        evaluators=None if own is None else root_of(own),
        evaluators_append=append,
        recorded_output=draw(st.none() | ANY_TEXT.map(lambda text: {"output": text})),
    )


POLICIES = st.builds(
    Policy,
    pass_threshold=st.just(0.9),
    borderline_threshold=SHARES.map(lambda n: n * 0.9),
    case_gate=st.sampled_from(["score", "expected_outcomes"]),
    fallback_threshold=SHARES,
    on_unscored=st.sampled_from(["error", "exclude", "zero"]),
    metrics_pass_threshold=SHARES,
    cases_pass_threshold=SHARES,
    max_pass_rate_drop=SHARES,
    max_avg_score_drop=SHARES,
    max_latency_increase_pct=st.integers(0, 500).map(float),
    count_reviews=st.booleans(),
    scale=st.sampled_from([1, 5, 10, 100]),
)


@st.composite
def suites(draw: st.DrawFn) -> SuiteContent:
    children = draw(nodes())
    aggregator = draw(st.none() | aggregators(children))
    return SuiteContent(
        slug=draw(st.from_regex(r"[a-z0-9][a-z0-9-]{0,10}[a-z0-9]", fullmatch=True)),
        title=draw(TEXT),
        description=draw(ANY_TEXT),
        tags=tuple(draw(st.lists(ANY_TEXT, max_size=2))),
        judge=draw(st.sampled_from(["", "strict"])),
        policy=draw(POLICIES),
        root=root_of(children, aggregator.as_json() if aggregator else None),
        cases=draw(cases({child.name for child in children})),
        metadata=draw(st.dictionaries(NAMES, JSON, max_size=3)),
    )


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(suites())
def test_a_written_suite_reads_back_the_same(content: SuiteContent) -> None:
    assert agentv.read(agentv.write(content)) == content
