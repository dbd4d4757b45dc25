"""Files that cannot be used: each is told its line, case, key and remedy, and leaves nothing behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pytest
from django.apps import apps
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.urls import reverse

from runs.files.importing import import_suite
from runs.formats import suite_files
from runs.formats.reading import MAX_KEYS, MAX_WARNINGS
from runs.specs.problems import Problem, UnreadableFileError
from tests.support.factories import make_user

pytestmark = pytest.mark.one_database

FILE = "shop.yaml"
# The suite that is there before, and that every file here would change if it were taken.
BEFORE = b"name: shop\nevaluators: [{type: contains, value: a}]\ntests: [{id: A, input: hi}]\n"
CASE = "name: shop\ntests:\n  - id: A\n    input: hi\n"
TREE = f"{CASE}evaluators:\n  - name: check\n    "
TWO = f"{TREE}type: composite\n    evaluators: [{{name: one, type: is_json}}]\n    "
OUTPUT = f"{CASE}    output:\n      output: Hello\n      "


@dataclass(frozen=True)
class Bad:
    """A file, where the first thing wrong with it stands, and what is said of that."""

    name: str
    text: str | bytes
    line: int
    key: str
    says: str
    remedy: str
    case: str = ""
    files: dict[str, bytes] = field(default_factory=dict)

    @property
    def content(self) -> bytes:
        return self.text.encode() if isinstance(self.text, str) else self.text


MALFORMED = (
    # What is no YAML.
    Bad("empty", "", 0, "", "the file is empty", "names its cases under tests"),
    Bad("comments only", "# nothing\n", 0, "", "the file is empty", "under tests"),
    Bad("tabs", "name: shop\ntests:\n\t- id: A\n", 3, "", "not readable as YAML", "with spaces"),
    Bad("bracket", "name: shop\ntests: [{id: A\n", 3, "", "not readable as YAML", "close what is"),
    Bad("colon", "name: shop: of ours\n", 1, "", "mapping values are not", "in quotes"),
    Bad("quotes", 'name: shop\ntests: "x\n', 3, "", "unexpected end", "close the quotes"),
    Bad("indent", "name: shop\n  title: x\n", 2, "", "not readable as YAML", "in quotes"),
    Bad("alias", "name: *shop\n", 1, "", "undefined alias", "name the value with &"),
    Bad("two documents", "name: a\n---\nname: b\n", 2, "", "another document", "without ---"),
    Bad("sign", "name: shop\ntests: @all\n", 2, "", "cannot start any token", "in quotes"),
    Bad("escape", 'name: "\\q"\n', 1, "", "unknown escape", "single quotes"),
    Bad("control", b"name: sh\x07op\n", 1, "", "control characters", "without them"),
    Bad("latin-1", "name: shop\ntitle: Müller\n".encode("latin-1"), 2, "", "not text", "UTF-8"),
    Bad("utf-16", "name: shop\n".encode("utf-16"), 1, "", "not text in UTF-8", "save it as UTF-8"),
    Bad("zip", b"PK\x03\x04\xff\xfe\x00", 0, "", "is not a text file", "in YAML or JSON Lines"),
    Bad("indented tests", "name: x\nevaluators:\n  - type: contains\n    value: a\n    tests:\n      - {id: A, input: q}\n", 1, "",
        "the suite has no cases", "those on line 5 belong to"),
    Bad("misspelt type", "evaluators: [{type: contians, value: x}]\ntests: [{id: A, input: q}]\n", 1,
        "evaluators[0].type", "There is no evaluator type 'contians'", "did you mean contains?"),
    Bad("tag", "name: !ours shop\n", 1, "", "the tag '!ours' is not known", "write a plain value"),
    Bad("twice", "name: shop\nname: b\n", 2, "", "the key 'name' is repeated", "keep one of them"),
    Bad("deep", "a: " + "[" * 600, 1, "", "nested too deeply", "60 levels is the limit"),
    Bad("loop", "a: &a\n  <<: *a\n", 2, "", "an alias contains itself", "write the value out"),
    Bad("infinity", f"{CASE}    metadata: {{a: .inf}}\n", 5, "", "not a number", "in quotes"),
    # What is no suite.
    Bad("a list", "- id: A\n", 1, "", "expected a mapping of keys", "but found a list"),
    Bad("no cases", "name: shop\n", 1, "", "the suite has no cases", "list them under tests"),
    Bad("null cases", "name: shop\ntests:\n", 1, "", "has no cases", "list them under tests"),
    Bad("empty cases", "name: shop\ncases: []\n", 2, "cases", "has no cases", "under tests"),
    Bad("cases elsewhere", "tests: ./c.csv\n", 1, "tests", "names no cases", "list them here"),
    Bad("a word", "name: shop\ntests: [A]\n", 2, "tests[0]", "'A' is not a case", "id and input"),
    Bad("cases twice", f"{CASE}cases: []\n", 5, "cases", "says the same as 'tests'", "keep one"),
    Bad("spelt twice", f"{CASE}eval_cases: 1\nevalCases: 2\n", 6, "evalCases", "is repeated", "evalCases"),
    Bad("nameless", f"name: '!?'\n{CASE[11:]}", 1, "name", "no letter or digit", "another name"),
    Bad("title", f"{CASE}title: {'x' * 201}\n", 5, "title", "longer than 200", "shorten it"),
    # Cases.
    Bad("no id", "name: shop\ntests:\n  - input: hi\n", 3, "tests[0]", "has no id", "give it one"),
    Bad("blank id", "tests: [{id: ' ', input: a}]\n", 1, "tests[0]", "has no id", "give it one"),
    Bad("id of truth", "tests: [{id: yes, input: a}, {id: true, input: a}]\n", 1, "tests[1].id",
        "expected a text", "but found true or false"),
    Bad("long id", f"tests: [{{id: {'x' * 201}, input: a}}]\n", 1, "tests[0].id", "longer than 200",
        "shorten it"),
    Bad("same id", f"{CASE}  - id: A\n    input: ho\n", 5, "tests[1].id", "is repeated, first on line 3",
        "give each case its own", case="A"),
    Bad("no input", "tests:\n  - id: A\n    criteria: x\n", 2, "tests[0]", "has no input",
        "under input", case="A"),
    Bad("null input", "tests:\n  - id: A\n    input:\n", 2, "tests[0]", "has no input",
        "under input", case="A"),
    Bad("input of truth", "tests: [{id: A, input: false}]\n", 1, "tests[0].input",
        "is neither a text", "turns with role and content", case="A"),
    Bad("no role", "tests:\n  - id: A\n    input:\n      - content: hi\n", 4,
        "tests[0].input[0]", "the turn has no role", "one of system, developer, user", case="A"),
    Bad("role", "tests:\n  - id: A\n    input:\n      - {role: boss, content: hi}\n", 4,
        "tests[0].input[0].role", "'boss' is not one of", "system, developer, user", case="A"),
    Bad("no content", "tests:\n  - id: A\n    input:\n      - role: user\n", 4,
        "tests[0].input[0]", "the turn has no content", "write a text", case="A"),
    Bad("image", "tests:\n  - id: A\n    input:\n      - role: user\n        content:\n"
        "          - {type: image, value: cat.png}\n", 6, "tests[0].input[0].content[0].value",
        "type image ('cat.png') cannot be made text", "blocks of type text, file or json", case="A"),
    Bad("no file", "tests:\n  - id: A\n    input: [{role: user, content: [{type: file, value: a.md}"
        "]}]\n", 3, "tests[0].input[0].content[0].value", "the file 'a.md' is not among",
        "add it to the upload", case="A"),
    Bad("file outside", "tests:\n  - id: A\n    inputFiles: [../../a.md]\n    input: hi\n", 3,
        "tests[0].inputFiles[0]", "is outside the folder", "of the suite", case="A"),
    Bad("file of bytes", "tests:\n  - id: A\n    input_files: cat.png\n    input: hi\n", 3,
        "tests[0].input_files[0]", "the file 'cat.png' is not text", "convert it",
        case="A", files={"cat.png": b"\x89PNG\xff"}),
    Bad("criteria", f"{CASE}    criteria: x\n    outcome: y\n", 6, "tests[0].outcome",
        "says the same as 'criteria'", "keep one of them", case="A"),
    Bad("criteria list", f"{CASE}    criteria: [x]\n", 5, "tests[0].criteria", "expected a text",
        "but found a list", case="A"),
    Bad("empty outcome", f"{CASE}    expected_outcomes: [' ']\n", 5, "tests[0].expected_outcomes",
        "an expected outcome is empty", "write it or remove it", case="A"),
    Bad("tags", f"{CASE}    tags: {{a: b}}\n", 5, "tests[0].tags", "expected a list of texts",
        "but found a mapping", case="A"),
    Bad("long tag", f"{CASE}    tags: [a, {'b' * 201}]\n", 5, "tests[0].tags[1]", "has 201 characters",
        "200 is the limit. Shorten it", case="A"),
    Bad("many tags", f"{CASE}    tags: [{', '.join('abcdefghij' * 11)}]\n", 5, "tests[0].tags",
        "has 110 tags; 100 is the limit", "Remove some", case="A"),
    Bad("long tag of a suite", f"{CASE}tags:\n- {'b' * 61}\n", 6, "tags[0]", "has 61 characters",
        "60 is the limit. Shorten it"),
    Bad("metadata", f"{CASE}    metadata: x\n", 5, "tests[0].metadata", "expected a mapping of keys",
        "but found 'x'", case="A"),
    Bad("kept twice", f"{CASE}    note: x\n    metadata: {{note: y}}\n", 5, "tests[0].note",
        "is in the metadata too", "keep one of them", case="A"),
    Bad("longest time", f"{CASE}max_minutes: 2.5\n", 5, "max_minutes", "is 2.5",
        "whole number of minutes from 1 to 525600"),
    # Recorded outputs.
    Bad("no answer", f"{CASE}    output: {{status: ok}}\n", 5, "tests[0].output",
        "contains no output, messages or files", "put an answer that is JSON in quotes", case="A"),
    Bad("latency", f"{OUTPUT}latency_ms: fast\n", 5, "tests[0].output", "latency_ms is 'fast'",
        "not a number of 0 or more", case="A"),
    Bad("lonely usage", f"{CASE}    usage: {{input_tokens: 3}}\n", 5, "tests[0].usage",
        "the case has none", "add output", case="A"),
    Bad("tool call", f"{CASE}    output: [{{role: assistant, tool_calls: [{{input: 1}}]}}]\n", 5,
        "tests[0].output", "tool_calls contains {'input': 1}", "does not name its tool", case="A"),
    Bad("file path", f"{OUTPUT}files: {{../a: x}}\n", 5, "tests[0].output", "not a path inside",
        "write one like report/summary.md", case="A"),
    Bad("base64", f"{OUTPUT}files: {{a.png: {{base64: '?'}}}}\n", 5, "tests[0].output",
        "'a.png' is not readable as base64", "base64", case="A"),
    Bad("left file", f"{OUTPUT}files: {{a.md: ./gone.md}}\n", 5, "tests[0].output",
        "the file './gone.md' is not among", "add it to the upload", case="A"),
    # Evaluators.
    Bad("type", f"{TREE}type: telepathy\n", 7, "evaluators[0].type", "no evaluator type 'telepathy'",
        "there are agent_judge, answer_relevance"),
    Bad("no type", f"{TREE}value: x\n", 6, "evaluators[0]", "type is missing", "such as contains"),
    Bad("a number", "evaluators: [3]\ntests: [{id: A, input: a}]\n", 1, "evaluators[0]",
        "is expected here", "a sentence to judge by"),
    Bad("a type alone", f"{CASE}assertions:\n  - is-json\n", 6, "assertions[0]", "is a type",
        "write type: is-json"),
    Bad("empty sentence", f"{CASE}    assert: ['']\n", 5, "tests[0].assert[0]", "is empty",
        "write what must be true", case="A"),
    Bad("mapping of them", f"{CASE}evaluators: {{a: b}}\n", 5, "evaluators", "expected a list,",
        "but found a mapping"),
    Bad("same name", f"{TREE}type: is_json\n  - {{name: check, type: is_json}}\n", 8,
        "evaluators[1].name", "'check' is repeated", "need names of their own"),
    Bad("slash", f"{CASE}evaluators: [{{name: a/b, type: is_json}}]\n", 5, "evaluators[0].name",
        "'a/b'", "no slash"),
    Bad("weight", f"{TREE}type: is_json\n    weight: heavy\n", 8, "evaluators[0].weight",
        "'heavy'", "is not a number"),
    Bad("below 0", f"{TREE}type: is_json\n    weight: -1\n", 8, "evaluators[0].weight",
        "the weight -1.0 is below 0", "0 records a score"),
    Bad("required", f"{TREE}type: is_json\n    required: often\n", 8, "evaluators[0].required",
        "'often' is neither true or false", "nor a number from 0 to 1"),
    Bad("no value", f"{TREE}type: contains\n", 6, "evaluators[0]", "contains needs value", "value"),
    Bad("misspelt", f"{TREE}type: contains\n    value: a\n    ignoreCaes: true\n", 9,
        "evaluators[0].ignoreCaes", "is not a setting of text_check", "did you mean ignore_case?"),
    Bad("misspelt weight", f"{TREE}type: contains\n    value: a\n    weigth: 2\n", 9,
        "evaluators[0].weigth", "is not a setting of text_check", "did you mean weight?"),
    Bad("misspelt in a composite", f"{TREE}type: composite\n    weigth: 2\n    assert: [Is kind]\n",
        8, "evaluators[0].weigth", "is not known here", "did you mean weight?"),
    Bad("misspelt input", "tests: [{id: A, inptu: hi}]\n", 1, "tests[0]", "has no input",
        "was 'inptu' meant to be it?", case="A"),
    Bad("foreign", f"{TREE}type: is-json\n    prompt: x\n", 8, "evaluators[0].prompt",
        "is not a setting of text_check", "there are ignore_case"),
    Bad("pattern", f"{TREE}type: regex\n    value: '('\n", 6, "evaluators[0]", "(", "regular"),
    Bad("flags", f"{TREE}type: regex\n    value: a\n    flags: q\n", 6, "evaluators[0]",
        "flags: 'q' is not known", "there are i, m and s"),
    Bad("variable", f"{TREE}type: llm_judge\n    prompt: 'See {{{{it}}}}'\n", 8,
        "evaluators[0].prompt", "{{it}} is not a variable", "there are answer"),
    Bad("prompt gone", f"{TREE}type: llm-grader\n    prompt: file://gone.md\n", 8,
        "evaluators[0].prompt", "the file 'file://gone.md' is not among", "add it to the upload"),
    Bad("prompt's variable", f"{TREE}type: llm_judge\n    prompt: ./a.md\n", 8,
        "evaluators[0].prompt", "{{it}} is not a variable", "there are answer",
        files={"a.md": b"See {{it}}"}),
    Bad("prompt by program", f"{TREE}type: llm-grader\n    prompt: {{command: [x]}}\n", 6,
        "evaluators[0]", "a prompt written by a program", "write a text or name a file"),
    Bad("criterion", f"{TREE}type: rubric\n    rubrics: [{{id: a}}]\n", 8,
        "evaluators[0].rubrics[0].expected_outcome", "rubrics[0].expected_outcome", "is missing"),
    Bad("no criteria", f"{TREE}type: rubric\n    rubrics: []\n", 8, "evaluators[0].rubrics",
        "is empty", "it needs at least one"),
    Bad("grades", f"{TREE}type: rubric\n    rubrics: [{{outcome: a, score_ranges: {{11: b}}}}]\n", 6,
        "evaluators[0]", "'11' is not a grade", "from 0 to 10"),
    Bad("no children", f"{TREE}type: composite\n", 6, "evaluators[0]", "a composite needs evaluators",
        "under evaluators"),
    Bad("aggregator", f"{TWO}aggregator: {{type: median}}\n", 9, "evaluators[0].aggregator.type",
        "'median' is not one of", "'weighted_average', 'minimum'"),
    Bad("gate", f"{TWO}aggregator: {{type: safety_gate}}\n", 9, "evaluators[0].aggregator",
        "safety_gate needs required", "the names of its gates"),
    Bad("gate's name", f"{TWO}aggregator: {{type: safety_gate, required: [two]}}\n", 6,
        "evaluators[0]", "“two”", "its evaluators are “one”"),
    Bad("script gone", f"{TREE}type: code_judge\n    script: [python, ./j.py]\n", 6,
        "evaluators[0]", "the file './j.py' is not among", "add it to the upload"),
    Bad("two lists", f"{TREE}type: is_json\nexecution: {{evaluators: [{{type: is_json}}]}}\n", 8,
        "execution.evaluators", "at the top and under execution", "keep one list"),
    Bad("joined name", f"{TREE}type: is_json\n  - Is kind\ntests2: 1\n".replace("tests2: 1\n", "")
        .replace("    input: hi\n", "    input: hi\n    assert: [{name: check, type: is_json}]\n"),
        5, "tests[0].assert[0].name", "'check' is repeated", "the suite's own", case="A"),
    Bad("lonely aggregator", f"{CASE}    aggregator: {{type: minimum}}\n", 5, "tests[0].aggregator",
        "comes from the suite", "unless the case lists its own", case="A"),
    # The policy.
    Bad("bands", f"{CASE}verdicts: {{pass: 0.5, borderline: 0.8}}\n", 5, "verdicts", "borderline",
        "pass"),
    Bad("band", f"{CASE}verdicts: {{pass: high}}\n", 5, "verdicts.pass", "'high'", "not a number"),
    Bad("gate of cases", f"{CASE}policy: {{case_gate: vibes}}\n", 5, "policy.case_gate", "'vibes'",
        "score, expected_outcomes"),
)  # fmt: skip


def first_problem(problems: tuple[Problem, ...], bad: Bad) -> Problem:
    found = [one for one in problems if bad.says in one.message]
    assert found, [str(one) for one in problems]
    return found[0]


@pytest.mark.parametrize("bad", MALFORMED, ids=lambda bad: bad.name)
def test_what_is_wrong_is_said_with_its_place_and_remedy(bad: Bad) -> None:
    with pytest.raises(UnreadableFileError) as refused:
        suite_files.read_suite(bad.content, file=FILE, files=bad.files)

    problem = first_problem(refused.value.problems, bad)
    assert (problem.file, problem.line, problem.case, problem.key) == (
        FILE,
        bad.line,
        bad.case,
        bad.key,
    )
    assert bad.remedy in problem.message


def stored() -> dict[str, list[tuple[Any, ...]]]:
    """Return every row of the product, with who logged in left out."""
    models = (apps.get_app_config(app).get_models() for app in ("runs", "evaluators"))
    rows = {}
    with connection.cursor() as cursor:
        for table in (model._meta.db_table for model in chain(*models)):
            cursor.execute(f"SELECT * FROM {table} ORDER BY 1")
            rows[table] = cursor.fetchall()
    return rows


@pytest.fixture
def editor(client: Client) -> Client:
    client.force_login(make_user(role="editor"))
    return client


@pytest.mark.django_db
@pytest.mark.parametrize("bad", MALFORMED, ids=lambda bad: bad.name)
def test_the_import_tells_it_and_leaves_nothing_behind(bad: Bad, editor: Client) -> None:
    import_suite(suite_files.read_suite(BEFORE), imported_by=None)
    before = stored()
    files = {FILE: bad.content, **bad.files}
    uploads = [SimpleUploadedFile(name, content or b" ") for name, content in files.items()]

    answer = editor.post(reverse("runs:suite-import"), {"suite_files": uploads})

    assert answer.status_code == 422
    problem = first_problem(answer.context["form"].problems, bad)
    assert (problem.line, problem.case, problem.key) == (bad.line, bad.case, bad.key)
    assert stored() == before


def test_a_mapping_with_very_many_keys_is_refused_before_they_are_read() -> None:
    keys = "".join(f"k{n}: 1\n" for n in range(MAX_KEYS + 1))

    for text in (f"{CASE}{keys}", f"{CASE}    k: 1\n    " + keys.replace("\n", "\n    ")):
        with pytest.raises(UnreadableFileError) as refusal:
            suite_files.read_suite(text.encode(), file=FILE)
        [problem] = refusal.value.problems
        assert "the limit. Put data of your own under metadata" in problem.message
        assert problem.line > 0


def test_data_under_metadata_may_have_any_number_of_keys() -> None:
    metadata = "".join(f"  k{n}: 1\n" for n in range(MAX_KEYS + 1))

    suite = suite_files.read_suite(f"{CASE}metadata:\n{metadata}".encode(), file=FILE)

    assert len(suite.metadata) == MAX_KEYS + 1


def test_of_very_many_unknown_keys_the_first_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    monkeypatch.setattr(
        "runs.specs.problems.get_close_matches", lambda name, *_: compared.append(name) or []
    )
    case = "  - {{id: C{}, input: hi, " + ", ".join(f"own_{n}: 1" for n in range(50)) + "}}\n"
    text = "name: shop\ntests:\n" + "".join(case.format(n) for n in range(100))

    suite = suite_files.read_suite(text.encode(), file=FILE)

    assert len(suite.cases[-1].metadata) == 50
    assert len(suite.warnings) == MAX_WARNINGS + 1
    assert suite.warnings[-1].message == "4,000 more notes like these are left out"
    assert len(compared) <= MAX_WARNINGS
