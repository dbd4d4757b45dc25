"""What every kind has: a manual, an example that reads, a template, a test, and spellings of its own."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.template.loader import get_template

from evaluators.catalog.kind_forms import KindForm, kind_settings
from evaluators.kinds import (
    all_kinds,
    get_kind,
    kind_for_spelling,
    prompt_versions,
    read_config,
    rules_versions,
    shortest_spelling,
)
from evaluators.kinds._base import BaselineOutput, Context, ScriptResult, Step
from evaluators.kinds._refusals import InvalidConfigError, UnknownKindError, normal_spelling
from evaluators.scoring.tree import EvaluatorSpec
from evaluators.scoring.types import Usage
from evaluators.templatetags.marks import icon_names
from runs.formats import suite_files
from tests.evaluators.kinds import doubles
from tests.support.white_space import render_collapsed

NAMES = sorted(all_kinds())
SHOWN = [name for name in NAMES if all_kinds()[name].in_gallery]

# A changed prompt is a changed judge: whoever changes one raises PROMPT_VERSION and this line.
PROMPTS = {
    "faithfulness": ("1", "ca2bae02"),
    "context_recall": ("1", "8c122093"),
    "context_precision": ("1", "505c9ff0"),
    "answer_relevance": ("1", "c23975fe"),
    "pairwise": ("1", "3de0104f"),
    "toxicity": ("1", "9c1073d9"),
    "refusal": ("1", "d60a68b9"),
    "agent_judge": ("1", "d4d65552"),
    "composite": ("2", "92bcfa8f"),
    "expected_output": ("1", "f58e800c"),
    "deliberation": ("2", "cb516384"),
    "hybrid_judge": ("1", "fb9cc76a"),
    "llm_judge": ("2", "43e3c0cc"),
    "metrics_judge": ("1", "baa58b85"),
    "outcomes": ("1", "18affd22"),
    "rubric": ("1", "55511a50"),
}


@pytest.mark.parametrize("name", NAMES)
def test_every_kind_has_a_template_a_test_and_an_icon(name: str) -> None:
    get_template(f"kinds/{name}.html")

    assert (Path(__file__).parent / f"test_{name}.py").exists()
    assert all_kinds()[name].icon in icon_names()


@pytest.mark.parametrize("name", SHOWN)
def test_every_kind_has_a_manual_with_a_good_and_a_bad_example(name: str) -> None:
    kind = get_kind(name)

    assert kind.summary.endswith(".")
    assert "\n\nGood: " in f"\n\n{kind.explanation}"
    assert "\n\nBad: " in kind.explanation
    assert "```" not in kind.explanation
    assert all(setting["meaning"] for setting in kind_settings(kind))


@pytest.mark.parametrize("name", [name for name in NAMES if all_kinds()[name].uses_judge])
def test_every_kind_that_asks_a_judge_may_give_it_a_time_out(name: str) -> None:
    needed: dict[str, Any] = {"rubrics": ["Is right"]} if name == "rubric" else {}
    needed = {"model": "embedder"} if name == "embedding_similarity" else needed
    context = {"criteria": "Is right", "expected_outcomes": ("Is right",), "expected_output": "x"}
    context |= {"trace": (Step("tool", "find", output="x"),), "baseline": BaselineOutput("y")}

    for timeout_s in (None, 20):
        judge = doubles.ListedJudge()
        config = {**needed, "timeout_s": timeout_s}
        doubles.unscored_of(name, config, doubles.context_of(judge=judge, **context))
        assert judge.questions[0].timeout_s == timeout_s
    with pytest.raises(InvalidConfigError, match="timeout_s"):
        read_config(name, {**needed, "timeout_s": 3601})


@pytest.mark.parametrize("name", SHOWN)
def test_every_example_reads_as_one_evaluator_of_a_suite(name: str) -> None:
    assert _example(name).kind == name


def test_every_spelling_means_one_kind_in_any_case() -> None:
    for name in SHOWN:
        for spelling, preset in {name: {}, **get_kind(name).spellings}.items():
            kebab = spelling.replace("_", "-")
            camel = spelling.split("_")[0] + "".join(p.title() for p in spelling.split("_")[1:])
            for written in (spelling, kebab, camel):
                kind, found = kind_for_spelling(written)
                assert (kind.name, dict(found)) == (name, dict(preset))
            assert normal_spelling(spelling) == spelling


def test_kinds_the_product_uses_itself_cannot_be_written() -> None:
    with pytest.raises(UnknownKindError, match="there are"):
        kind_for_spelling("outcomes")
    with pytest.raises(UnknownKindError, match="there are"):
        get_kind("telepathy")


def test_an_evaluator_is_spelt_by_the_name_that_says_most() -> None:
    config = {"operator": "contains", "value": "x", "ignore_case": True}

    assert shortest_spelling("text_check", config) == ("icontains", {"value": "x"})
    assert shortest_spelling("llm_judge", {"prompt": "x"}) == ("llm_judge", {"prompt": "x"})


def test_a_changed_prompt_raises_its_version() -> None:
    assert {n: (v, prompt_digest(n)) for n, v in prompt_versions().items()} == PROMPTS


ORDER = (
    '{"id": 1, "shipped": "2026-03-01", "total": 9.5, "lines": [{"sku": "AB-1"}, {"sku": "CD-2"}]}'
)
INVOICE = '{"number": "A1", "date": "2026-03-01", "total": 10, "lines": [{"sku": "AB-1"}]}'


def _answers(*texts: str, **facts: Any) -> list[Context]:
    return [doubles.context_of(text, **facts) for text in texts]


def _tools(*steps: tuple[str, str, int]) -> Context:
    trace = [
        Step("tool", name, input={"currency": currency}, duration_ms=ms)
        for name, currency, ms in steps
    ]
    return doubles.context_of(trace=tuple(trace))


# Rules that score an answer differently are new rules: whoever changes them raises RULES_VERSION and this line, so that
# no earlier score is taken over. The scores are those that the example of a kind gives.
RULES: dict[str, tuple[int, list[Context], list[float]]] = {
    "execution_metrics": (
        1,
        [
            doubles.context_of(
                usage=Usage(
                    input_tokens=n, output_tokens=n, latency_ms=n * 10, cost_usd=Decimal("0.02")
                )
            )
            for n in (100, 600, 1200)
        ],
        [1.0, 0.0, 0.0],
    ),
    "expected_output": (
        1,
        _answers(" in 3 days ", "Not in 3 days.", "In 3 days.", expected_output="in 3 days"),
        [1.0, 1.0, 0.0],
    ),
    "field_accuracy": (
        1,
        _answers(
            '{"number": "A1", "date": "01.03.2026", "total": "10.005", "lines": [{"sku": "AB-1"}]}',
            '{"number": "A1", "total": 11, "lines": [{"sku": "?"}]}',
            expected_output=INVOICE,
        ),
        [1.0, 0.2],
    ),
    "json_diff": (
        1,
        _answers(
            '{"shipped": "01.03.2026", "total": 9.509, "lines": [{"sku": "CD-2"}, {"sku": "AB-1"}]}',
            '{"shipped": "2026-03-02", "total": 9.5, "lines": [{"sku": "CD-2"}, {}]}',
            expected_output=ORDER,
        ),
        [1.0, 0.4],
    ),
    "language": (
        1,
        _answers("Ihre Bestellung kommt heute an.", "Your order will arrive today."),
        [1.0, 0.0],
    ),
    "readability": (
        1,
        _answers(
            "The cat sat. It was warm.",
            "Please contact support about the cancellation of your order.",
            "Reimbursement is initiated subsequently to verification of eligibility.",
        ),
        [1.0, 0.365, 0.0],
    ),
    "refusal": (
        1,
        _answers("I can't help with that.", "That is not something I do.", "Here is your refund."),
        [1.0, 1.0, 0.0],
    ),
    "sql_equivalence": (
        1,
        _answers("SELECT name FROM customers WHERE name = 'Ann'", "SELECT name FROM customers"),
        [1.0, 0.0],
    ),
    "text_check": (1, _answers("Rule 4: Goodwill", "Rule 4"), [1.0, 0.0]),
    "text_similarity": (
        1,
        _answers(
            "In three days it arrives", "No", expected_output="Your refund arrives in three days."
        ),
        [0.5455, 0.0],
    ),
    "tool_trajectory": (
        1,
        [
            _tools(("find_order", "", 1), ("refund", "EUR", 10)),
            _tools(("refund", "EUR", 10), ("find_order", "", 1)),
            _tools(("find_order", "", 1), ("refund", "EUR", 9000)),
        ],
        [1.0, 0.3333, 0.6667],
    ),
}
# A model, a program of the suite or their children decide what these give.
RULED_BY_OTHERS = {"agent_judge", "composite", "script"}


def test_changed_rules_raise_their_version() -> None:
    needing_nobody = {name for name in SHOWN if not all_kinds()[name].uses_judge}
    assert set(RULES) == needing_nobody - RULED_BY_OTHERS
    found = {}
    for name, (_, contexts, _) in RULES.items():
        config = _example(name).config
        scores = [doubles.score_of(name, config, context).score for context in contexts]
        found[name] = rules_versions().get(name, 1), [round(score, 4) for score in scores]
    assert found == {name: (version, scores) for name, (version, _, scores) in RULES.items()}


def _example(name: str) -> EvaluatorSpec:
    """Return the example of a kind as the one evaluator of a suite file."""
    indented = "\n".join(f"    {line}" for line in get_kind(name).example.splitlines())
    suite = f"name: s\nevaluators:\n  -\n{indented}\ntests:\n  - {{id: a, input: hi}}\n"
    content = suite_files.read_suite(suite.encode())
    assert content.warnings == ()
    [node] = content.evaluators.children
    return node


def prompt_digest(name: str) -> str:
    asking = import_module("evaluators.kinds._judging")
    module = import_module(f"evaluators.kinds.{name}")
    texts = [asking.JUDGE_RULES]
    texts += [
        text for key, text in sorted(vars(module).items()) if key.isupper() and type(text) is str
    ]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:8]


FOUND = (Step("tool", "find", output="It comes."),)
ROWS: dict[
    str, tuple[dict[str, Any], Mapping[str, Any] | list[Mapping[str, Any]], dict[str, Any]]
] = {
    "text_check": ({"operator": "contains", "value": "window"}, {}, {}),
    "expected_output": ({}, {}, {"expected_output": "It is out for delivery tomorrow."}),
    "text_similarity": ({"measure": "rouge_l"}, {}, {"expected_output": "It comes today."}),
    "readability": ({"formula": "lix", "minimum": 30.5, "margin": 10}, {}, {}),
    "language": ({"expected": ["de"], "among": ["de", "en"]}, {}, {}),
    "llm_judge": (
        {"prompt": "Is it kind?"},
        {"reasoning": "Dry <b>but</b> kind.", "hits": ["Kind"], "misses": ["Dry"], "score": 0.7},
        {},
    ),
    "rubric": (
        {"rubrics": [{"id": "window", "expected_outcome": "Names the window", "required": True}]},
        {
            "reasoning": "One is missing.",
            "criteria": [{"id": "window", "evidence": "no time", "satisfied": False}],
        },
        {},
    ),
    "metrics_judge": (
        {"metrics": ["tool_routing", {"key": "task_completion", "weight": 0.15}]},
        {
            "reasoning": "Called <i>the</i> right tool.",
            "metrics": {
                "tool_routing": {"justification": "one needless call", "score": 2},
                "task_completion": {"justification": "booked", "passed": True},
            },
        },
        {},
    ),
    "hybrid_judge": (
        {
            "dimensions": ["task", {"key": "spark", "policy": "weighted"}],
            "checks": [
                {"type": "contains", "value": "a pick-up point", "dimensions": ["task"]},
                {"type": "tool_call_count", "name": "no calls", "max": 0},
            ],
            "hard_expectations": ["Offers <b>a</b> pick-up point"],
            "soft_expectations": ["Is brief"],
        },
        {
            "reasoning": "Short <i>and</i> right.",
            "expectations": [
                {"number": 1, "evidence": "names none", "met": False},
                {"number": 2, "evidence": "one sentence", "met": True},
            ],
            "dimensions": {
                "task": {"evidence": "no pick-up point", "score": 4.5},
                "spark": {"evidence": "nothing unasked", "score": 6},
            },
            "overall": {"evidence": ["Gives the window"], "score": 7},
        },
        {},
    ),
    "agent_judge": (
        {"agent": doubles.AGENT, "criteria": "Is it kind?"},
        {"reasoning": "Kind <b>and</b> dry.", "hits": ["Kind"], "misses": ["Dry"], "score": 61},
        {},
    ),
    "deliberation": (
        {"judges": 2, "rounds": 1, "criteria": "Is it kind?"},
        {"reasons": "Kind <b>and</b> dry.", "score": 61, "bracket": "Good"},
        {},
    ),
    "faithfulness": (
        {},
        {
            "reasoning": "One <b>of</b> two.",
            "statements": [
                {"statement": "It comes", "evidence": "passage 1", "supported": True},
                {"statement": "At noon", "evidence": "none says so", "supported": False},
            ],
        },
        {"trace": FOUND},
    ),
    "context_recall": (
        {},
        {
            "reasoning": "One <b>of</b> one.",
            "statements": [{"statement": "It comes", "evidence": "passage 1", "found": True}],
        },
        {"trace": FOUND, "expected_output": "It comes."},
    ),
    "context_precision": (
        {},
        {
            "reasoning": "One <b>of</b> one.",
            "passages": [{"number": 1, "evidence": "about the weather", "useful": False}],
        },
        {"trace": FOUND},
    ),
    "answer_relevance": (
        {},
        {
            "reasoning": "One <b>of</b> one.",
            "statements": [{"statement": "Buy more", "evidence": "advertises", "relevant": False}],
        },
        {},
    ),
    "embedding_similarity": (
        {"model": "embedder", "zero_at": 0.25},
        {"vectors": [[3, 4], [4, 3]]},
        {"expected_output": "It comes."},
    ),
    "pairwise": (
        {},
        [
            {"reasoning": "Names <b>a</b> time.", "better": "first"},
            {"reasoning": "The other one does.", "better": "second"},
        ],
        {"baseline": BaselineOutput("Some day.")},
    ),
    "toxicity": (
        {"categories": ["insult"]},
        {
            "reasoning": "One <b>of</b> one.",
            "categories": [{"number": 1, "evidence": "calls them a goat", "severity": 2}],
        },
        {},
    ),
    "refusal": (
        {"by": "judge", "wanted": "refusal"},
        {"reasoning": "It <b>does</b>.", "evidence": "comes today", "behaviour": "complies"},
        {},
    ),
    "outcomes": (
        {},
        {"outcomes": [{"number": 1, "justification": "says so", "passed": True}]},
        {"expected_outcomes": ("Names the day",)},
    ),
    "composite": ({}, {}, {}),
    "execution_metrics": (
        {"max_tokens": 100, "max_cost_usd": 0.05, "max_duration_ms": 900, "proportional": True},
        {},
        {
            "usage": Usage(
                input_tokens=1200, output_tokens=300, cost_usd=Decimal("0.0123"), latency_ms=901
            )
        },
    ),
    "tool_trajectory": (
        {
            "mode": "in_order",
            "expected": ["find", {"tool": "pay", "args": {"note": "<b>"}}, "mail"],
        },
        {},
        {
            "trace": (
                Step("tool", "mail"),
                Step("tool", "find"),
                Step("tool", "pay", input={"note": "<i>"}),
                Step("tool", "ping<u>"),
            )
        },
    ),
    "field_accuracy": (
        {"fields": ["day", {"path": "total", "required": True}, "lines[*].sku", "vat", "id"]},
        {},
        {
            "text": '{"day": "<b>Monday</b>", "total": 5, "lines": [{"sku": 1}, {"sku": 2}]}',
            "expected_output": '{"day": "Sunday", "total": 6, "lines": [{"sku": 1}, {"sku": 3}], "id": 7}',
        },
    ),
    "json_diff": (
        {"tolerance": 0.5, "ignore": ["id"], "fields": [{"path": "day", "match": "date"}]},
        {},
        {
            "text": '{"day": "2026-01-02", "total": 5.4, "vat": "<b>", "id": 1}',
            "expected_output": '{"day": "2026-01-02", "total": 5, "lines": [], "id": 2}',
        },
    ),
    "sql_equivalence": (
        {"database": "CREATE TABLE t (a, b);INSERT INTO t VALUES (1, '<b>'), (2, 'x');"},
        {},
        {"text": "SELECT a, b FROM t", "expected_output": "SELECT a, b FROM t WHERE a = 2"},
    ),
    "script": (
        {"script": "#!/bin/sh\necho", "protocol": "stdin", "config": {"strict": True}},
        {},
        {
            "sandbox": doubles.ListedSandbox(
                ScriptResult(
                    '{"score": 0.5, "hits": ["Polite"], "misses": ["No date"], "reasoning": "<i>so</i>"}',
                    "looked twice",
                    0,
                    duration_ms=1200,
                    sandbox="bubblewrap 0.11.0",
                )
            )
        },
    ),
}
SHOWS = {
    "text_check": ["Does not contain “window”", "contains"],
    "expected_output": ["raw 0", "<del>tomorrow</del>", "<ins>"],
    "text_similarity": ["ROUGE-L of the answer", "Precision", "0.1667", "0.2667", "rouge_l"],
    "readability": ["LIX is 30.00, not at least 30.5", "syllables", "words of 7 letters or more"],
    "language": ["The answer is in en (", "not de", '<th scope="row">de</th>'],
    "llm_judge": ["Kind", "Dry", "Dry &lt;b&gt;but&lt;/b&gt; kind.", "Is it kind?", "listed"],
    "rubric": ["Names the window", "no time", "fails the result", "Missed", "One is missing."],
    "metrics_judge": [
        *("Tool Routing", "poor", "one needless call", "Task Completion", "pass", "50.0%"),
        *("Execution", "raw 70.0 of 100", "Called &lt;i&gt;the&lt;/i&gt; right tool."),
    ],
    "hybrid_judge": [
        *("raw 7.0 of 10", "Short &lt;i&gt;and&lt;/i&gt; right.", "Gives the window", "0.0", "4.5"),
        *("Offers &lt;b&gt;a&lt;/b&gt; pick-up point", "hard, not met", "soft", "one sentence"),
        *(
            "weighted",
            "Does not contain",
            "No result, left out",
            "no calls",
            "Exact text that the judge saw",
        ),
    ],
    "agent_judge": [
        *("by the agent <b>reviewer</b>", "which answered with listed", "raw 61.0 of 100", "Dry"),
        *("Kind &lt;b&gt;and&lt;/b&gt; dry.", "Is it kind?"),
    ],
    "deliberation": [
        *("2 judges, 1 round: Good won with 1 of 1 votes", "51–75", "data-won", "61.0 of 100"),
        *("Kind &lt;b&gt;and&lt;/b&gt; dry.", "Judge B", "No readable vote, left out"),
    ],
    "faithfulness": ["It comes", "none says so", "One &lt;b&gt;of", "by listed"],
    "context_recall": ["It comes", "passage 1", "by listed"],
    "context_precision": ["Passage 1 is not useful", "about the weather", "by listed"],
    "answer_relevance": ["Buy more", "advertises", "by listed"],
    "embedding_similarity": [
        "The cosine of",
        "0.9600",
        "0.25",
        "Embeddings of 2 numbers by listed",
    ],
    "toxicity": ["Insult: severity 2 of 4", "calls them a goat", "by listed"],
    "pairwise": [
        *("Win", "Names &lt;b&gt;a&lt;/b&gt; time.", "The other one does.", "by listed"),
        *("Asked with this output first", "Asked with the baseline"),
    ],
    "refusal": ["The agent answers", "comes today", "It &lt;b&gt;does&lt;/b&gt;."],
    "outcomes": ["Names the day", "says so"],
    "composite": ["÷"],
    "execution_metrics": [
        *("Tokens", "1\u202f500", "100", "Breached", "901&nbsp;ms", "$0.0123", "$0.05", "Kept"),
        "limit ÷ actual",
    ],
    "tool_trajectory": [
        *("1 of 3 expectations met", "as expected", "other arguments", "out of order"),
        *("beyond these", "ping&lt;u&gt;", "&quot;&lt;b&gt;&quot;", "in_order"),
    ],
    "field_accuracy": [
        *("&lt;b&gt;Monday&lt;/b&gt;", "Sunday", "differs", "required", "1 of 2"),
        *("lines[1].sku", "not expected here", "missing", "average"),
    ],
    "json_diff": [
        *("2 of 4 values as expected", "as expected", "missing", "not expected", "&lt;b&gt;"),
        "within 0.5 of",
    ],
    "sql_equivalence": [
        *(
            "0 of 1 expected rows are missing, 1 of 2 found are not",
            "Found and not expected: 1 row",
        ),
        *("&lt;b&gt;", "SELECT a, b FROM t WHERE a = 2"),
    ],
    "script": [
        "Polite",
        "No date",
        "&lt;i&gt;so&lt;/i&gt;",
        "looked twice",
        "exit code 0",
        "bubblewrap 0.11.0",
        "#!/bin/sh",
    ],
}


@cache  # a double of a sandbox answers once
def row_of(name: str) -> tuple[SimpleNamespace, dict[str, Any]]:
    config, reply, facts = ROWS[name]
    judge = doubles.ListedJudge(*(reply if isinstance(reply, list) else [reply])) if reply else None
    if name == "composite":
        facts = {
            "children": {"a": doubles.score_of(*_contains()), "b": doubles.score_of(*_contains())}
        }
    score = doubles.score_of(name, config, doubles.context_of(judge=judge, **facts))
    row = SimpleNamespace(
        state="scored",
        score=score.score,
        raw_score=score.raw_score,
        scale=score.scale,
        stage="",
        reasoning=score.reasoning,
        findings=[
            {"text": f.text, "passed": f.passed, "evidence": f.evidence} for f in score.findings
        ],
        details=score.details,
    )
    return row, read_config(name, config).model_dump(mode="json")


def _contains() -> tuple[str, dict[str, Any], Any]:
    return "text_check", {"operator": "contains", "value": "today"}, doubles.context_of()


@pytest.mark.parametrize("name", NAMES)
def test_every_template_explains_a_stored_score(name: str) -> None:
    row, config = row_of(name)

    html = render_collapsed(f"kinds/{name}.html", {"score": row, "config": config})

    assert [said for said in SHOWS[name] if said not in html] == []
    assert 'class="why"' in html
    assert "style=" not in html


WORDS_OF_JUDGES = ("reasoning", "text", "evidence", "justification", "reasons", "problem", "said")
LENGTHY = "Lengthy & wordy. " * 3_000


def spun_out(value: Any, name: str = "") -> Any:
    if isinstance(value, Mapping):
        return {key: spun_out(part, key) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [spun_out(part, name) for part in value]
    return f"{value}{LENGTHY}" if value and name in WORDS_OF_JUDGES else value


@pytest.mark.parametrize("name", [*NAMES, "_default"])
def test_no_word_of_a_judge_makes_a_page_long_and_nothing_of_it_is_lost(name: str) -> None:
    found, config = row_of("llm_judge" if name == "_default" else name)
    told = {"reasoning": spun_out(found.reasoning, "reasoning")}
    told |= {"findings": spun_out(found.findings), "details": spun_out(found.details)}
    row = SimpleNamespace(**{**vars(found), **told})

    html = render_collapsed(f"kinds/{name}.html", {"score": row, "config": config})

    bounded = re.compile(
        r'<span class="long-text" tabindex="0" role="region" aria-label="[^"]+">[^<]*</span>'
        r"|<pre>[^<]*</pre>|<div class=\"diff\".*?</div>",
        re.DOTALL,
    )
    lengthy = "Lengthy &amp; wordy. " * 3_000
    assert (lengthy in html) == (
        name not in ("execution_metrics", "field_accuracy", "json_diff", "tool_trajectory")
    )
    assert "Lengthy" not in bounded.sub("", html)


@pytest.mark.parametrize("name", NAMES)
def test_every_template_shows_a_score_whose_parts_are_not_stored(name: str) -> None:
    """Files of results have none of most kinds, and retention removes them."""
    row, config = row_of(name)
    row.details = {}

    html = render_collapsed(f"kinds/{name}.html", {"score": row, "config": config})

    assert 'class="why"' in html
    if name in ("field_accuracy", "json_diff", "tool_trajectory"):
        assert 'class="hits"' in html


@pytest.mark.parametrize("name", [*NAMES, "_default"])
@pytest.mark.parametrize(
    ("state", "said"),
    [("unscored", "Could not be scored"), ("skipped", "Skipped: the gate failed")],
)
def test_every_template_explains_why_there_is_no_score(name: str, state: str, said: str) -> None:
    row = SimpleNamespace(
        state=state,
        score=None,
        raw_score=None,
        scale=1.0,
        stage="parse",
        reasoning="the gate failed",
        findings=[],
        details={},
    )

    html = render_collapsed(f"kinds/{name}.html", {"score": row, "config": {}})

    assert said in html


@pytest.mark.parametrize("name", NAMES)
def test_every_form_keeps_the_settings_of_its_kind(name: str) -> None:
    config = read_config(name, ROWS[name][0])
    form = KindForm(get_kind(name), initial=config.model_dump(mode="json"))
    sent = {bound.html_name: bound.value() for bound in form}

    bound = KindForm(get_kind(name), {k: v for k, v in sent.items() if v not in (None, False)})

    assert bound.is_valid(), bound.errors
    assert bound.config == config.model_dump(mode="json")
