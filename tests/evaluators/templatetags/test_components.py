"""The block tags that pages are built from."""

from __future__ import annotations

from dataclasses import dataclass

from django.template import Context, Template

from evaluators.templatetags.components import diff_line


@dataclass(frozen=True, slots=True)
class Words:
    """A run of words of a diff."""

    text: str
    is_changed: bool = False


def render(source: str, **context: object) -> str:
    return Template(f"{{% load ui %}}{source}").render(Context(context))


PROSE = """
<p>
  {% prose %}
    Rule <code>{{ rule }}</code>
    {% if case %}
      , any case
    {% endif %}
    {% if length %}
      ; {{ length }} characters
    {% endif %}
    .
  {% endprose %}
</p>
"""


def test_prose_joins_punctuation_to_what_precedes_it() -> None:
    text = " ".join(render(PROSE, rule="equals", case=True, length=7).split())
    assert text == "<p> Rule <code>equals</code>, any case; 7 characters. </p>"
    text = " ".join(render(PROSE, rule="equals", case=False, length=0).split())
    assert text == "<p> Rule <code>equals</code>. </p>"


def test_prose_leaves_the_punctuation_of_values_alone() -> None:
    assert render("{% prose %}from {{ name }}{% endprose %}", name=".net , :)") == "from .net , :)"


def test_a_line_of_a_diff_has_no_white_space_of_its_own() -> None:
    pieces = [Words("keep "), Words("<new>", is_changed=True)]
    assert diff_line("good", pieces) == (
        '<p data-tone="good"><span class="unseen">after: </span>keep <ins>&lt;new&gt;</ins></p>'
    )
    assert diff_line("same", [Words(" a  b", is_changed=True)]) == "<p> a  b</p>"
