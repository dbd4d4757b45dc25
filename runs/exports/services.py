"""Request a file, write it in a worker, and remove it: for its owner, with its data, or after a day."""

from __future__ import annotations

import errno
import logging
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import DatabaseError, transaction
from django.db.models import F, Q, QuerySet
from django.http import Http404

from evaluators.sandbox.processes import is_dead, process_name
from evaluators.scoring.types import DomainError
from runs.exports.specs import ExportSpec, FileKind, NothingToExportError
from runs.models.database import database_now
from runs.models.runs import WorkerProcess
from runs.models.temporary import (
    EXPORT_PREFIX,
    KEPT,
    UNFINISHED_EXPORTS,
    Export,
    ExportRequest,
    ExportState,
)
from runs.queue import queue_exports

if TYPE_CHECKING:
    from django.contrib.auth.models import User

logger = logging.getLogger(__name__)

# Of one member.
MAX_EXPORTS = 10
# The database may be on the same disk, and needs room to go on.
MIN_FREE_BYTES = 256 * 1024 * 1024
MAX_ATTEMPTS = 3
PROGRESS_EVERY_S = 0.5
PART = ".part"
FILE_NAME = re.compile(rf"{EXPORT_PREFIX}(?P<pk>\d+)-(?P<token>[0-9a-f]{{32}})({re.escape(PART)})?")
IS_FULL = (errno.ENOSPC, errno.EDQUOT)
TRY_AGAIN = {
    "state": ExportState.WAITING,
    "worker": "",
    "token": "",
    "done_count": 0,
    "error": "",
}


class TooManyExportsError(DomainError):
    """A member waits for as many exports as one may have."""

    code = "too_many_exports"


def request_export(spec: ExportSpec, *, by: User) -> ExportRequest:
    """Have a worker make a file, unless one with the same content is there or being made.

    A file that could not be made is made again, and so is one that is no longer in its folder. Raises
    TooManyExportsError.
    """
    now = database_now()
    with transaction.atomic():
        # Locked, so that it cannot be cancelled by somebody else meanwhile.
        export, is_new = Export.objects.select_for_update().get_or_create(
            digest=spec.digest,
            defaults={
                "kind": spec.kind,
                "params": dict(spec.params),
                "name": spec.name,
                "media_type": spec.media_type,
                "permissions": list(spec.permissions),
                "row_count": spec.rows,
                "asked_at": now,
                "expires_at": now + KEPT,
            },
        )
        if is_new:
            export.suites.set(spec.suites)
        request = ExportRequest.objects.filter(owner=by, export=export).first()
        if request is None:
            _make_room(by)
            request = ExportRequest.objects.create(owner=by, export=export)
        if export.state == ExportState.FAILED or is_missing(export):
            restart(export)
        if export.is_unfinished:
            transaction.on_commit(queue_exports)
    return request


def restart(export: Export) -> None:
    """Have a worker make a file again that failed or is missing."""
    again = TRY_AGAIN | {"attempts": 0, "expires_at": database_now() + KEPT}
    ended = Export.objects.filter(pk=export.pk).exclude(state__in=UNFINISHED_EXPORTS)
    if ended.update(**again):
        export.refresh_from_db()
        transaction.on_commit(queue_exports)


def is_missing(export: Export) -> bool:
    """Tell whether the file should be in its folder, as this machine sees it, but is not."""
    return export.state == ExportState.READY and not export.path.exists()


def _make_room(owner: User) -> None:
    """Remove the oldest files of a member who has as many as one may have; raises TooManyExportsError."""
    own = ExportRequest.objects.filter(owner=owner)
    excess = own.count() - MAX_EXPORTS + 1
    if excess <= 0:
        return
    ended = own.exclude(export__state__in=UNFINISHED_EXPORTS).order_by("asked_at", "id")
    oldest = list(ended.select_related("export")[:excess])
    if len(oldest) < excess:
        raise TooManyExportsError(
            f"{MAX_EXPORTS} of your exports are being prepared, which is the limit. Wait for one, or "
            "cancel one."
        )
    for request in oldest:
        drop_request(request)


def drop_request(request: ExportRequest) -> None:
    """Take a member's request back; the file goes, or is no longer made, unless others want it too."""
    with transaction.atomic():
        export = Export.objects.select_for_update().filter(pk=request.export_id).first()
        request.delete()
        if export is not None and not export.requests.exists():
            remove_exports(Export.objects.filter(pk=export.pk))


def remove_exports(exports: QuerySet[Export]) -> None:
    """Remove exports with their files; what is being made ends."""
    paths = [path for export in exports for path in (export.path, _part_path(export))]
    exports.delete()
    transaction.on_commit(lambda: _unlink(paths))


def remove_suite_exports(suite_id: int) -> None:
    """Remove every export that may contain data of a suite."""
    in_it = Q(suites=suite_id) | Q(suites=None)
    remove_exports(Export.objects.filter(pk__in=Export.objects.filter(in_it).values("pk")))


def _unlink(paths: Iterable[Path]) -> None:
    """Delete files; what this machine cannot delete, the reaper of a worker deletes."""
    for path in paths:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _part_path(export: Export) -> Path:
    """Return where the file is while it is being made."""
    return export.path.with_name(f"{export.path.name}{PART}")


class _LostExportError(Exception):
    """The export was cancelled, or another worker has it."""


class _StoppingError(Exception):
    """This process is about to end."""


class ExportWriter:
    """Makes the exports that wait, one at a time in a process."""

    def __init__(self) -> None:
        """Make none yet."""
        self._turn = threading.Lock()
        self._is_stopping = False
        # That of the export that is being made, set before the database knows it.
        self.token = ""

    def stop(self) -> None:
        """Give back what is being made; another worker begins it again."""
        self._is_stopping = True

    def write_waiting(
        self, kinds: Mapping[str, FileKind], *, pause: Callable[[], object] = lambda: None
    ) -> None:
        """Make the exports that wait, oldest first, calling `pause` after each part.

        Does nothing where another thread of this process does it already.
        """
        if not self._turn.acquire(blocking=False):
            return
        try:
            while not self._is_stopping and (export := self._claim()) is not None:
                self._make(export, kinds.get(export.kind), pause)
        finally:
            self.token = ""
            self._turn.release()

    def _claim(self) -> Export | None:
        waiting = Export.objects.filter(state=ExportState.WAITING)
        for pk in list(waiting.values_list("pk", flat=True)):
            self.token = secrets.token_hex(16)
            is_mine = waiting.filter(pk=pk).update(
                state=ExportState.WRITING,
                worker=process_name(),
                token=self.token,
                attempts=F("attempts") + 1,
                done_count=0,
            )
            if is_mine:
                return Export.objects.filter(pk=pk, token=self.token).first()
        return None

    def _make(self, export: Export, kind: FileKind | None, pause: Callable[[], object]) -> None:
        mine = Export.objects.filter(pk=export.pk, token=export.token, state=ExportState.WRITING)
        try:
            if kind is None:
                raise NothingToExportError(f"No worker of this version makes {export.kind}.")
            spec = kind(**export.params)
            mine.update(row_count=spec.rows)
            size = self._write(export, spec, mine, pause)
        except _LostExportError:
            return
        except _StoppingError:
            mine.update(**TRY_AGAIN, attempts=F("attempts") - 1)
            return
        except OSError as error:
            logger.warning("Export %s: %s", export.name, error)
            mine.update(state=ExportState.FAILED, error=_describe(error))
            return
        except (DomainError, Http404) as error:
            mine.update(state=ExportState.FAILED, error=str(error))
            return
        except DatabaseError:
            # The reaper gives it to the next worker once the database answers.
            raise
        except Exception as error:
            logger.exception("Export %s could not be made", export.name)
            mine.update(state=ExportState.FAILED, error=f"{type(error).__name__}: {error}")
            return
        now = database_now()
        is_kept = mine.update(
            state=ExportState.READY,
            size=size,
            done_count=F("row_count"),
            made_at=now,
            expires_at=now + KEPT,
        )
        if not is_kept:
            _unlink([export.path])

    def _write(
        self,
        export: Export,
        spec: ExportSpec,
        mine: QuerySet[Export],
        pause: Callable[[], object],
    ) -> int:
        """Write the whole file and return its size; a file that is not whole is removed."""
        part = _part_path(export)
        try:
            part.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(
                os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"
            ) as file:
                for piece in self._parts(spec, mine, part.parent):
                    file.write(piece)
                    pause()
                file.flush()
                os.fsync(file.fileno())
                size = file.tell()
            part.replace(export.path)
        finally:
            _unlink([part])
        return size

    def _parts(self, spec: ExportSpec, mine: QuerySet[Export], folder: Path) -> Iterator[bytes]:
        """Yield the parts of the file; between them, report progress and raise what stops the writing."""
        _require_room(folder)
        reported_at = time.monotonic()
        for count, piece in enumerate(spec.parts(), 1):
            yield piece
            if self._is_stopping:
                raise _StoppingError
            if time.monotonic() - reported_at < PROGRESS_EVERY_S:
                continue
            reported_at = time.monotonic()
            _require_room(folder)
            if not mine.update(done_count=min(spec.rows, count * spec.rows_a_part)):
                raise _LostExportError


WRITER = ExportWriter()


def _require_room(folder: Path) -> None:
    """Raise OSError if the disk is so full that the site itself could soon no longer write."""
    if shutil.disk_usage(folder).free < MIN_FREE_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


def _describe(error: OSError) -> str:
    """Say why a file could not be written, and what would help."""
    if error.errno in IS_FULL:
        return (
            f"The disk of {settings.EXPORTS_DIR} is full; exports leave {MIN_FREE_BYTES >> 20} MB of it to "
            "the site. Make room, then try again."
        )
    return f"{settings.EXPORTS_DIR} cannot be written: {error.strerror}. An admin can change that."


def reap_exports(*, now: datetime, is_silence_death: bool) -> bool:
    """Free exports of dead workers, remove old ones and files that belong to none; tell whether any waits.

    `is_silence_death` says whether a worker without a heartbeat is dead.
    """
    _release_lost(now=now, is_silence_death=is_silence_death)
    old = Export.objects.filter(expires_at__lt=now).exclude(state=ExportState.WRITING)
    if old.exists():
        remove_exports(Export.objects.filter(pk__in=list(old.values_list("pk", flat=True))))
    _remove_leftovers()
    return Export.objects.filter(state=ExportState.WAITING).exists()


def _release_lost(*, now: datetime, is_silence_death: bool) -> None:
    writing = list(Export.objects.filter(state=ExportState.WRITING))
    if not writing:
        return
    alive = set(WorkerProcess.objects.alive(now=now).values_list("name", flat=True))
    for export in writing:
        # A thread of this process may have lost the database, and the export with it.
        was_here = export.worker == process_name() and export.token != WRITER.token
        is_silent = is_silence_death and export.worker not in alive
        if not (was_here or is_silent or is_dead(export.worker)):
            continue
        lost = Export.objects.filter(pk=export.pk, token=export.token, state=ExportState.WRITING)
        if export.attempts < MAX_ATTEMPTS:
            lost.update(**TRY_AGAIN)
        else:
            text = f"{MAX_ATTEMPTS} workers ended while they wrote the file."
            lost.update(state=ExportState.FAILED, error=text)


def _remove_leftovers() -> None:
    """Remove files of exports that are gone, or that another worker makes again."""
    # Listed before the database is read: an export is stored before its file exists.
    try:
        listed = list(settings.EXPORTS_DIR.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        # A share that is away must not keep the reaper from all that follows.
        logger.warning("Files in %s cannot be cleaned up: %s", settings.EXPORTS_DIR, error)
        return
    files = [(path, match) for path in listed if (match := FILE_NAME.fullmatch(path.name))]
    if files:
        known = {
            (str(pk), token)
            for pk, token in Export.objects.exclude(token="").values_list("pk", "token")
        }
        _unlink(path for path, match in files if (match["pk"], match["token"]) not in known)
