"""The files of an output: in every form, and what is said of those that cannot be kept."""

from __future__ import annotations

import pytest

from runs.target_kinds._outputs import (
    MAX_BYTES,
    MAX_FILES,
    check_files,
    files_from_json,
    output_from_json,
    select_files,
)

BESIDE = {"fixtures/plan.bin": b"\x00\x01"}


@pytest.mark.parametrize(
    ("written", "held"),
    [
        ("# Täglich", "# Täglich".encode()),
        ("", b""),
        ("./plan.md", b"./plan.md"),
        ({"text": "a"}, b"a"),
        ({"base64": "AAH/\n"}, b"\x00\x01\xff"),
        ({"path": "./fixtures/plan.bin"}, b"\x00\x01"),
    ],
)
def test_a_file_is_a_text_or_bytes_or_a_file_of_the_suite(written, held):
    output = output_from_json({"output": "x", "files": {"report//a.md": written}}, beside=BESIDE)

    assert output.files == {"report/a.md": held}


def test_an_output_without_files_has_none():
    assert output_from_json({"output": "x", "files": None}).files == {}


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (["a.md"], "files is not a mapping of paths"),
        ({"a": 3}, "'a' is not readable; write a text"),
        ({"a": {"text": "x", "base64": "eA=="}}, "'a' is not readable; write a text"),
        ({"a": {"url": "http://x"}}, "'a': 'url' is not known; write a text"),
        ({"a": {"text": 3}}, "'a': text is not text"),
        ({"a": {"base64": "???"}}, "'a' is not readable as base64"),
        ({"a": {"path": "./gone"}}, "'a': the file './gone' is not among those of the suite"),
        ({"a": {"path": "../../etc/passwd"}}, "is not among those of the suite"),
        ({"../a": ""}, "'../a' is not a path inside the output"),
        ({"..": ""}, "is not a path inside the output"),
        ({"a/../../b": ""}, "is not a path inside the output"),
        ({"/etc/passwd": ""}, "is not a path inside the output"),
        ({"a\\b": ""}, "is not a path inside the output"),
        ({"a\nb": ""}, "is not a path inside the output"),
        ({" ": ""}, "is not a path inside the output"),
        ({".": ""}, "is not a path inside the output"),
        ({"x" * 301: ""}, "is longer than 300 characters"),
        ({"a/b": "", "a//b": ""}, "'a//b' is repeated"),
        ({"a": "", "a/b": ""}, "'a' is a file, so 'a/b' cannot be in it"),
    ],
)
def test_files_that_cannot_be_kept_are_named(files, said):
    with pytest.raises(ValueError, match="files") as refused:
        files_from_json(files, BESIDE)

    assert said in str(refused.value)


@pytest.mark.parametrize("name", ["..%2fx", "...", "..a/b", "a/..b", "a/../b"])
def test_two_dots_are_refused_as_a_part_of_a_path_alone(name):
    assert len(files_from_json({name: "x"})) == 1


def test_too_many_files_and_too_large_ones_are_refused():
    with pytest.raises(ValueError, match=f"there are {MAX_FILES + 1}, and {MAX_FILES} is the"):
        check_files({f"{n}": b"" for n in range(MAX_FILES + 1)})
    with pytest.raises(ValueError, match=r"they contain 20\.0 MB, and 20 MB is the limit"):
        check_files({"a": b"x" * MAX_BYTES, "b": b"x"})


def test_an_uploaded_line_names_no_file_of_a_suite():
    with pytest.raises(ValueError, match="only possible in a suite file"):
        files_from_json({"a": {"path": "./fixtures/plan.bin"}})


def test_of_files_with_one_path_the_last_counts_however_many_an_answer_has():
    named = [(f"d/{number % MAX_FILES}", number) for number in range(40_000)]
    files, left_out = select_files(named, lambda _, number: b"%d" % number)

    assert (len(files), files["d/0"], left_out) == (MAX_FILES, b"39500", ())


def test_a_file_in_place_of_a_folder_is_left_out_of_an_answer_in_either_order():
    named = [("a/b/c", b"1"), ("a/b", b"2"), ("x", b"3"), ("x/y", b"4"), ("a", b"5")]
    files, left_out = select_files(named, lambda _, content: content)

    assert files == {"a/b/c": b"1", "x": b"3"}
    assert [text.partition("files: ")[2] for text in left_out] == [
        "'a/b' is a folder with other files in it",
        "'x' is a file, so 'x/y' cannot be in it",
        "'a' is a folder with other files in it",
    ]
