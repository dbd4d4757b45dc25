"""What is exported reads back the same: import(export(x)) = x."""

from __future__ import annotations

from io import BytesIO

from hypothesis import HealthCheck, given, settings

from evaluators.kinds import all_kinds
from evaluators.scoring.tree import COMPOSITE
from runs.formats import suite_files
from runs.formats.bundles import read_uploads
from runs.formats.finding import read_suites
from runs.formats.suite_files import pack_suite
from runs.specs.suites import SuiteWithCases
from tests.formats.contents import VARIANTS, suites


def test_the_suites_that_are_drawn_hold_every_kind() -> None:
    kinds = {name for name, kind in all_kinds().items() if kind.in_gallery}
    assert {kind for kind, _ in VARIANTS} | {COMPOSITE} == kinds


@settings(suppress_health_check=list(HealthCheck))
@given(suites())
def test_a_suite_reads_back_the_same_from_everything_it_is_written_as(
    content: SuiteWithCases,
) -> None:
    written = suite_files.write_suite(content)
    again = suite_files.read_suite(written, files=content.files)
    assert again == content

    rewritten = suite_files.write_suite(again)
    assert (
        suite_files.write_suite(suite_files.read_suite(rewritten, files=content.files)) == rewritten
    )

    lines, head = suite_files.write_case_lines(content)
    files = {**content.files, "cases.yaml": head}
    assert suite_files.read_case_lines(lines, file="cases.jsonl", files=files) == content

    file = pack_suite(content, "download")
    found = read_suites(read_uploads([(file.name, BytesIO(b"".join(file.parts)))]))
    assert [suite.content for suite in found.suites] == [content]
    assert found.notes == ()
