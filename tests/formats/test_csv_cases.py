"""Cases of tables: what is read of them, what is rejected where and why, and what is guessed."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.formats import lines, tables
from runs.formats.table_cases import ReadCases, case_row, read_cases, rejected_csv
from runs.formats.table_mapping import CaseMapping, CasePart, Split, suggest
from runs.formats.tables import CASE_COLUMNS, csv_text, read_table
from runs.specs.problems import UnreadableFileError
from runs.specs.suites import CaseSpec


def read(content: str | bytes, **changes: Any) -> ReadCases:
    table = read_table(content.encode() if isinstance(content, str) else content)
    found = suggest(table)
    mapping = CaseMapping(
        changes.get("parts", found.parts), changes.get("split", found.split), found.last_answer
    )
    return read_cases(table, mapping)


def parts(*columns: str) -> list[str]:
    rows = f"{','.join(columns)}\n{','.join('x' for _ in columns)}\n"
    return [str(part) for part in suggest(read_table(rows.encode())).parts]


class TestText:
    @pytest.mark.parametrize(
        ("codec", "mark", "said"),
        [
            ("utf-8", b"", "UTF-8"),
            ("utf-8-sig", b"", "UTF-8"),
            ("utf-16", b"", "UTF-16"),
            ("utf-16-be", b"\xfe\xff", "UTF-16"),
            ("utf-16-le", b"", "UTF-16, guessed: it has no mark"),
            ("cp1252", b"", "Windows-1252, guessed: it is no UTF-8"),
        ],
    )
    def test_every_encoding_of_spreadsheets_is_read_and_told(
        self, codec: str, mark: bytes, said: str
    ) -> None:
        table = read_table(mark + "id;question\nÄ-1;Größe – wie?\n".encode(codec))
        assert table.notes == ("CSV", "semicolon between cells", said)
        assert table.rows[0].cells == ("Ä-1", "Größe – wie?")

    @pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
    @pytest.mark.parametrize("delimiter", [",", ";", "\t"])
    def test_delimiters_and_line_ends_are_found(self, delimiter: str, ending: str) -> None:
        rows = [["id", "question"], ["A", '"One, two; three\tfour"'], ["B", "five"]]
        text = "".join(delimiter.join(row) + ending for row in rows)
        table = read_table(text.encode())
        assert [row.cells for row in table.rows] == [("A", "One, two; three\tfour"), ("B", "five")]
        assert [row.line for row in table.rows] == [2, 3]

    def test_a_line_that_names_the_delimiter_is_no_header(self) -> None:
        table = read_table(b"sep=;\r\nid;question\r\nA;b,c,d\r\n")
        assert table.columns == ("id", "question")
        assert (table.rows[0].line, table.rows[0].cells) == (3, ("A", "b,c,d"))

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"", "the file is empty"),
            (b" \r\n \n", "the file is empty"),
            (b"id,question\n", "a header and no rows"),
            (b"PK\x03\x04rest", "a zip or an Excel workbook"),
            (b"\xd0\xcf\x11\xe0rest", "an old Excel workbook"),
            (b"%PDF-1.7", "a PDF"),
            (b'"id,question\nA,b\n', "the header: a quotation mark opens here and is never closed"),
            (b"\xff\xfe\x00", "not text in UTF-16"),
            (b"a\x81,b\n1,2\n", "not text in UTF-8 or Windows-1252"),
            (",".join(f"c{n}" for n in range(300)).encode() + b"\nx\n", "has 300 columns"),
            (b"[1, 2", "the line is not a JSON object"),
            (b'[{"a": 1}, {"a"', "not readable as JSON from here on"),
        ],
    )
    def test_what_is_no_table_is_refused_with_the_remedy(self, content: bytes, said: str) -> None:
        with pytest.raises(UnreadableFileError, match=said):
            read(content)


class TestRows:
    def test_lines_are_those_of_the_file_over_quoted_line_ends_and_empty_rows(self) -> None:
        table = read_table(b'id,question\n\nA,"one\ntwo\nthree"\n , \n,,,\nB,four\n')
        assert [(row.line, row.cells[0]) for row in table.rows] == [(3, "A"), (8, "B")]
        assert table.blank == 3

    def test_ragged_rows_are_filled_up_or_rejected(self) -> None:
        found = read("id,question,expected\nA,one\nB,two,2,,\nC,three,3,4\n")
        assert [case.key for case in found.cases] == ["A", "B"]
        [bad] = found.rejected
        assert (bad.line, bad.column) == (4, "")
        assert bad.reason.startswith("the row has 4 cells and the header 3; put a text that")

    def test_a_quotation_mark_out_of_place_costs_its_row_alone(self) -> None:
        found = read('id,question\nA,"say "no" now"\nB,two\nC,"open\nD,four\n')
        assert [case.key for case in found.cases] == ["B"]
        assert [(bad.line, bad.reason) for bad in found.rejected] == [
            (2, "a quoted cell contains a quotation mark; write it twice"),
            (
                4,
                "a quotation mark opens here and is never closed, so that 2 lines were taken for one row",
            ),
        ]

    def test_a_cell_that_is_too_long_costs_its_row_alone(self) -> None:
        found = read(f"id,question\nA,{'x' * (tables.MAX_CELL_LENGTH + 1)}\nB,two\n")
        assert [case.key for case in found.cases] == ["B"]
        assert [(bad.line, bad.reason) for bad in found.rejected] == [
            (2, "a cell has more than 16,000,000 characters; shorten it")
        ]

    def test_columns_without_a_name_or_with_a_second_one_are_told_apart(self) -> None:
        table = read_table(b"id,,question,question,\nA,1,2,3,\n")
        assert table.columns == ("id", "column 2", "question", "question (2)")

    def test_json_lines_and_lists_keep_lines_and_values(self) -> None:
        lined = read_table(
            b'{"id": 1, "input": "a"}\n\n{"id": 2, "plan": {"x": 1.5}}\n{"id": \n{}\n'
        )
        assert lined.columns == ("id", "input", "plan")
        assert [(row.line, row.cells, bool(row.unread)) for row in lined.rows] == [
            (1, (1, "a", ""), False),
            (3, (2, "", {"x": 1.5}), False),
            (4, ('{"id":',), True),
        ]
        assert lined.blank == 1
        listed = read_table(b'[\n {"input": "a"},\n 3, {"input": "b"}]')
        assert [(row.line, row.cells) for row in listed.rows] == [
            (2, ("a",)),
            (3, ("3",)),
            (3, ("b",)),
        ]


class TestSuggest:
    @pytest.mark.parametrize(
        ("columns", "expected"),
        [
            (
                ("Case ID", "Question", "Reference answer", "Expected outcomes", "Tags", "Plan"),
                ["key", "input", "expected_output", "expected_outcomes", "tags", "metadata"],
            ),
            (("question", "answer", "response"), ["input", "expected_output", "output"]),
            (
                ("id", "input", "expectedOutput", "metadata", "sourceTraceId"),
                ["key", "input", "expected_output", "metadata", "metadata"],
            ),
            (
                ("prompt", "outcome 1", "outcome_2", "must", "criteria", "title"),
                ["input", *["expected_outcomes"] * 3, "criteria", "title"],
            ),
            (
                ("question", "__expected", "__expected2", "__description", "__metadata:plan"),
                ["input", "assertion", "assertion", "title", "metadata"],
            ),
            (("id", "name", "question", "system_prompt"), ["key", "title", "input", "system"]),
            (("question", "input"), ["metadata", "input"]),
            (("only",), ["input"]),
        ],
    )
    def test_the_names_tell(self, columns: tuple[str, ...], expected: list[str]) -> None:
        assert parts(*columns) == expected

    def test_the_longest_unknown_column_is_the_input(self) -> None:
        table = read_table(b"region,was\nEU,What is the price of this?\n")
        assert suggest(table).parts == (CasePart.METADATA, CasePart.INPUT)

    def test_outputs_beside_inputs_of_data_sets_are_the_expected_ones(self) -> None:
        table = read_table(b'{"input": {"q": "a"}, "output": {"a": "b"}, "metadata": {}}')
        assert suggest(table).parts == (CasePart.INPUT, CasePart.EXPECTED_OUTPUT, CasePart.METADATA)

    @pytest.mark.parametrize(
        ("cell", "split"),
        [
            ("one; two", Split.SEMICOLON),
            ("one | two", Split.BAR),
            ('"one; two\nthree"', Split.LINES),
            ("one", Split.LINES),
            ('"[""one; two""]"', Split.LINES),
        ],
    )
    def test_what_parts_outcomes_is_seen_in_the_rows(self, cell: str, split: Split) -> None:
        assert suggest(read_table(f"question,outcomes\na,{cell}\n".encode())).split is split


class TestCells:
    def test_conversations_end_with_the_expected_output_in_a_column_of_messages(self) -> None:
        turns = [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "When?"},
            {"role": "assistant", "content": "Soon."},
        ]
        [case] = read(json.dumps({"messages": turns})).cases
        assert case.input == tuple(turns[:2])
        assert case.expected_output == "Soon."
        [whole] = read(json.dumps({"input": {"messages": turns}})).cases
        assert whole.input == tuple(turns)

    @pytest.mark.parametrize(
        ("cell", "split", "expected"),
        [
            ("- one\n* two\n\n3. three", Split.LINES, ("one", "two", "three")),
            ("one; two;", Split.SEMICOLON, ("one", "two")),
            ("one | two", Split.BAR, ("one", "two")),
            ("one; two\nthree", Split.NONE, ("one; two\nthree",)),
            ('["a; b", {"text": "c"}]', Split.SEMICOLON, ("a; b", "c")),
            ("2.5 hours are named", Split.LINES, ("2.5 hours are named",)),
        ],
    )
    def test_outcomes_are_parted(self, cell: str, split: Split, expected: tuple[str, ...]) -> None:
        text = io.StringIO()
        csv.writer(text).writerows([["question", "outcomes"], ["a", cell]])
        assert read(text.getvalue(), split=split).cases[0].expected_outcomes == expected

    def test_several_columns_of_outcomes_tags_and_metadata_come_together(self) -> None:
        [case] = read(
            "input,outcome 1,outcome 2,tags,category,plan,metadata\n"
            'a,one,two,"x, y",y,pro,"{""n"": 1}"\n'
        ).cases
        assert case.expected_outcomes == ("one", "two")
        assert case.tags == ("x", "y")
        assert case.metadata == {"plan": "pro", "n": 1}

    def test_promptfoo_assertions_become_answers_and_outcomes(self) -> None:
        found = read(
            "question,__expected,__expected2,__metadata:plan\n"
            "a,Paris,llm-rubric: is kind,pro\nb,equals: Rome,contains: Italy,\nc,javascript: true,,\n"
        )
        one, two, three = found.cases
        assert (one.expected_output, one.expected_outcomes) == ("Paris", ("is kind",))
        assert one.metadata == {"plan": "pro"}
        assert (two.expected_output, two.expected_outcomes) == ("Rome", ("Contains “Italy”",))
        assert three.metadata == {"__expected": "javascript: true"}
        assert found.unused == {"__expected": 1}

    def test_a_recorded_output_is_a_text_or_a_recorded_line(self) -> None:
        line = '"{""output"": ""b"", ""latency_ms"": 5}"'
        found = read(f'question,output\na,said\nb,{line}\nc,"{{""output"": 3}}"\n')
        assert [case.recorded_output for case in found.cases] == [
            {"output": "said"},
            {"output": "b", "latency_ms": 5},
        ]
        assert "the recorded output is not readable" in found.rejected[0].reason


class TestTitles:
    @pytest.mark.parametrize(
        ("asked", "title"),
        [
            ("When?", "When?"),
            ('"When\n  does\tit open?"', "When does it open?"),
            ("word " * 16, "word " * 15 + "word"),
            ("word " * 17, "word " * 15 + "word…"),
            ("y" * 81, "y" * 79 + "…"),
        ],
    )
    def test_without_a_column_of_titles_a_case_has_the_beginning_of_its_input(
        self, asked: str, title: str
    ) -> None:
        [case] = read(f"question,answer\n{asked},1\n").cases
        assert case.title == title
        assert len(case.title) <= 80
        [instructed] = read(f"system,question\nBe kind,{asked}\n").cases
        assert instructed.title == title

    def test_titles_of_a_column_stay_as_they_are(self) -> None:
        one, two = read("title,question\nOpening,When?\n,How?\n").cases
        assert (one.title, two.title) == ("Opening", "")


class TestKeys:
    def test_without_a_column_a_case_is_named_after_its_input(self) -> None:
        one, two = read("question,answer\na,1\nb,2\n").cases
        again, *_ = read("question,answer\nnew,0\nb,3\n").cases[1:]
        assert one.key.startswith("row-")
        assert one.key != two.key == again.key

    @pytest.mark.parametrize(
        ("rows", "column", "reason"),
        [
            (
                "A,one\nA,two\n",
                "id",
                "the key 'A' is on line 2 already; give each case its own",
            ),
            ("A,one\n,two\n", "id", "is empty; give the case a key of its own"),
            ("A,one\nB,\n", "question", "is empty; write what the case asks"),
            (f"A,one\n{'k' * 201},two\n", "id", "has 201 characters; 200 is the limit"),
            ("A,one\nB,t\x00o\n", "", "cell 2 contains the character NUL"),
        ],
    )
    def test_a_row_is_rejected_by_line_and_column(
        self, rows: str, column: str, reason: str
    ) -> None:
        found = read(f"id,question\n{rows}")
        [bad] = found.rejected
        assert (bad.line, bad.column) == (3, column)
        assert bad.reason.startswith(reason)
        assert len(found.cases) == 1

    def test_the_same_input_twice_is_rejected_where_it_makes_the_key(self) -> None:
        [bad] = read("question,answer\na,1\na,2\n").rejected
        assert (bad.column, bad.reason[:30]) == ("question", "the same input is on line 2 al")

    def test_a_row_with_more_than_a_hundred_tags_is_rejected(self) -> None:
        some, more = ";".join(map(str, range(60))), ";".join(map(str, range(60, 101)))
        found = read(f"id,question,tags,tag\nA,one,{some},x\nB,two,{some},{more}\n")
        assert len(found.cases[0].tags) == 61
        [bad] = found.rejected
        assert (bad.line, bad.column) == (3, "tags")
        assert bad.reason == "has 101 tags; 100 is the limit"

    def test_keys_of_the_suite_are_refused_or_skipped(self) -> None:
        table = read_table(b"id,question\nA,one\nB,two\n")
        taken = read_cases(table, suggest(table), taken={"A"})
        assert [(bad.line, bad.reason) for bad in taken.rejected] == [
            (2, "the suite already has a case 'A'")
        ]
        skipped = read_cases(table, suggest(table), skipped={"A"})
        assert ([case.key for case in skipped.cases], skipped.skipped_rows) == (["B"], 1)

    def test_a_mapping_needs_one_input(self) -> None:
        twice = CaseMapping((CasePart.INPUT, CasePart.INPUT, CasePart.TAGS, CasePart.TAGS))
        assert twice.problems() == ("2 columns are the input; choose one",)
        assert "no column is the input" in CaseMapping((CasePart.KEY,)).problems()[0]


@pytest.mark.parametrize(
    "expected",
    ['{"role": "user", "content": "x"}', '[{"role": "assistant", "content": " x"}]', "[1]"],
)
def test_an_expected_output_in_json_is_read_back_as_it_was(expected: str) -> None:
    case = CaseSpec(key="A", input=({"role": "user", "content": "q"},), expected_output=expected)

    found = read(csv_text(CASE_COLUMNS, [case_row(case)]))

    assert found.cases == (case,)


class TestRejectedRows:
    def test_formulas_are_written_as_texts_and_read_back_as_they_were(self) -> None:
        texts = ["=1+1", "+3", "-4", "@sum", "'=x", "<b>plain</b>", "'quoted'"]
        # What some spreadsheets pass over before a formula, and the wide forms that others take for the narrow ones.
        texts += [" =1+1", "\u3000\ufeff'=1+1", *"\uff1d\uff0b\uff0d\uff20", "a = 1", " 'quoted'"]
        table = read_table("".join(f"{one}\n" for one in ["question", *texts]).encode())
        found = read_cases(
            table, suggest(table), taken={c.key for c in read_cases(table, suggest(table)).cases}
        )
        file = "".join(rejected_csv(table, found.rejected))
        cells = [row[0] for row in csv.reader(io.StringIO(file.removeprefix("\ufeff")))][1:]
        assert not any(
            re.match(r"\W*[=+\-@\uff1d\uff0b\uff0d\uff20]", cell)
            for cell in cells
            if cell[0] != "'"
        )
        back = read_table(file.encode())
        assert suggest(back).parts == (CasePart.INPUT, CasePart.IGNORED, CasePart.IGNORED)
        assert [row.cells[0] for row in back.rows] == texts

    def test_rows_that_could_not_be_read_are_given_back_with_all_their_text(self) -> None:
        table = read_table(b'id,question\nA,one, two\nB,"say "no" now"\nC,"open\n')
        rejected = read_cases(table, suggest(table)).rejected
        assert [one.cells for one in rejected] == [
            ("A", "one, two"),
            ('B,"say "no" now"',),
            ('C,"open',),
        ]
        back = read_table("".join(rejected_csv(table, rejected)).encode())
        assert read_cases(back, suggest(back)).cases[0].input[0]["content"] == "one, two"

    def test_a_cell_of_5_mb_is_a_cell(self) -> None:
        [case] = read(f"question\n{'x' * 5_000_000}\n").cases
        assert len(case.input[0]["content"]) == 5_000_000


@given(st.binary(max_size=300))
def test_any_bytes_are_a_table_or_refused(content: bytes) -> None:
    try:
        table = read_table(content)
    except UnreadableFileError:
        return
    found = read_cases(table, suggest(table))
    assert len(found.cases) + len(found.rejected) == len(table.rows)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        # As many columns as there are rows would be a square of cells.
        ("".join(f'{{"k{n}": 1}}\n' for n in range(201)), "the table has 201 columns; 200"),
        ("a," * 200 + "a\n1\n", "the table has 201 columns; 200"),
        ("a\n" + "1\n" * 11, "more than 10 rows or 30 cells; split it"),
        ("a,b,c,d\n" + "1\n" * 8, "more than 10 rows or 30 cells; split it"),
        ('{"a": 1, "b": 1, "c": 1, "d": 1}\n' + '{"a": 1}\n' * 7, "more than 10 rows or 30 cells"),
        ("[" + ",".join(['{"a": 1}'] * 11) + "]", "more than 10 rows or 30 cells; split it"),
    ],
)
def test_tables_that_unfold_are_refused(
    content: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_no_row(*_: object) -> None:
        pytest.fail("a row was filled up before the limits were checked")

    if "columns" in message:
        monkeypatch.setattr(tables, "TableRow" if content[0] == "{" else "_fitted", make_no_row)
    else:
        monkeypatch.setattr(tables, "MAX_ROWS", 10)
        monkeypatch.setattr(tables, "MAX_CELLS", 30)
    with pytest.raises(UnreadableFileError, match=message):
        read_table(content.encode())


@pytest.mark.parametrize("content", ['[{"a": [%s]}]', '{"a": [%s]}', '{"a": 1}\n{"a": [%s]}'])
def test_a_table_of_very_many_values_is_refused_before_it_is_read(
    content: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MAX_FILE_VALUES", 20)
    monkeypatch.setattr(tables, "read_object", lambda _: pytest.fail("a row was read"))
    with pytest.raises(UnreadableFileError, match="more than 20 values; split it"):
        read_table((content % ",".join(["[]"] * 20)).encode())
