"""Programs that write prompts run while files are read, in the sandbox, for those who may run scripts."""

from __future__ import annotations

import subprocess
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import playwright
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command
from django.urls import reverse

from evalsite.access.roles import Scope
from evaluators.kinds._base import ScriptCall, ScriptResult
from runs.formats.tools.promptfoo_programs import written_prompts
from runs.models.suites import Suite
from tests.api.site import Program
from tests.support.members import make_client, make_member

pytestmark = pytest.mark.django_db

FILES = {
    "desk/suite.yaml": """
name: desk
providers: [llm]
prompts: [{id: by-program, function: prompts/write.py}, "Plain {{ topic }}"]
tests: [{id: A, criteria: Is kind, vars: {topic: refunds}}]
""",
    "desk/prompts/write.py": "from tone import TONE\nprint(f'{TONE} about {{{{ topic }}}}.')\n",
    "desk/prompts/tone.py": "TONE = 'Write kindly'\n",
    "shop/promptfooconfig.yaml": """
prompts: [{label: ask, id: 'file://prompts.py:ask'}, file://plain.py]
providers: [openai:x]
tests: [{vars: {topic: [fees, terms]}, assert: [{type: contains, value: a}]}]
""",
    "shop/prompts.py": """
import json
print('not a part of any prompt')
def ask(context):
    place = context['provider']['id']
    return [{'role': 'user', 'content': f"{place}: {context['vars']['topic']}, {{{{topic}}}}"}]
""",
    "shop/plain.py": "import json, sys\nprint('Explain', json.loads(sys.argv[1])['vars']['topic'])\n",
}


def test_prompts_are_written_for_those_who_may_run_scripts(settings, tmp_path, capsys):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    packed = BytesIO()
    with ZipFile(packed, "w") as archive:
        for name, text in FILES.items():
            archive.writestr(name, text)
    editor, admin = make_client(make_member("editor")), make_client(make_member("admin"))

    def upload(client):
        file = SimpleUploadedFile("all.zip", packed.getvalue())
        return client.post(reverse("runs:suite-import"), {"suite_files": [file]})

    def problems(client):
        response = upload(client)
        assert response.status_code == 422
        assert not Suite.objects.exists()
        return response.content.decode()

    settings.SCRIPTS = False
    with pytest.raises(CommandError, match="EVALSITE_SCRIPTS=1 evalsite import …"):
        call_command("import", str(tmp_path))
    assert "scripts are switched off on this site" in problems(admin)
    settings.SCRIPTS = True
    shown = problems(editor)
    assert "the program prompts/write.py writes this prompt, and you may not run scripts" in shown
    assert "the program prompts.py writes this prompt, and you may not run scripts" in shown
    settings.IS_EMBEDDED = False
    assert "the pages of this site run no programs" in problems(admin)
    settings.IS_EMBEDDED = True
    assert upload(admin).status_code == 302
    asked = {
        case.key: case.input[-1]["content"]
        for suite in Suite.objects.all()
        for case in suite.cases.all()
    }
    assert asked == {
        "A__prompt_by-program": "Write kindly about refunds.",
        "A__prompt_prompt-d442fa854bbb": "Plain refunds",
        "fees.ask": "openai:x: fees, fees",
        "fees.plain-py": "Explain fees",
        "terms.ask": "openai:x: terms, terms",
        "terms.plain-py": "Explain terms",
    }
    call_command("import", str(tmp_path / "desk"))
    printed = capsys.readouterr()
    assert "desk: unchanged" in printed.out
    assert "prompts/write.py was run and wrote this prompt" in printed.err
    (tmp_path / "shop/prompts.py").write_text("def ask(context): raise ValueError('no topic')")
    with pytest.raises(CommandError, match="no topic") as refused:
        call_command("validate", str(tmp_path / "shop"))
    failed = "the program prompts.py writes this prompt and failed: the script ended with exit code 1; stderr ends: "
    assert failed in str(refused.value)
    for ends in ("import sys; sys.exit(0)", "return None"):
        (tmp_path / "shop/prompts.py").write_text(f"def ask(context): {ends}")
        with pytest.raises(CommandError, match="prompts.py:ask returned no prompt for some tests"):
            call_command("validate", str(tmp_path / "shop"))


@pytest.mark.parametrize("scope", Scope)
def test_a_token_that_changes_nothing_starts_no_program_of_a_file_that_it_checks(settings, scope):
    settings.SCRIPTS = True
    program = Program(make_member("admin"), scope)
    packed = BytesIO()
    with ZipFile(packed, "w") as archive:
        for name in ("suite.yaml", "prompts/write.py", "prompts/tone.py"):
            archive.writestr(name, FILES[f"desk/{name}"])
    answer = program.client.post("/api/suite-check", packed.getvalue(), "application/zip")
    assert answer.status_code == (200 if scope == Scope.EDIT else 400), answer.content
    assert (b"no program of a file is run here" in answer.content) == (scope != Scope.EDIT)


# A node that is there wherever tests run.
NODE = Path(playwright.__file__).parent / "driver"
FUNCTIONS = {
    "whole.js": "console.log('no prompt'); module.exports = async ({vars}) => `Ask ${vars.topic}`",
    "named.cjs:ask": "module.exports = { ask: ({vars}) => ({ prompt: `Ask ${vars.topic}` }) }",
    "whole.mjs": "export default ({vars, provider}) => `Ask ${vars.topic}`",
    "named.ts:ask": "type Given = { vars: any }\nexport const ask = ({vars}: Given): string => `Ask ${vars.topic}`",
}


@pytest.mark.parametrize("program", FUNCTIONS)
def test_functions_in_javascript_and_typescript_write_prompts(program: str, tmp_path: Path) -> None:
    env = {"PATH": f"{NODE}:/usr/bin:/bin"}

    def run(call: ScriptCall) -> ScriptResult:
        for name, content in call.files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(content)
            (tmp_path / name).chmod(0o755)
        done = subprocess.run(
            call.command, input=call.stdin, cwd=tmp_path, env=env, capture_output=True
        )
        return ScriptResult(done.stdout.decode(), done.stderr.decode(), done.returncode)

    files = {program.partition(":")[0]: FUNCTIONS[program].encode()}
    contexts = [{"vars": {"topic": topic}} for topic in ("fees", "terms")]
    assert written_prompts(program, contexts, "", files, run) == ["Ask fees", "Ask terms"]
    if program == "named.ts:ask":
        env["NODE_OPTIONS"] = "--no-strip-types"
        with pytest.raises(ValueError, match=r"TypeScript needs Node 22\.18 or newer; this is v\d"):
            written_prompts(program, contexts, "", files, run)
