"""What the form of the evaluator tree asks a finished run, nothing of it stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evaluators.templatetags.figures import sentence
from runs.drafting import Content
from runs.forms.evaluator_tree import EvaluatorTreeForm

STALE = (
    "Your draft was changed in another tab, or the suite was, since this page was opened. "
    "Open the page again to go on."
)


@dataclass(frozen=True, slots=True)
class AskedContent:
    """The content of a draft as a form would make it; None when `complaints` say what is wrong."""

    content: Content | None
    complaints: Sequence[str]
    is_stale: bool = False


def asked_content(form: EvaluatorTreeForm) -> AskedContent:
    """Return what is asked for; a form that was not sent asks for the draft as it is kept."""
    if form.data is not None and form.data.get("stamp") != form.draft.stamp:
        return AskedContent(None, (STALE,), is_stale=True)
    content = form.content()
    return AskedContent(content, () if content is not None else tuple(_complaints(form)))


def _complaints(form: EvaluatorTreeForm) -> Iterator[str]:
    for row in form.rows.values():
        for error in row.sent.errors.values():
            yield f"{row.node['name']}: {sentence(error)}"
    for threshold in form.thresholds.shown().values():
        if threshold.error:
            yield sentence(threshold.error)
    for refusal in form.refusals:
        yield sentence(refusal[:1].upper() + refusal[1:])
