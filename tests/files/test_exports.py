"""What is stored of a suite comes out as it went in, and imports again without a change."""

from __future__ import annotations

from io import BytesIO

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from evaluators.kinds import all_kinds
from evaluators.kinds._judging import named_models
from evaluators.models import LanguageModel
from runs.files.importing import import_suite
from runs.formats import suite_files
from runs.formats.bundles import read_uploads
from runs.formats.finding import read_suites
from runs.formats.suite_files import pack_suite
from runs.models.suites import Suite, SuiteVersion
from runs.specs.suites import SuiteWithCases
from runs.suites.files import UnknownVersionError, suite_with_cases
from tests.formats.contents import suites
from tests.support.factories import make_model

pytestmark = pytest.mark.django_db


def through_a_file(content: SuiteWithCases) -> SuiteWithCases:
    file = pack_suite(content, "suite")
    found = read_suites(read_uploads([(file.name, BytesIO(b"".join(file.parts)))]))
    return found.suites[0].content


@settings(
    max_examples=25,
    # To make a failing suite smaller takes minutes on a database.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(suites())
def test_a_suite_goes_out_and_comes_in_under_another_name_unchanged(
    content: SuiteWithCases,
) -> None:
    for slug in {"strict", *models_of(content)}:
        LanguageModel.objects.get_or_create(
            slug=slug, defaults={"name": slug, "model_id": slug, "base_url": "http://x.test/v1"}
        )
    Suite.objects.all().delete()
    first = import_suite(content, imported_by=None, slug="first")

    out = suite_with_cases(first)
    assert out.replace(slug=content.slug) == content
    second = import_suite(through_a_file(out), imported_by=None, slug="second")

    hashes = set(SuiteVersion.objects.values_list("content_hash", flat=True))
    assert len(hashes) == 1
    assert suite_with_cases(second) == out.replace(slug="second")
    again = import_suite(through_a_file(out), imported_by=None)
    assert (again.slug, again.version) == ("first", 1)


def models_of(content: SuiteWithCases) -> set[str]:
    trees = [content.evaluators, *(case.evaluators for case in content.cases if case.evaluators)]
    return {model.name for tree in trees for model in named_models(tree, all_kinds())}


def suite_of(*texts: str) -> SuiteWithCases:
    cases = "".join(f"  - {{id: C-{n}, input: {text}}}\n" for n, text in enumerate(texts))
    return suite_files.read_suite(f"name: shop\nowner: me\ntests:\n{cases}".encode())


def test_every_version_comes_out_as_it_was() -> None:
    make_model(slug="strict")
    versions = [
        suite_of("one", "two"),
        suite_of("one", "changed", "new").replace(judge="strict", title="Shop"),
        suite_of("one"),
        suite_of("two", "one"),
    ]
    for content in versions:
        suite = import_suite(content, imported_by=None)
    assert suite.version == 4
    # A file that names no judge leaves the suite the one it has.
    kept = [*versions[:2], *(content.replace(judge="strict") for content in versions[2:])]
    assert [suite_with_cases(suite, version=n) for n in (1, 2, 3, 4)] == kept
    assert suite_with_cases(suite) == kept[-1]


def test_many_cases_come_out_in_their_order() -> None:
    content = suite_of(*(f"q{n}" for n in range(1_203)))
    suite = import_suite(content, imported_by=None)
    assert suite_with_cases(suite).cases == content.cases


def test_what_was_not_used_survives() -> None:
    text = (
        b"name: shop\nowner: me\nmetadata: {team: red}\ntests:\n"
        b"  - {id: A, input: hi, reviewer: you, evaluators: [{type: contains, value: x, note: y}]}\n"
    )
    suite = import_suite(suite_files.read_suite(text), imported_by=None)
    again = through_a_file(suite_with_cases(suite))
    assert again.metadata == {"team": "red", "owner": "me"}
    assert again.cases[0].metadata["reviewer"] == "you"
    assert again == suite_files.read_suite(text)


def test_an_evaluator_of_a_kind_that_is_gone_is_written_as_it_was() -> None:
    suite = import_suite(suite_of("one"), imported_by=None)
    version = suite.versions.get()
    child = version.content["evaluators"]["children"][0]
    child |= {"kind": "palmistry", "config": {"hand": "left", "lines": None}}
    version.save()
    written = suite_files.write_suite(suite_with_cases(suite)).decode()
    assert "type: palmistry\n  hand: left\n" in written


def test_a_version_that_was_not_kept_names_those_that_were() -> None:
    suite = import_suite(suite_of("one"), imported_by=None)
    with pytest.raises(UnknownVersionError, match="shop has no version 3; there is 1"):
        suite_with_cases(suite, version=3)
    import_suite(suite_of("two"), imported_by=None)
    with pytest.raises(UnknownVersionError, match="no version 3; there are 1, 2"):
        suite_with_cases(suite, version=3)
    suite.versions.all().delete()
    with pytest.raises(UnknownVersionError, match="no stored version"):
        suite_with_cases(suite)
