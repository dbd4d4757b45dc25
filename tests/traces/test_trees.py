"""Trees of spans and steps that tell the truth about their parents, and such that do not."""

from __future__ import annotations

from typing import Any

import pytest

from evaluators.templatetags.ui import step_rows, steps_with_depth
from runs.target_kinds._outputs import MAX_STEPS, output_from_json, trace_as_json
from runs.traces.conventions import ExecutionName
from runs.traces.trees import PlacedStep, SpanTree, nested_steps

MS = 10**6


def placed(
    name: str, parent: str = "", start_ms: int | None = 0, case: str = "", **step: Any
) -> PlacedStep:
    started = None if start_ms is None else 10**18 + start_ms * MS
    mark = ExecutionName("1", case, 1) if case else None
    return PlacedStep(name, parent, started, mark, {"type": "step", "name": name, **step})


def in_order(*spans: PlacedStep) -> str:
    tree = SpanTree(spans)
    assert tree.root is not None
    return "".join(span.span_id for span in tree.in_order())


def steps(*pairs: tuple[str, str]) -> list[dict[str, Any]]:
    return [
        {"type": "tool", "name": name, "id": name, "parent_id": parent} for name, parent in pairs
    ]


def test_spans_follow_the_one_above_and_their_start() -> None:
    spans = [
        placed("d", "b", 5),
        placed("c", "a", 9),
        placed("b", "a", 3),
        placed("a"),
        placed("e", "b", 4),
    ]
    assert in_order(*spans) == "abedc"
    # Lost parents, circles and spans of their own are below the root.
    odd = [placed("x", "gone"), placed("y", "z"), placed("z", "y"), placed("w", "w")]
    assert in_order(*spans, *odd) == "abedcxwyz"
    whole = nested_steps(SpanTree([*spans, *odd]).in_order())
    assert [step.get("parent_id") for step in whole] == [None, *"abba", *"aaay"]
    # Without a root, and of several roots, none is below another.
    for first in (placed("q", "gone"), placed("q")):
        made = nested_steps(
            SpanTree([first, placed("r", "q"), placed("s", first.parent_id)]).in_order()
        )
        assert [step.get("parent_id") for step in made] == [None, "q", None]


def test_a_long_chain_and_many_spans_end() -> None:
    chain = [placed(str(number), str(number - 1)) for number in range(1, 9_000)]
    tree = SpanTree([placed("0"), *chain])
    assert tree.root is not None
    made = nested_steps(tree.in_order())
    assert len(made) == MAX_STEPS
    assert max(depth for depth, _ in steps_with_depth(made)) == MAX_STEPS - 1
    assert max(row.depth for row in step_rows(made)) == 8


def executions(*spans: PlacedStep) -> list[tuple[str, str]]:
    found = SpanTree(spans).executions()
    return [(mark.case, "".join(span.span_id for span in below)) for mark, below in found]


def test_each_span_belongs_to_the_execution_of_the_nearest_span_above_that_names_one() -> None:
    tree = [
        placed("a"),
        placed("b", "a", 1, "X"),
        placed("c", "b", 1, "X"),
        placed("d", "a", 2, "Y"),
    ]
    assert executions(*tree, placed("e", "c", 3, "Z"), placed("f", "c", 4), placed("g", "e")) == [
        *(("X", "bcf"), ("Z", "eg"), ("Y", "d"))
    ]
    # What lost its parent belongs to the only root, if that names one.
    odd = [placed("x", "gone"), placed("y", "z"), placed("z", "y"), placed("w", "x", case="W")]
    assert executions(placed("a", case="A"), *odd) == [("A", "axyz"), ("W", "w")]
    assert executions(placed("a"), *odd) == [("W", "w")]
    assert executions(placed("a", case="A"), placed("b", case="B"), odd[0]) == [
        ("A", "a"),
        ("B", "b"),
    ]
    chain = [placed(str(n), str(n - 1) if n else "", case=str(n)) for n in range(9_000)]
    assert {len(below) for _, below in SpanTree(chain).executions()} == {1}


def test_figures_are_summed_unless_a_span_has_its_own_and_times_cannot_be_negative() -> None:
    root = placed("a", start_ms=100)
    model = placed("b", "a", 40, input_tokens=10, cost_usd="0.1")
    agent = placed("c", "a", None, input_tokens=7)
    inner = placed("d", "c", 900, input_tokens=99, output_tokens=3, cost_usd="0.02")
    huge = placed("e", "a", 950, output_tokens=2**31 - 1)
    made = {step["id"]: step for step in nested_steps([root, model, agent, inner, huge])}
    assert (made["a"]["input_tokens"], made["a"]["cost_usd"]) == (17, "0.12")
    assert (made["c"]["input_tokens"], made["c"]["output_tokens"]) == (7, 3)
    # More than can be: it is left out, not cut.
    assert "output_tokens" not in made["a"]
    assert [made[name].get("started_ms") for name in "abcd"] == [0, 0, None, 800]


def test_steps_of_a_page_are_nested_whatever_they_say() -> None:
    def shape(*pairs: tuple[str, str]) -> str:
        return " ".join(f"{depth}{step['name']}" for depth, step in steps_with_depth(steps(*pairs)))

    assert shape(("c", "b"), ("a", ""), ("b", "a"), ("d", "a")) == "0a 1b 2c 1d"
    assert shape(("a", "gone"), ("b", "b"), ("c", "d"), ("d", "c")) == "0a 0b 0c 1d"
    assert shape(("a", ""), ("b", "a"), ("a", "b")) == "0a 1b 2a"
    assert [depth for depth, _ in steps_with_depth([{"name": "a"}, {"name": "b"}])] == [0, 0]


def test_recorded_steps_keep_their_parents_and_costs() -> None:
    line = {
        "output": "Yes.",
        "trace": [
            {"type": "agent", "name": "a", "id": 1, "cost_usd": 0.5},
            {"type": "tool", "name": "b", "id": "2", "parent_id": 1, "error": None},
        ],
    }
    output = output_from_json(line)
    assert trace_as_json(output) == [
        {"type": "agent", "name": "a", "id": "1", "cost_usd": "0.5"},
        {"type": "tool", "name": "b", "id": "2", "parent_id": "1"},
    ]
    assert output_from_json({**line, "trace": trace_as_json(output)}) == output
    with pytest.raises(ValueError, match="cost_usd is -1"):
        output_from_json({"output": "", "trace": [{"type": "a", "name": "a", "cost_usd": -1}]})
