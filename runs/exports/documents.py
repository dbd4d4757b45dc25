"""An export as a document, for pages and the API."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from django.urls import reverse

from runs.documents import Document, TextOrNone
from runs.exports.services import is_missing
from runs.models.temporary import UNFINISHED_EXPORTS, ExportRequest, ExportState

MISSING = "missing"


class ExportDoc(Document):
    """A file that a worker makes because it is large."""

    id: UUID
    """The id of the export."""
    file: str
    """The name of the file."""
    state: Literal["waiting", "writing", "ready", "failed", "missing"]
    """Its state; missing means that the server does not find the file in the exports folder."""
    rows: int
    """How many rows it will have: results, cases, decisions or entries."""
    done: int
    """How many rows are written."""
    size_bytes: int | None
    """Its size once it is ready."""
    asked_at: datetime
    """When the file was requested."""
    made_at: datetime | None
    """When it was ready: it has the data of that time."""
    expires_at: datetime
    """When it will be deleted."""
    error: TextOrNone
    """Why it failed; null otherwise."""
    status_url: str
    """Where this document is."""
    file_url: str | None
    """Where the file is; null until it is ready."""

    @property
    def is_unfinished(self) -> bool:
        """Tell whether a worker still has to make it."""
        return self.state in UNFINISHED_EXPORTS


def export_document(request: ExportRequest) -> ExportDoc:
    """Return the document of a member's export; reads no rows besides those of the request."""
    export = request.export
    state = MISSING if is_missing(export) else export.state
    is_ready = state == ExportState.READY
    return ExportDoc(
        id=request.pk,
        file=export.name,
        state=state,
        rows=export.row_count,
        done=export.done_count,
        size_bytes=export.size if is_ready else None,
        asked_at=request.asked_at,
        made_at=export.made_at if is_ready else None,
        expires_at=export.expires_at,
        error=export.error,
        status_url=reverse("runs:api-export", args=(request.pk,)),
        file_url=reverse("runs:api-export-file", args=(request.pk,)) if is_ready else None,
    )
