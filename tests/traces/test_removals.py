"""Traces that are removed while a program sends spans of them: nothing fails, and no span is lost."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from runs.models.database import database_now
from runs.models.traces import Trace, TraceSpan
from runs.traces import receiving
from tests.support.threads import in_thread
from tests.traces.sent import Exporter
from tests.traces.wire import span

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.each_database]


@pytest.fixture
def exporter(editor: User) -> Exporter:
    return Exporter(editor)


def test_a_removal_waits_for_a_request_and_leaves_what_is_no_longer_old(
    exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter.send(span(1, 2))
    month_ago = database_now() - timedelta(days=30)
    Trace.objects.update(changed_at=month_ago)
    describe = receiving._describe
    old = Trace.objects.filter(changed_at__lte=month_ago)
    with ThreadPoolExecutor() as threads:
        removals = []

        def describe_beside_a_removal(*facts: object) -> None:
            removals.append(in_thread(threads, old.remove))
            describe(*facts)

        monkeypatch.setattr(receiving, "_describe", describe_beside_a_removal)
        exporter.send(span(2, name="root"))
        assert [removal.result() for removal in removals] == [0]
    assert Trace.objects.get().span_count == TraceSpan.objects.count() == 2


def test_spans_of_a_trace_that_is_just_removed_begin_it_anew(exporter: Exporter) -> None:
    exporter.send(span(1, 2))
    send: Callable[[], object] = partial(exporter.send, span(2, name="root"))
    with ThreadPoolExecutor() as threads:
        with transaction.atomic():
            list(Trace.objects.select_for_update())
            sending = in_thread(threads, send)
            Trace.objects.all().remove()
        assert sending.result() == (0, "")
    assert Trace.objects.get().span_count == TraceSpan.objects.count() == 1
