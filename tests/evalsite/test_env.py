"""Settings are read from the environment, and wrong ones named."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path

import pytest

from evalsite.env import Environment


def test_a_blank_value_counts_as_not_set() -> None:
    env = Environment({"A": "  "})
    assert env.text("A", "default") == "default"
    assert env.number("A", 3, least=1, most=9) == 3
    assert env.flag("A", True) is True
    assert env.problems == []


@pytest.mark.parametrize(
    ("value", "expected"), [("1", True), ("TRUE", True), ("off", False), ("No", False)]
)
def test_flags_ignore_case(value: str, expected: bool) -> None:
    assert Environment({"A": value}).flag("A", not expected) is expected


@pytest.mark.parametrize("value", ["0", "65536", "8000x", "8.5", "-1"])
def test_a_wrong_number_is_a_problem_that_names_the_variable_and_the_range(value: str) -> None:
    env = Environment({"PORT": value})
    assert env.number("PORT", 8000, least=1, most=65535) == 8000
    [problem] = env.problems
    assert problem.variable == "PORT"
    assert "from 1 to 65535" in problem.message


def test_an_unreadable_flag_is_a_problem() -> None:
    env = Environment({"A": "maybe"})
    assert env.flag("A") is False
    assert "'maybe'" in env.problems[0].message


def test_a_choice_outside_the_list_is_a_problem() -> None:
    env = Environment({"LEVEL": "loud", "OTHER": "info"})
    assert env.choice("LEVEL", "INFO", ["INFO", "ERROR"]) == "INFO"
    assert env.choice("OTHER", "ERROR", ["INFO", "ERROR"]) == "INFO"
    assert [problem.variable for problem in env.problems] == ["LEVEL"]
    assert "INFO, ERROR" in env.problems[0].message


@pytest.mark.parametrize("value", ["example.com", "ftp://example.com", "https://", "http://[::1"])
def test_a_url_without_scheme_or_host_is_a_problem(value: str) -> None:
    env = Environment({"URL": value})
    assert env.url("URL", "", schemes=("http", "https")) == ""
    assert [problem.variable for problem in env.problems] == ["URL"]


def test_a_trailing_slash_of_a_url_is_removed() -> None:
    env = Environment({"URL": "https://example.com/"})
    assert env.url("URL", "", schemes=("http", "https")) == "https://example.com"


def test_an_unknown_time_zone_is_a_problem() -> None:
    env = Environment({"TZ": "Europe/Nowhere", "OK": "Europe/Lisbon", "BAD": "../etc/passwd"})
    assert env.time_zone("TZ", "UTC") == "UTC"
    assert env.time_zone("OK", "UTC") == "Europe/Lisbon"
    assert env.time_zone("BAD", "UTC") == "UTC"
    assert [problem.variable for problem in env.problems] == ["TZ", "BAD"]


def test_paths_become_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    env = Environment({"HOME_PATH": "~/x", "RELATIVE": "data"})
    assert env.path("HOME_PATH", Path("/")) == Path.home() / "x"
    assert env.path("RELATIVE", Path("/")) == tmp_path / "data"


def test_a_secret_can_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("from file\n")
    assert Environment({"KEY_FILE": str(file)}).secret("KEY") == "from file"
    assert Environment({"KEY": "plain"}).secret("KEY") == "plain"
    assert Environment({}).secret("KEY", "default") == "default"


def test_a_missing_secret_file_is_a_problem_of_the_file_variable(tmp_path: Path) -> None:
    env = Environment({"KEY_FILE": str(tmp_path / "missing")})
    assert env.secret("KEY") == ""
    assert env.problems[0].variable == "KEY_FILE"
    assert "No such file" in env.problems[0].message


def test_a_secret_set_twice_is_a_problem_that_hides_it(tmp_path: Path) -> None:
    env = Environment({"KEY": "hush", "KEY_FILE": str(tmp_path)})
    env.secret("KEY")
    assert env.problems[0].variable == "KEY"
    assert "hush" not in env.problems[0].message


def test_secrets_are_found_by_their_prefix(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("two")
    env = Environment({"M_ONE": "one", "M_TWO_FILE": str(file), "M_": "no name", "OTHER": "x"})
    assert env.secrets_starting("M_") == {"M_ONE": "one", "M_TWO": "two"}


def test_lists_are_comma_separated() -> None:
    assert Environment({"HOSTS": "a.example, b.example ,"}).texts("HOSTS") == [
        "a.example",
        "b.example",
    ]


def test_a_folder_must_exist_and_be_absolute(tmp_path: Path) -> None:
    env = Environment({"A": str(tmp_path), "B": "agents", "C": str(tmp_path / "none"), "D": ""})
    assert env.folder("A") == str(tmp_path)
    assert [env.folder(name) for name in "BCD"] == ["", "", ""]
    assert [problem.variable for problem in env.problems] == ["B", "C"]
    assert "not the absolute path of a folder" in env.problems[0].message


def test_a_missing_folder_of_several_is_named(tmp_path: Path) -> None:
    env = Environment({"A": f"{tmp_path}, /nowhere", "B": f"{tmp_path},"})
    assert env.folders("A") == []
    assert "/nowhere is not" in env.problems[0].message
    assert env.folders("B") == [str(tmp_path)]


def test_a_program_must_be_executable(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    env = Environment({"A": "/bin/sh", "B": str(plain), "C": str(tmp_path), "D": "sh"})
    assert env.program("A") == "/bin/sh"
    assert [env.program(name) for name in "BCD"] == ["", "", ""]
    assert len(env.problems) == 3


@pytest.mark.parametrize(
    ("value", "networks"),
    [
        ("", None),
        ("none", ()),
        ("10.1.0.0/16, ::1", (ip_network("10.1.0.0/16"), ip_network("::1"))),
    ],
)
def test_networks_are_listed_between_commas(value: str, networks: object) -> None:
    assert Environment({"N": value}).networks("N") == networks


def test_a_wrong_network_is_a_problem_that_shows_how_to_write_one() -> None:
    env = Environment({"N": "10.1.0.0/99"})

    assert env.networks("N") is None
    assert "write such as 10.1.0.0/16,127.0.0.1, or none" in env.problems[0].message


def test_pairs_are_split_at_the_last_sign() -> None:
    env = Environment({"N": "evals-admins=admin, OU=Staff=viewer"})

    assert env.pairs("N") == {"evals-admins": "admin", "OU=Staff": "viewer"}
    assert env.pairs("M") == {}


@pytest.mark.parametrize("value", ["admins", "=admin", "admins=", "a=admin,a=viewer"])
def test_a_wrong_pair_is_a_problem_that_names_it(value: str) -> None:
    env = Environment({"N": value})

    assert env.pairs("N") == {}
    assert env.problems[0].message.startswith(f"N is {value!r}, and '")
