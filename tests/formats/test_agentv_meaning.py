"""Files of AgentV keep their meaning: what differs follows the file's generation, what cannot be done is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evaluators.kinds._base import ScriptCall, ScriptResult
from evaluators.scoring.tree import EvaluatorSpec, walk
from runs.formats import suite_files
from runs.specs.problems import UnreadableFileError
from runs.specs.suites import SuiteWithCases

# An early file lists judges, a later one graders; the third is Evalsite's own.
JUDGES = """
execution:
  target: default
  evaluators: {evaluators}
evalcases:
  - id: A
    input_messages: [{{role: user, content: hi}}]
"""
GRADERS = """
execution: {{target: llm}}
tests:
  - id: A
    input: hi
    criteria: Is right
    assertions: {evaluators}
"""
OWN = """
name: own
evaluators: {evaluators}
tests: [{{id: A, input: hi}}]
"""
FILES = {"judges": JUDGES, "graders": GRADERS, "own": OWN}


def read(text: str, file: str = "dataset.yaml", **files: bytes) -> SuiteWithCases:
    return suite_files.read_suite(text.encode(), file=file, files=files)


def problems(text: str, file: str = "dataset.yaml") -> list[str]:
    with pytest.raises(UnreadableFileError) as refused:
        read(text, file)
    return [str(problem) for problem in refused.value.problems]


def evaluator(generation: str, written: str) -> EvaluatorSpec:
    content = read(FILES[generation].format(evaluators=f"[{written}]"))
    own = content.cases[0].evaluators or content.evaluators
    # What was understood stays so when the suite is written and read as Evalsite's own file.
    again = suite_files.read_suite(suite_files.write_suite(content), files=content.files)
    assert again == content
    [node] = [node for path, node in walk(own) if path]
    return node


@pytest.mark.parametrize("kind", ["equals", "starts-with", "ends_with", "iequals"])
def test_agentv_compares_without_white_space_at_the_ends(kind: str) -> None:
    written = f"{{name: x, type: {kind}, value: Yes}}"

    assert evaluator("graders", written).config["trim"] is True
    assert evaluator("judges", written).config["trim"] is True
    assert evaluator("own", written).config["trim"] is False


@pytest.mark.parametrize(
    ("written", "graders", "own"),
    [
        ("required: true", (False, 0.8), (True, None)),
        ("required: 0.5", (False, 0.5), (False, 0.5)),
        ("required: true, min_score: 0.4", (False, 0.4), (True, 0.4)),
        ("min_score: 0.4", (False, None), (False, 0.4)),
    ],
)
def test_a_requirement_of_the_later_files_is_a_passing_score(
    written: str, graders: tuple[bool, float | None], own: tuple[bool, float | None]
) -> None:
    text = f"{{name: x, type: contains, value: y, {written}}}"
    for generation, wanted in (("graders", graders), ("own", own), ("judges", own)):
        node = evaluator(generation, text)
        assert (node.required, node.required_below) == wanted, generation


def test_a_minimum_that_is_no_gate_is_told() -> None:
    content = read(
        GRADERS.format(evaluators="[{name: x, type: contains, value: y, min_score: 0.4}]")
    )
    [warning] = [warning for warning in content.warnings if warning.key.endswith("min_score")]
    assert "fails nothing in AgentV without required" in warning.message


def test_arguments_are_compared_exactly_in_the_later_files_unless_they_say_otherwise() -> None:
    call = "{name: x, type: tool-trajectory, mode: in_order, expected: [{tool: t, args: {a: 1}}]"

    assert evaluator("graders", call + "}").config["args_match"] == "exact"
    assert evaluator("graders", call + ", args_match: subset}").config["args_match"] == "subset"
    assert evaluator("judges", call + "}").config["args_match"] == "partial"
    assert evaluator("own", call + "}").config["args_match"] == "partial"


@pytest.mark.parametrize(
    ("written", "share_kept"),
    [
        ("type: execution-metrics, max_tokens: 9, max_cost_usd: 1", True),
        ("type: execution_metrics, max_tokens: 9, share_kept: false", False),
        ("type: execution_metrics, max_tokens: 9, proportional: true", False),
        ("type: token-usage, max_input: 9, max_output: 8", False),
        ("type: latency, threshold: 9", False),
    ],
)
def test_execution_metrics_of_agentv_score_the_share_of_limits_kept(
    written: str, share_kept: bool
) -> None:
    text = f"{{name: x, {written}}}"

    assert evaluator("judges", text).config["share_kept"] is share_kept
    assert evaluator("graders", text).config["share_kept"] is share_kept
    assert evaluator("own", text).config["share_kept"] is False


@pytest.mark.parametrize("generation", ["judges", "graders"])
def test_a_required_field_of_agentv_is_one_that_may_not_be_missing(generation: str) -> None:
    fields = "[{path: a, required: true}, {path: b, required: false}, {path: c}]"
    written = f"{{name: x, type: field_accuracy, fields: {fields}}}"

    rules = evaluator(generation, written).config["fields"]

    assert [(rule["required"], rule["optional"]) for rule in rules] == [
        (False, False),
        (False, True),
        (False, False),
    ]
    own = evaluator("own", written).config["fields"]
    assert [(rule["required"], rule["optional"]) for rule in own] == [
        (True, False),
        (False, False),
        (False, False),
    ]


def test_live_turns_are_refused() -> None:
    text = GRADERS.format(evaluators="[]") + (
        "  - id: B\n    mode: conversation\n    input: [{role: system, content: Be brief.}]\n"
        "    turns: [{input: one, assert: [Is one]}, {input: two}]\n"
    )
    [problem] = problems(text)
    assert problem.startswith("dataset.yaml, line 11, case B, tests[1].turns: ")
    assert "cannot be asked one after the other" in problem


@pytest.mark.parametrize("key", ["execution: {target: llm, trials: {count: 3}}", "trials: 3"])
def test_trials_are_refused_with_the_option_that_does_them(key: str) -> None:
    text = GRADERS.format(evaluators="[]").replace("execution: {target: llm}", key)
    [problem] = problems(text)
    assert "--repetitions 3" in problem
    assert read(text.replace("3", "1")).cases


def test_variables_of_the_environment_are_refused_in_files_of_agentv() -> None:
    text = GRADERS.format(evaluators="[]").replace("input: hi", "input: 'Hi ${{ USER_NAME }}!'")
    [problem] = problems(text)
    assert problem.startswith("dataset.yaml, line 5, case A, tests[0].input: ")
    assert "${{ USER_NAME }} is an environment variable" in problem
    own = OWN.format(evaluators="[]").replace("input: hi", "input: 'Use ${{ SHA }}'")
    content = read(own)
    assert content.cases[0].input[0]["content"] == "Use ${{ SHA }}"
    [warning] = content.warnings
    assert "${{ SHA }} is kept as it is written" in warning.message


SCRIPT: dict[str, Any] = {"judges/j.py": b"#"}


def test_other_settings_of_a_script_reach_it_whatever_they_are_called() -> None:
    written = (
        "[{name: x, type: code_judge, script: [python, judges/j.py], fields: [{path: a}], "
        "threshold: 0.5, rubrics: 3}]"
    )
    content = read(JUDGES.format(evaluators=written), **SCRIPT)

    [node] = content.evaluators.children
    assert node.config["config"] == {"fields": [{"path": "a"}], "threshold": 0.5, "rubrics": 3}
    assert [warning.key for warning in content.warnings] == ["execution.target"]
    again = suite_files.read_suite(suite_files.write_suite(content), files=content.files)
    assert again == content


def test_a_misspelt_setting_of_a_script_is_still_refused() -> None:
    written = "[{name: x, type: script, script: 'echo', timeout_sec: 3, protocl: env}]"
    refusals = problems(OWN.format(evaluators=written))
    assert any("did you mean protocol?" in problem for problem in refusals)


NEWEST = """
name: newest
providers: [llm]
prompts: ["{{ input }}"]
tests:
  - id: A
    assert: [{type: contains, value: "{{ city }}!"}, "Names {{ city }}", {type: not-contains, value: x}]
    vars:
      city: Oslo
      input:
        - {role: system, content: Be brief.}
        - {role: user, content: Capital of Norway?}
      expected_output: [{role: assistant, content: Oslo}]
"""


def test_the_variables_of_the_newest_files_are_put_where_they_are_used() -> None:
    content = read(NEWEST, "suite.yaml")

    [case] = content.cases
    assert [turn["content"] for turn in case.input] == ["Be brief.", "Capital of Norway?"]
    assert case.expected_output == "Oslo"
    assert case.metadata == {"vars": {"city": "Oslo"}}
    assert case.evaluators is not None
    check, sentence, inverted = case.evaluators.children
    assert check.config["value"] == "Oslo!"
    assert sentence.config["rubrics"][0]["expected_outcome"] == "Names Oslo"
    assert (inverted.kind, inverted.negate) == ("text_check", True)
    assert [warning.key for warning in content.warnings] == ["providers"]


def test_a_prompt_of_the_newest_files_is_filled_in() -> None:
    text = NEWEST.replace("{{ input }}", "Say {{ phrase }} in {{ city }}.")
    [problem] = problems(text, "suite.yaml")
    assert "line 6" in problem
    assert "the prompt needs {{phrase}}, which the vars of this case lack" in problem
    [case] = read(text.replace("city: Oslo", "city: Oslo\n      phrase: hei")).cases
    assert case.input == ({"role": "user", "content": "Say hei in Oslo."},)


def test_a_value_among_the_variables_has_its_own_line() -> None:
    [problem] = problems(NEWEST.replace("role: system", "role: boss"), "suite.yaml")
    assert problem.startswith("suite.yaml, line 11, case A, tests[0].input[0].role: 'boss'")


@pytest.mark.parametrize(
    ("prompts", "reason"),
    [
        ("[]", "prompts: needs one prompt"),
        ("[3]", "prompts[0]: is no prompt; write it as a text, a list of messages, file://"),
        ('["file://p.py"]', "prompts[0]: 'p.py' is a program; where it prints the prompt, write it as {function: p.py}"),
        ("file://p.txt", "prompts: the file 'p.txt' is not among"),
        ("[{function: p.py}]", "prompts[0]: the file 'p.py' is not among"),
        ("[{function: [], id: x}]", "prompts[0]: function is no program"),
        ("[{command: [echo, Hi]}]", "prompts[0]: the program echo Hi writes this prompt, and no program of a file is run"),
        ('["{% if a %}b{% endif %}"]', "prompts[0]: uses {% … %}, and only variables are filled in here"),
    ],
)  # fmt: skip
def test_prompts_that_cannot_be_had_are_refused_with_their_place(prompts: str, reason: str) -> None:
    [problem] = problems(NEWEST.replace('["{{ input }}"]', prompts), "suite.yaml")
    assert problem.startswith(f"suite.yaml, line 4, {reason}")


MATRIX_OF_PROMPTS = """
name: matrix
providers: [llm]
prompts:
  - "Say {{ vars.phrase }} to {{ person.name }}."
  - {label: In a file, file: prompts/long.md}
  - file://prompts/only.txt
  - - {role: system, content: "Be {{ tone }}."}
    - {role: user, content: [{type: file, value: "{{ letter }}"}, {type: text, value: "{{ phrase }}"}]}
  - {id: by program, command: [python3, prompts/write.py, "2"]}
default_test: {vars: {tone: kind, person: {name: Ann}}}
tests:
  - id: A
    criteria: Says {{ phrase }}
    vars: {phrase: hei, letter: ./letters/a.txt, expected_output: "Hei, Ann"}
    assert: [{type: contains, value: "{{ phrase }}"}, "Means {{ expected_output }}"]
  - {id: 7, tags: [two], vars: {phrase: moi, letter: ./letters/a.txt, expected_output: 3}}
"""
PROMPT_FILES = {
    "prompts/long.md": b"Long {{ phrase }}\r\nand {{tone}}",
    "prompts/only.txt": b"{{ phrase }}\n",
    "prompts/write.py": b"import words",
    "prompts/words.py": b"",
    "letters/a.txt": b"Dear Ann",
}


def test_every_prompt_of_the_newest_files_makes_a_case_of_each_test() -> None:
    calls: list[ScriptCall] = []

    def run(call: ScriptCall) -> ScriptResult:
        calls.append(call)
        messages = [{"role": "user", "content": "Write {{ phrase }}"}]
        return ScriptResult(json.dumps({"messages": messages}), "", 0)

    text = MATRIX_OF_PROMPTS.encode()
    content = suite_files.read_suite(text, file="suite.yaml", files=PROMPT_FILES, run=run)
    # Its results name their cases so: by the id of a prompt, its file, or the beginning of the hash of its text.
    names = [
        "prompt-6ec6febf33e6",
        "prompts-long.md",
        "prompts-only.txt",
        "chat-51def8c5cfd1",
        "by-program",
    ]
    inputs = {case.key: [turn["content"] for turn in case.input] for case in content.cases}
    letter = '<file path="letters/a.txt">\nDear Ann\n</file>\nhei'
    assert [key.partition("__prompt_")[0] for key in inputs] == ["A"] * 5 + ["7"] * 5
    assert list(inputs.values())[:5] == [
        ["Say hei to Ann."],
        ["Long hei\nand kind"],
        ["hei"],
        ["Be kind.", letter],
        ["Write hei"],
    ]
    assert [key.partition("__prompt_")[2] for key in list(inputs)[:5]] == names
    first, last = content.cases[0], content.cases[-1]
    assert (first.tags, last.tags) == ((names[0],), ("two", "by-program"))
    assert (first.criteria, first.expected_output, last.expected_output) == (
        "Says hei",
        "Hei, Ann",
        "3",
    )
    assert first.evaluators is not None
    assert first.evaluators.children[1].config["rubrics"][0]["expected_outcome"] == "Means Hei, Ann"
    # The program runs once, with the files around it; the variables are put into what it prints.
    [call] = calls
    assert call.command[-3:] == ("python3", "prompts/write.py", "2")
    assert set(call.files) == {
        "prompts/long.md",
        "prompts/only.txt",
        "prompts/write.py",
        "prompts/words.py",
    }
    assert content.read_with == ("prompts/long.md", "prompts/only.txt", "prompts/write.py")
    notes = [str(note) for note in content.warnings if "was run" in note.message]
    assert notes == [
        "suite.yaml, line 10, prompts: the program python3 prompts/write.py 2 was run and wrote this prompt; import "
        "the file again after it changed"
    ]

    def fail(call: ScriptCall) -> ScriptResult:
        return ScriptResult("", "no words", 2)

    with pytest.raises(UnreadableFileError) as refused:
        suite_files.read_suite(
            text.replace(b"tone: kind, ", b""), file="suite.yaml", files=PROMPT_FILES, run=fail
        )
    assert [str(problem) for problem in refused.value.problems][:2] == [
        "suite.yaml, line 10, prompts[4]: the program python3 prompts/write.py 2 writes this prompt and failed: the "
        "script ended with exit code 2; stderr ends: no words",
        "suite.yaml, line 13, tests: the prompt needs {{tone}}, which the vars of this case lack",
    ]


def test_a_case_without_input_asks_the_prompt_file() -> None:
    text = "description: Fixes\ntests:\n  - {id: A, criteria: c}\n  - {id: B, criteria: c, input_files: [./b/PROMPT.md, ./log.txt]}\n"
    files = {"PROMPT.md": b"Fix it.", "b/PROMPT.md": b"Fix b.", "log.txt": b"Traceback"}
    content = suite_files.read_suite(text.encode(), file="EVAL.yaml", files=files)
    assert [case.input[0]["content"] for case in content.cases] == [
        "Fix it.",
        '<file path="log.txt">\nTraceback\n</file>\n<file path="b/PROMPT.md">\nFix b.\n</file>',
    ]
    assert set(content.files) == set(files)
    [problem] = problems(
        text.replace(", input_files: [./b/PROMPT.md, ./log.txt]", ", input: Hi"), "EVAL.yaml"
    )
    assert "case A" in problem
    assert "the case has no input" in problem


def test_each_text_in_a_list_among_the_variables_makes_a_case() -> None:
    text = NEWEST.replace("city: Oslo", "city: [Oslo, Bergen]\n      how: {soft: [x]}")
    content = read(text.replace('"{{ input }}"', '"Of {{ city }}"'), "suite.yaml")
    inputs = {case.key: case.input[0]["content"] for case in content.cases}
    assert inputs == {"A": "Of Oslo", "A-2": "Of Bergen"}
    assert content.cases[1].metadata == {"vars": {"city": "Bergen", "how": {"soft": ["x"]}}}
    refusals = problems(
        NEWEST.replace("role: system", "role: boss").replace("city: Oslo", "city: [a, b]"),
        "suite.yaml",
    )
    assert [problem.partition(": 'boss'")[0] for problem in refusals] == [
        f"suite.yaml, line 11, case {key}, tests[{n}].input[0].role"
        for n, key in enumerate(("A", "A-2"))
    ]
    many = "".join(f"      v{n}: [a, b, c, d, e, f, g, h, i, j]\n" for n in range(9))
    [problem] = problems(NEWEST.replace("      city: Oslo\n", many), "suite.yaml")
    assert "line 6, tests: the prompts and lists of vars make more than 20,000 cases" in problem


def test_a_prompt_is_asked_even_where_a_case_has_its_own_input() -> None:
    text = "name: n\nproviders: [llm]\nprompts: ['Briefly: {{ input }}']\ntests: [{id: A, input: Why?, criteria: c}]\n"
    [case] = read(text, "suite.yaml").cases
    assert case.input == ({"role": "user", "content": "Briefly: Why?"},)
    [case] = read(text.replace(" {{ input }}", "").replace("input: Why?, ", ""), "suite.yaml").cases
    assert case.input[0]["content"] == "Briefly:"


@pytest.mark.parametrize("type", ["skill-used", "not-skill-used", "skill-trigger"])
def test_skills_have_no_counterpart_and_a_way_to_check_them(type: str) -> None:
    text = f"name: s\ntests: [{{id: A, input: Hi, assert: [{{type: {type}, value: pdf}}]}}]\n"
    [problem] = problems(text, "suite.yaml")
    assert "Targets do not say here which skills they loaded" in problem


MATRIX = """\
- config:
    - {id: spanish, vars: {language: Spanish, hello: hola}, assert: [Is polite]}
    - vars: {language: French, hello: bonjour}
  tests:
    - description: Says hello
      vars: {phrase: hello}
      assert:
        - {type: equals, value: "{{ hello }}"}
    - {id: thanks, vars: {phrase: thank you, language: Basque}}
"""
SCENARIOS = (
    "name: s\nprompts: ['Say {{ phrase }} in {{ language }}.']\nscenarios: ['file://m/*.yaml']\n"
)


def test_scenarios_are_every_row_with_every_test() -> None:
    content = suite_files.read_suite(SCENARIOS.encode(), files={"m/one.yaml": MATRIX.encode()})
    assert [(case.key, case.input[0]["content"]) for case in content.cases] == [
        ("spanish-says-hello", "Say hello in Spanish."),
        ("spanish-thanks", "Say thank you in Basque."),
        ("2-says-hello", "Say hello in French."),
        ("2-thanks", "Say thank you in Basque."),
    ]
    first = content.cases[0]
    assert first.title == "Says hello"
    assert [node.kind for node in first.evaluators.children] == ["text_check", "rubric"]
    assert first.evaluators.children[0].config["value"] == "hola"
    assert content.read_with == ("m/one.yaml",)


@pytest.mark.parametrize(
    ("suite", "matrix", "reason"),
    [
        ("name: s\nscenarios: [file://other.yaml]\n", MATRIX, "line 2, scenarios: the file 'file://other.yaml'"),
        (SCENARIOS, "- {config: [{}]}\n", "m/one.yaml, line 1, scenarios: a scenario has a list of rows"),
        (SCENARIOS, "[x]\n", "m/one.yaml, line 1, scenarios: a scenario is a mapping"),
        (SCENARIOS, MATRIX.replace("equals", "equalz"), "m/one.yaml, line 8, case spanish-says-hello"),
    ],
)  # fmt: skip
def test_a_scenario_that_cannot_be_read_is_refused_by_its_place(suite, matrix, reason) -> None:
    with pytest.raises(UnreadableFileError) as refusal:
        suite_files.read_suite(suite.encode(), file="s.yaml", files={"m/one.yaml": matrix.encode()})
    assert reason in str(refusal.value)


def test_files_of_cases_may_stand_among_the_cases() -> None:
    text = "name: s\ntests:\n  - {id: A, input: 1.50}\n  - file://cases/b.yaml\n  - ./c.jsonl\n"
    files = {
        "cases/b.yaml": b"- {id: B, input: b}\n- id: C\n  input: 2.50\n",
        "c.jsonl": b'{"id": "D", "input": "d"}\n',
    }
    content = suite_files.read_suite(text.encode(), file="s.yaml", files=files)

    asked = [(case.key, case.input[0]["content"]) for case in content.cases]
    assert asked == [("A", "1.50"), ("B", "b"), ("C", "2.50"), ("D", "d")]
    assert content.read_with == ("cases/b.yaml", "c.jsonl")
    files["cases/b.yaml"] += b"  criteria: []\n"
    with pytest.raises(UnreadableFileError) as refused:
        suite_files.read_suite(text.encode(), file="s.yaml", files=files)
    assert str(refused.value).startswith("cases/b.yaml, line 4, case C, tests[2].criteria: ")
    del files["c.jsonl"]
    with pytest.raises(UnreadableFileError, match=r"s.yaml, line 5, tests\[2\]: the file"):
        suite_files.read_suite(text.encode(), file="s.yaml", files=files)


def test_what_all_cases_share_in_the_newest_files_is_given_to_each() -> None:
    shared = "default_test:\n  vars: {city: Bergen, input: Hi}\n  assert: [{type: is-json}]\n"
    [case] = read(NEWEST + shared).cases
    assert case.evaluators is not None
    kinds = [child.config.get("operator") for child in case.evaluators.children]
    assert kinds == ["contains", None, "contains", "is_json"]
    assert case.metadata == {"vars": {"city": "Oslo"}}
    assert case.input[1]["content"] == "Capital of Norway?"
    assert "name the files of cases under tests" in problems(NEWEST + "imports: {tests: []}\n")[0]


@pytest.mark.parametrize(
    "place", ["threshold: 0.9\n", "execution: {target: llm, threshold: 0.9}\n"]
)
def test_the_threshold_of_a_later_file_is_what_a_case_passes_with(place: str) -> None:
    written = "[{name: x, type: contains, value: y, required: true}]"
    text = GRADERS.format(evaluators=written).replace(
        "execution: {target: llm}\n", "target: llm\n" + place
    )
    content = read(text)

    assert (content.policy.pass_threshold, content.policy.borderline_threshold) == (0.9, 0.6)
    [case] = content.cases
    assert case.evaluators is not None
    assert case.evaluators.children[0].required_below == 0.9
    again = suite_files.read_suite(suite_files.write_suite(content), files=content.files)
    assert again == content
    low = read(text.replace("0.9", "0.4")).policy
    assert (low.pass_threshold, low.borderline_threshold) == (0.4, 0.4)
    assert "is not a score" in problems(text.replace("0.9", "80"))[0]


@pytest.mark.parametrize("odd", ["file://d.yaml", "{vars: x}", "{vars: [1]}", "{assert: {a: b}}"])
def test_odd_values_for_all_cases_are_refused(odd: str) -> None:
    [problem] = problems(NEWEST + f"default_test: {odd}\n")
    assert problem.startswith("dataset.yaml, line 14, default_test: is not a mapping with vars")


@pytest.mark.parametrize("odd", ["vars: x", "vars: [1]", "assert: {a: b}, input: q"])
def test_odd_values_of_a_case_are_refused_with_their_line(odd: str) -> None:
    refusals = problems(NEWEST + f"  - {{id: B, {odd}}}\ndefault_test: {{vars: {{a: b}}}}\n")
    assert refusals[0].startswith("dataset.yaml, line 14, case B, tests[1]")
