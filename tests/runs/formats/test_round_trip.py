"""What is exported reads back the same: import(export(x)) = x."""

from __future__ import annotations

from io import BytesIO

from hypothesis import HealthCheck, given, settings

from evaluators.kinds import all_kinds
from evaluators.scoring.tree import COMPOSITE
from runs.formats import SuiteContent, agentv, case_lines
from runs.formats.bundles import bundles_of
from runs.formats.packing import packed
from runs.formats.suite_files import read_suites
from tests.runs.formats.contents import VARIANTS, suites

MANY = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def test_the_suites_that_are_drawn_hold_every_kind() -> None:
    kinds = {name for name, kind in all_kinds().items() if kind.in_gallery}
    assert {kind for kind, _ in VARIANTS} | {COMPOSITE} == kinds


@MANY
@given(suites())
def test_a_written_suite_reads_back_the_same(content: SuiteContent) -> None:
    again = agentv.read(agentv.write(content), files=content.files)
    assert again == content


@MANY
@given(suites())
def test_a_suite_that_was_read_is_written_the_same_each_time(content: SuiteContent) -> None:
    once = agentv.write(agentv.read(agentv.write(content), files=content.files))
    assert agentv.write(agentv.read(once, files=content.files)) == once


@MANY
@given(suites())
def test_a_suite_written_as_lines_reads_back_the_same(content: SuiteContent) -> None:
    lines, head = case_lines.write(content)
    files = {**content.files, "cases.yaml": head}
    assert case_lines.read(lines, file="cases.jsonl", files=files) == content


@MANY
@given(suites())
def test_what_is_downloaded_imports_as_what_it_was(content: SuiteContent) -> None:
    file = packed(content, "download")

    found = read_suites(bundles_of([(file.name, BytesIO(b"".join(file.parts)))]))

    assert [suite.content for suite in found.suites] == [content]
    assert found.notes == ()
