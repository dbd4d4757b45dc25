"""The folder in which one program runs: laid out before, looked through and removed after."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from evaluators.kinds._base import SandboxRefusal
from evaluators.sandbox.lives import own_life

# What is started by its name needs the right to be; these are how programs begin.
PROGRAM_STARTS = (b"#!", b"\x7fELF")
# A user's line as in /etc/passwd, which serves for /etc/group too.
USER_LINE = "script:x:{user}:{user}::/tmp:/bin/sh\n"
# Then whose box it is (place, pid and start of the process) and what makes it one of a kind.
PREFIX = "evalsite-script-"
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, slots=True)
class Box:
    """The folders of one program: where it starts, its workspace, its /tmp, and a few names for it."""

    root: Path

    @property
    def start(self) -> Path:
        """Return the fresh directory in which it starts."""
        return self.root / "start"

    @property
    def workspace(self) -> Path:
        """Return the folder that EVAL_WORKSPACE names."""
        return self.root / "workspace"

    @property
    def temporary(self) -> Path:
        """Return its own /tmp."""
        return self.root / "tmp"

    @property
    def environment(self) -> Path:
        """Return the file of its variables."""
        return self.root / "environment"

    @property
    def names(self) -> Path:
        """Return the folder of the names by which it finds Python."""
        return self.root / "bin"

    @property
    def written(self) -> tuple[Path, ...]:
        """Return the folders it may write to."""
        return (self.start, self.workspace, self.temporary)


@contextlib.contextmanager
def open_box(
    *, files: Mapping[str, bytes], workspace: Mapping[str, bytes], user: int | None
) -> Iterator[Box]:
    """Lay a box out for the user (None: the one we are) and remove it with all that is in it then.

    Raises SandboxRefusal for a path that leads outside, and when there is no room.
    """
    box = Box(Path(tempfile.mkdtemp(prefix=f"{PREFIX}{'-'.join(map(str, own_life()))}-")))
    try:
        try:
            # The program's user passes through and changes nothing.
            box.root.chmod(0o711)
            for folder in box.written:
                folder.mkdir(mode=0o700)
            _lay_out(box.start, files)
            _lay_out(box.workspace, workspace)
            if user is not None:
                _give_to(box, user)
        except OSError as error:
            raise SandboxRefusal(f"the files could not be laid out: {error.strerror}") from error
        yield box
    finally:
        remove(box.root)


def write_names(box: Box, user: int) -> None:
    """Write who the program's user is, in place of the machine's own list."""
    for name in ("passwd", "group"):
        (box.root / name).write_text(USER_LINE.format(user=user))


def write_environment(box: Box, variables: Mapping[str, str], user: int | None) -> None:
    """Write the variables down for the shell that starts the program; nobody else may read them.

    They reach the program alone: what shuts it in must not see them, because some change what a
    program does. Raises SandboxRefusal for a name or value that is none.
    """
    lines = []
    for name, value in variables.items():
        if not VARIABLE.match(name) or "\0" in value:
            raise SandboxRefusal(f"{name!r} cannot be a variable of the environment")
        lines.append(f"export {name}={shlex.quote(value)}\n")
    box.environment.touch(mode=0o600)
    box.environment.write_bytes("".join(lines).encode("utf-8", "surrogateescape"))
    if user is not None:
        os.chown(box.environment, user, user)


def _lay_out(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        path = PurePosixPath(name)
        if not name or "\0" in name or path.is_absolute() or ".." in path.parts or not path.parts:
            raise SandboxRefusal(f"the file {name!r} has a path that leads outside its folder")
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        if content.startswith(PROGRAM_STARTS):
            place.chmod(0o755)


def _give_to(box: Box, user: int) -> None:
    for top in box.written:
        # Whoever shuts the program in goes there before becoming that user.
        os.chown(top, user, os.getegid())
        top.chmod(0o710)
        for folder, folders, names in os.walk(top):
            for name in (*folders, *names):
                os.chown(Path(folder, name), user, user)


def remove(root: Path) -> None:
    """Remove a box or a file, whatever a program made of it: rights taken away, folders within folders."""
    try:
        if root.is_dir() and not root.is_symlink():
            shutil.rmtree(root)
        else:
            root.unlink(missing_ok=True)
    except (OSError, RecursionError):
        for command in (("chmod", "-R", "u+rwX"), ("rm", "-rf")):
            subprocess.run(  # noqa: S603 - commands of this module alone
                [*command, "--", str(root)], stderr=subprocess.DEVNULL, check=False
            )
