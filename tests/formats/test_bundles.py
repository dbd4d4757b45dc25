"""Folders, zips and files become contents by path, whatever they try."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Mapping
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_BZIP2, ZIP_DEFLATED, ZIP_LZMA, ZIP_STORED, ZipFile, ZipInfo

import pytest

from runs.formats import bundles
from runs.formats.bundles import bundles_at, read_uploads
from runs.specs.problems import UnreadableFileError


def zipped(files: Mapping[str, bytes], method: int = ZIP_STORED) -> BytesIO:
    buffer = BytesIO()
    with ZipFile(buffer, "w", method) as packed:
        for path, content in files.items():
            packed.writestr(path, content)
    return BytesIO(buffer.getvalue())


def written(folder: Path, files: Mapping[str, bytes]) -> Path:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


def contents(parts: list[tuple[str, BytesIO]]) -> list[dict[str, bytes]]:
    return [{path: bundle.files[path] for path in bundle.paths} for bundle in read_uploads(parts)]


def test_files_and_a_zip_are_one_bundle() -> None:
    packed = zipped({"a/suite.yaml": b"1", "a\\prompts\\x.md": b"2", "b/": b""})

    found = contents([("all.zip", packed), ("notes.txt", BytesIO(b"3")), ("c/d.md", BytesIO(b"4"))])

    assert found == [
        {"a/prompts/x.md": b"2", "a/suite.yaml": b"1", "c/d.md": b"4", "notes.txt": b"3"}
    ]


def test_what_was_chosen_is_read_be_it_hidden_and_what_is_hidden_in_it_is_not() -> None:
    names = (".suite.yaml", ".evals/suite.yaml", ".evals/.env", ".evals/venv/x.yaml")
    (bundle,) = read_uploads([(name, BytesIO()) for name in names])
    assert bundle.paths == (".evals/suite.yaml", ".suite.yaml")
    assert "are not read: .env, venv/" in str(bundle.left_out[0])


def test_several_zips_are_a_bundle_each() -> None:
    parts = [(name, zipped({"suite.yaml": name.encode()})) for name in ("a.zip", "B.ZIP")]
    assert contents([*parts, ("x.md", BytesIO(b"3"))]) == [
        {"suite.yaml": b"a.zip"},
        {"suite.yaml": b"B.ZIP"},
        {"x.md": b"3"},
    ]


def test_hidden_files_and_caches_are_left_out_and_told() -> None:
    link = ZipInfo("up.md")
    link.external_attr = 0o120777 << 16
    buffer = zipped({
        "suite.yaml": b"1", ".git/config": b"", ".git/HEAD": b"", "__MACOSX/._x": b"",
        "app/node_modules/x/y.yaml": b"", "app/__pycache__/a.pyc": b"", ".DS_Store": b"",
    })  # fmt: skip
    with ZipFile(buffer, "a") as packed:
        packed.writestr(link, "/etc/passwd")
    buffer.seek(0)

    (bundle,) = read_uploads([("all.zip", buffer)])

    assert bundle.paths == ("suite.yaml",)
    assert [str(note) for note in bundle.left_out] == [
        "hidden files and caches are not read: .DS_Store, .git/, __MACOSX/, app/__pycache__/, "
        "app/node_modules/",
        "links that lead out of the folder are not followed: up.md",
    ]


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([("a.zip", BytesIO(b"no zip"))], "a.zip: cannot be unpacked"),
        ([("a.zip", zipped({"../up.yaml": b""}))], "'../up.yaml' leads out of it"),
        ([("a.zip", zipped({"/etc/up.yaml": b""}))], "'/etc/up.yaml' leads out of it"),
        ([("a.zip", zipped({"a\\..\\..\\x": b""}))], "leads out of it"),
        ([("../a.md", BytesIO(b""))], "'../a.md' leads out of it"),
        ([("a.zip", zipped({"a.md": b""})), ("a.md", BytesIO())], "a.md: was uploaded twice"),
        ([("a.zip", zipped({"a.md": b"", "./a.md": b""}))], "a.zip: contains a.md twice"),
        ([("a.zip", zipped({"x" * 301: b""}))], "longer than 300 characters"),
        ([("a.zip", zipped({f"a/{'é' * 128}": b""}))], "a name in it than 255 bytes"),
        (
            [("a.zip", zipped({"a/b": b"", "a/b/c/d": b""}))],
            "contains a/b as a file and as a folder",
        ),
    ],
)
def test_what_cannot_be_taken_is_refused_by_name(
    parts: list[tuple[str, BytesIO]], said: str
) -> None:
    with pytest.raises(UnreadableFileError) as refusal:
        read_uploads(parts)
    assert said in str(refusal.value)


@pytest.mark.parametrize("method", [ZIP_BZIP2, ZIP_LZMA])
def test_what_may_unpack_to_any_size_at_once_is_not_unpacked(method: int) -> None:
    packed = zipped({"a.md": b"fine", "suite.yaml": b"x" * 50_000_000}, method)
    tracemalloc.start()
    with pytest.raises(UnreadableFileError, match=r"a.md is packed by another method"):
        read_uploads([("a.zip", packed)])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 5_000_000


@pytest.mark.parametrize("method", [ZIP_STORED, ZIP_DEFLATED])
def test_a_damaged_zip_is_refused_wherever_the_damage_is(method: int) -> None:
    whole = zipped({"prompts/é.md": b"hello " * 50}, method).getvalue()
    for place in range(len(whole)):
        broken = whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]
        with suppress(UnreadableFileError):
            read_uploads([("a.zip", BytesIO(broken))])


def test_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "MAX_ZIP_BYTES", 10)
    for name, stream in (("a.zip", zipped({"a": b"x" * 11})), ("a", BytesIO(b"x" * 11))):
        with pytest.raises(UnreadableFileError, match="more than"):
            read_uploads([(name, stream)])
    several = [(f"{n}.zip", zipped({"a": b"x" * 6})) for n in range(3)]
    with pytest.raises(UnreadableFileError, match="more than"):
        read_uploads(several)
    monkeypatch.setattr(bundles, "MAX_ZIP_ENTRIES", 2)
    with pytest.raises(UnreadableFileError, match="more than 2 files"):
        read_uploads([("a.zip", zipped({f"node_modules/{n}": b"" for n in range(3)}))])
    monkeypatch.setattr(bundles, "MAX_ZIP_FILES", 1)
    with pytest.raises(UnreadableFileError, match="2 files"):
        read_uploads([("a", BytesIO()), ("b", BytesIO())])


class TestThisMachine:
    def test_a_folder_holds_what_lies_in_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        files = {"suite.yaml": b"1", "prompts/x.md": b"2", ".env": b"secret", "venv/x.yaml": b""}
        written(tmp_path / "evals", files)
        monkeypatch.chdir(tmp_path)

        (bundle,) = bundles_at([Path("evals")])

        assert (bundle.place, bundle.paths) == ("evals/", ("prompts/x.md", "suite.yaml"))
        assert bundle.files["prompts/x.md"] == b"2"
        assert str(bundle.left_out[0]) == "evals: hidden files and caches are not read: .env, venv/"

    def test_a_file_may_refer_to_those_beside_it(self, tmp_path: Path) -> None:
        written(tmp_path, {"suite.yaml": b"1", "prompts/x.md": b"2"})
        (bundle,) = bundles_at([tmp_path / "suite.yaml"])
        assert bundle.paths == ("suite.yaml",)
        assert "prompts/x.md" in bundle.files
        assert "prompts" not in bundle.files
        assert sorted(bundle.files) == ["prompts/x.md", "suite.yaml"]

    def test_folders_and_files_share_the_folder_above_them(self, tmp_path: Path) -> None:
        written(tmp_path, {"a/suite.yaml": b"1", "b/x.yaml": b"2", "c/not.yaml": b"3"})
        (tmp_path / "z.zip").write_bytes(zipped({"suite.yaml": b"4"}).getvalue())
        paths = [tmp_path / "a", tmp_path / "b/x.yaml", tmp_path / "z.zip"]

        packed, plain = bundles_at(paths)

        assert (packed.paths, packed.files["suite.yaml"]) == (("suite.yaml",), b"4")
        assert plain.paths == ("a/suite.yaml", "b/x.yaml")

    def test_no_link_leads_out_of_a_folder(self, tmp_path: Path) -> None:
        written(tmp_path, {"secret.md": b"s", "evals/suite.yaml": b"1", "evals/in/x.md": b"2"})
        evals = tmp_path / "evals"
        (evals / "out.md").symlink_to(tmp_path / "secret.md")
        (evals / "loop").symlink_to(evals)
        (evals / "itself").symlink_to("itself")
        (evals / "near.md").symlink_to(evals / "in/x.md")

        (bundle,) = bundles_at([evals])

        assert bundle.paths == ("in/x.md", "near.md", "suite.yaml")
        assert "out.md" not in bundle.files
        assert "../secret.md" not in bundle.files
        with pytest.raises(KeyError):
            bundle.files["out.md"]
        assert "are not followed: itself, loop/x, out.md" in str(bundle.left_out[0])

    def test_what_is_no_plain_file_is_never_opened(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe.yaml")
        written(tmp_path, {"suite.yaml": b"1"})
        (bundle,) = bundles_at([tmp_path])
        assert bundle.paths == ("suite.yaml",)

    def test_what_cannot_be_read_is_refused_by_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(UnreadableFileError, match=r"nothing\.yaml: there is no file or folder"):
            bundles_at([tmp_path / "nothing.yaml"])
        written(tmp_path, {"a.zip": b"no zip", "suite.yaml": b"12345"})
        with pytest.raises(UnreadableFileError, match=r"a\.zip: cannot be unpacked"):
            bundles_at([tmp_path / "a.zip"])
        monkeypatch.setattr(bundles, "MAX_FOLDER_BYTES", 4)
        (bundle,) = bundles_at([tmp_path / "suite.yaml"])
        with pytest.raises(UnreadableFileError, match="larger than"):
            bundle.files["suite.yaml"]
        monkeypatch.setattr(bundles, "MAX_FOLDER_FILES", 1)
        with pytest.raises(UnreadableFileError, match="more than 1 files"):
            bundles_at([tmp_path])


UPWARDS = b"input: [./a.md, ../fixtures/b.md, ../../../etc/passwd]"


def test_a_file_on_disk_reaches_up_as_far_as_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(tmp_path, {"x/show/evals/s.yaml": UPWARDS, "x/show/fixtures/b.md": b"b"})
    above = written(tmp_path, {"secret.md": b"s"}) / "x"
    monkeypatch.chdir(above)

    [bundle] = bundles_at([Path("show/evals/s.yaml")])

    assert bundle.paths == ("show/evals/s.yaml",)
    assert bundle.files["show/fixtures/b.md"] == b"b"
    assert "../secret.md" not in bundle.files
    monkeypatch.chdir(folder / "x/show/fixtures")
    [apart] = bundles_at([folder / "x/show/evals/s.yaml"])
    assert apart.paths == ("s.yaml",)
    (folder / "x/.git").mkdir()
    [of_a_repository] = bundles_at([folder / "x/show/evals/s.yaml"])
    assert of_a_repository.paths == ("show/evals/s.yaml",)
