"""The form of a suite's whole evaluator tree with its thresholds, in a draft."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.http import QueryDict

from evaluators.scoring.types import DomainError
from runs.drafting import Content, Operation, SetPolicy, change
from runs.drafting.content import nodes_with_paths
from runs.drafting.editing import applied
from runs.drafting.remarks import remarks
from runs.forms.tree_policy import PolicyFields
from runs.forms.tree_rows import Row, RowFields, sent_fields, stored_fields
from runs.models import SuiteDraft
from runs.services.drafts import DraftChangedError, change_draft


class EvaluatorTreeForm:
    """What a page of the tree sends: `<id>.<field>` of every evaluator and the names of thresholds.

    What is not sent stays as the draft has it. `is_stale` once the draft turned out to be another than
    the one the form was made for; what was entered is kept then, too.
    """

    def __init__(
        self, draft: SuiteDraft, base: Mapping[str, Any], data: QueryDict | None = None
    ) -> None:
        """Hold a draft, the policy of the version it is based on, and what was sent."""
        self.draft = draft
        self.data = data
        content = draft.content
        self.thresholds = PolicyFields(content["policy"], base, data)
        self.rows = {row.stored.id: row for row in _rows(content, data)}
        self.refusals: list[str] = []
        self.is_stale = False

    @property
    def is_bound(self) -> bool:
        """Tell whether something was sent."""
        return self.data is not None

    @property
    def fields(self) -> Mapping[str, RowFields]:
        """Return by id what the fields of every evaluator hold."""
        return {key: row.sent for key, row in self.rows.items()}

    @property
    def refused(self) -> int:
        """Return how many fields are refused."""
        return sum(len(one.errors) for one in self.fields.values()) + len(self.thresholds.errors)

    def operations(self) -> list[Operation]:
        """Return what was changed in the form; what is refused stands at its field afterwards."""
        found = [one for row in self.rows.values() for one in row.operations()]
        policy = self.thresholds.changes()
        return [*found, SetPolicy(policy)] if policy else found

    def content(self) -> Content | None:
        """Return the draft's content as the form would make it, nothing stored; None when refused."""
        operations = self.operations()
        if self.refused:
            return None
        try:
            return change(self.draft.content, *operations)
        except DomainError as refusal:
            self._refuse(refusal, operations)
            return None

    def keep(self, *deeds: Operation) -> SuiteDraft | None:
        """Keep the form, and what is to be done besides, in the draft; None, with the reasons, when refused."""
        operations = self.operations()
        stamp = "" if self.data is None else self.data.get("stamp", "")
        if self.refused:
            # A form of another draft is told so first: its fields may be refused for that alone.
            self.is_stale = stamp != self.draft.stamp
            return None
        try:
            return change_draft(self.draft, stamp, *operations, *deeds)
        except DraftChangedError:
            self.is_stale = True
        except DomainError as refusal:
            self._refuse(refusal, operations)
        return None

    def _refuse(self, refusal: DomainError, operations: list[Operation]) -> None:
        """Put a refusal of the whole to the composite it is about, where that can be told."""
        if not self._place_zero_sums(operations):
            self.refusals.append(str(refusal))

    def _place_zero_sums(self, operations: list[Operation]) -> bool:
        try:
            content = applied(self.draft.content, *operations)
        except DomainError:
            return False
        ids = {path: node["id"] for path, node in nodes_with_paths(content["evaluators"])}
        found = [one for one in remarks(content) if one.code == "zero_sum"]
        for one in found:
            if ids[one.path] in self.rows:
                self.rows[ids[one.path]].sent.errors[""] = one.text
        return bool(found)


def _rows(content: Content, data: QueryDict | None) -> Iterator[Row]:
    scale = int(content["policy"]["scale"])

    def look(node: dict[str, Any], parent: dict[str, Any] | None) -> Iterator[Row]:
        stored = stored_fields(node, parent, scale)
        yield Row(node, stored, stored if data is None else sent_fields(stored, data), scale)
        for child in node["children"]:
            yield from look(child, node)

    yield from look(content["evaluators"], None)
