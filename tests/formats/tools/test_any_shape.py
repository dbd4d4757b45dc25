"""Whatever stands in a file of another tool is read or refused by name, and never ends in a traceback."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from evaluators.reading.yaml import write_yaml
from runs.formats.finding import read_suites
from runs.formats.results_reading import read_results
from runs.formats.tools import FORMATS
from runs.formats.yaml import read_document
from runs.specs.problems import UnreadableFileError
from tests.formats.tools import test_experiments as experiments
from tests.formats.tools import test_inspect_ai as inspect_ai
from tests.formats.tools import test_openai_evals as openai_evals
from tests.formats.tools import test_pae as pae
from tests.formats.tools import test_promptfoo as promptfoo
from tests.formats.tools.support import given

JUNK = st.sampled_from([None, True, -1, 1e308, "", "x{{", "{% if %}", "file://../x", [], [[]], [None], {}, {"a": {}}, [{}], "🙂"])  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value within a document."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path, *(place for key, part in items for place in places(part, (*path, key)))]  # fmt: skip


def replaced(value: Any, path: tuple[Any, ...], junk: Any) -> Any:
    if not path:
        return junk
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(copy[path[0]], path[1:], junk)
    return copy


def document(text: str) -> Any:
    return read_document(text).value


SUITES = {
    "promptfoo.yaml": (document(promptfoo.CONFIG), promptfoo.FILES, "shop/promptfooconfig.yaml"),
    "registry.yaml": (document(openai_evals.YAML), openai_evals.REGISTRY, "r/evals/my.yaml"),
    "eval.json": (openai_evals.EVAL, openai_evals.HOSTED, "eval.json"),
    "run.json": (openai_evals.RUN, openai_evals.HOSTED, "run.json"),
    "pae.yaml": (document(pae.SUITE), pae.CONFIGS, "configs/suites/office.yaml"),
    "case.yaml": (document(pae.CASE), pae.CONFIGS, "configs/cases/report/test.yaml"),
    "langsmith.json": (experiments.LANGSMITH, {}, "langsmith.json"),
    "langfuse.json": ({"data": experiments.LANGFUSE}, {}, "langfuse.json"),
    "braintrust.json": (experiments.BRAINTRUST, {}, "braintrust.json"),
}
RESULTS = {
    "promptfoo": promptfoo.DOCUMENT,
    "inspect": json.loads(inspect_ai.log("json").replace(b"NaN", b"null")),
    "openai": {"object": "list", "data": openai_evals.OUTPUT},
    "braintrust": experiments.BT,
    "phoenix": experiments.PH,
    "langsmith": experiments.LS,
}


@pytest.mark.parametrize("name", SUITES)
@settings(max_examples=15)
@drawn(data=st.data())
def test_any_suite_is_read_or_refused(name, data):
    value, files, path = SUITES[name]
    place = data.draw(st.sampled_from(places(value)))
    changed = replaced(value, place, data.draw(JUNK))
    text = json.dumps(changed) if path.endswith(".json") else write_yaml(changed)
    with suppress(UnreadableFileError):
        read_suites([given({**files, path: text})])


@pytest.mark.parametrize("name", RESULTS)
@settings(max_examples=15)
@drawn(data=st.data())
def test_any_results_are_read_or_refused(name, data):
    place = data.draw(st.sampled_from(places(RESULTS[name])))
    changed = replaced(RESULTS[name], place, data.draw(JUNK))
    with suppress(UnreadableFileError):
        read_results(json.dumps(changed).encode(), file="r.json")


def test_every_format_says_what_it_holds():
    assert all(each.read_suites or each.read_results or each.refusal for each in FORMATS)
    assert len({each.label for each in FORMATS}) == len(FORMATS)
