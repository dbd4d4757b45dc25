"""How pages write figures, changes, ages and marks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from django import forms
from django.template import Context, Template
from django.test import RequestFactory
from django.utils import timezone

from evaluators.templatetags import figures, markdown
from evaluators.templatetags.ui import TextPart, diff_line, difference
from tests.support.white_space import collapse_white_space

NOW = datetime(2026, 5, 12, 9, 11, tzinfo=UTC)
GAP = "\u00a0"


def render(source: str, **context: Any) -> str:
    return collapse_white_space(Template("{% load ui %}" + source).render(Context(context))).strip()


@pytest.mark.parametrize(
    ("format_figure", "value", "text"),
    [
        (figures.score, None, "–"),
        (figures.score, 0, "0.00"),
        (figures.score, 0.798, "0.79"),
        (figures.score, 0.7999999999, "0.80"),
        (figures.score, 0.7999999, "0.79"),
        (figures.score, (0.9 + 0.8 + 0.7) / 3, "0.80"),
        (figures.score, (0.7 + 0.8 + 0.9) / 3, "0.80"),
        (figures.score, 1, "1.00"),
        (figures.strip, 0.779, ".77"),
        (figures.strip, 1.0, "1.0"),
        (figures.strip, 0, ".00"),
        (figures.strip, None, "–"),
        (figures.pct, 0.825, "82.5%"),
        (figures.interval, (0.712, 0.889), "71.2% to 88.9%"),
        (figures.interval, (0.0, 0.1), "0.0% to 10.0%"),
        (figures.interval, (0.0, 0.0), "every case alike: no interval"),
        (figures.interval, (1 - 1e-12, 1.0), "every case alike: no interval"),
        (figures.interval, None, "–"),
        (figures.pct, 0.7999, "79.9%"),
        (figures.pct, 0.99999, "99.9%"),
        (figures.pct, 1, "100.0%"),
        (figures.pct, 0, "0.0%"),
        (figures.pct, 0.29, "29.0%"),
        (figures.pct, None, "–"),
        (figures.threshold, 0.8, "80%"),
        (figures.threshold, 1, "100%"),
        (figures.threshold, 0.125, "12.5%"),
        (figures.threshold, 0, "0%"),
        (figures.threshold, None, "–"),
        (figures.sentence, "The server is down", "The server is down."),
        (figures.sentence, "Check the key.", "Check the key."),
        (figures.sentence, "Who is it?", "Who is it?"),
        (figures.sentence, "", ""),
        (figures.plain, 2.0, "2"),
        (figures.plain, 100, "100"),
        (figures.plain, 0.65, "0.65"),
        (figures.plain, 1e-7, "0.0000001"),
        (figures.plain, None, "–"),
        (figures.plain, 1e30, "1e+30"),
        (figures.plain, 1.7e300, "1.7e+300"),
        (figures.score, 1e30, "1" + "0" * 30 + ".00"),
        (figures.bound, 0.8, "0.80"),
        (figures.bound, 1, "1.00"),
        (figures.bound, 0.855, "0.855"),
        (figures.bound, None, "–"),
        (figures.points, 0.05, f"5{GAP}pts"),
        (figures.points, 0, f"0{GAP}pts"),
        (figures.points, None, "–"),
        (figures.tenth, 3.79, "3.7"),
        (figures.tenth, 8.5, "8.5"),
        (figures.metric_label, 0, "critical fail"),
        (figures.metric_label, 2.5, "acceptable"),
        (figures.metric_label, 3.71, "good"),
        (figures.metric_label, 4.5, "excellent"),
        (figures.metric_label, None, ""),
        (figures.metric_tone, 2, "bad"),
        (figures.metric_tone, 3, "warn"),
        (figures.metric_tone, 5, "good"),
        (figures.money, Decimal("8.625"), "$8.63"),
        (figures.money, Decimal(1), "$1.00"),
        (figures.money, Decimal("0.9996"), "$1.00"),
        (figures.money, Decimal("0.9994"), "$0.999"),
        (figures.money, Decimal("0.154"), "$0.154"),
        (figures.money, Decimal("0.0239"), "$0.024"),
        (figures.money, Decimal("0.0005"), "$0.001"),
        (figures.money, Decimal("0.0000023"), "<$0.001"),
        (figures.money, Decimal("-0.25"), "\u2212$0.250"),
        (figures.money, Decimal(0), "$0"),
        (figures.money, Decimal("1234.5"), "$1\u202f234.50"),
        (figures.money, None, "–"),
        (figures.at_least, Decimal("8.625"), "≥ $8.63"),
        (figures.at_least, Decimal("0.0468"), "≥ $0.047"),
        (figures.at_least, Decimal("0.0024"), "≥ $0.002"),
        (figures.at_least, Decimal("0.00002"), "≥ $0.00002"),
        (figures.at_least, Decimal(0), "≥ $0"),
        (figures.at_least, None, "–"),
        (figures.duration, 0, f"0{GAP}ms"),
        (figures.duration, 600, f"600{GAP}ms"),
        (figures.duration, 999.6, f"1.0{GAP}s"),
        (figures.duration, 14_200, f"14.2{GAP}s"),
        (figures.duration, 59_940, f"59.9{GAP}s"),
        (figures.duration, 59_960, f"1{GAP}min{GAP}00{GAP}s"),
        (figures.duration, 527_000, f"8{GAP}min{GAP}47{GAP}s"),
        (figures.duration, 7_500_000, f"2{GAP}h{GAP}05{GAP}min"),
        (figures.duration, None, "–"),
        (figures.rough, 300, f"1{GAP}s"),
        (figures.rough, 40_000, f"40{GAP}s"),
        (figures.rough, 251_000, f"4{GAP}min"),
        (figures.rough, 3_590_000, f"1{GAP}h{GAP}00{GAP}min"),
        (figures.rough, None, "–"),
        (figures.thousands, 999, "999"),
        (figures.thousands, 1080, "1\u202f080"),
        (figures.thousands, None, "–"),
    ],
)
def test_a_figure_has_one_form(format_figure: Any, value: Any, text: str) -> None:
    assert format_figure(value) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (-0.039, "pts", f"−3.9{GAP}pts"),
        (0.0004, "pts", f"±0.0{GAP}pts"),
        (0.007, "pts", f"+0.7{GAP}pts"),
        (-0.242, "pct", "−24.2%"),
        (-0.18, "score", "−0.18"),
        (0, "count", "±0"),
        (2, "count", "+2"),
        (-2900, "ms", f"−2.9{GAP}s"),
        (None, "pts", "–"),
    ],
)
def test_a_change_carries_its_sign(value: float | None, unit: str, text: str) -> None:
    assert figures.delta(value, unit) == text


def test_a_change_in_an_unknown_unit_is_refused() -> None:
    with pytest.raises(ValueError, match="furlongs"):
        figures.delta(1, "furlongs")


@pytest.mark.parametrize(
    ("value", "scale", "text"),
    [
        (7, 10, "raw 7.0 of 10"),
        (75, 100, "raw 75.0 of 100"),
        (0.745, 1, "raw 0.74 of 1"),
        (2.5, 3.5, "raw 2.5 of 3.5"),
        (None, 10, ""),
    ],
)
def test_a_raw_score_names_its_scale(value: float | None, scale: float, text: str) -> None:
    assert figures.raw(value, scale) == text


@pytest.mark.parametrize(
    ("passed", "text"),
    [
        (timedelta(0), "just now"),
        (timedelta(seconds=40), f"40{GAP}s ago"),
        (timedelta(minutes=12), f"12{GAP}min ago"),
        (timedelta(hours=5, minutes=50), f"5{GAP}h ago"),
        (timedelta(days=1), "1 day ago"),
        (timedelta(days=8), "8 days ago"),
        (timedelta(days=31), "11 Apr 2026"),
        (-timedelta(seconds=3), "just now"),
    ],
)
def test_an_age_uses_its_largest_unit(passed: timedelta, text: str) -> None:
    assert figures.age(NOW - passed, NOW) == text


def test_an_age_carries_the_exact_time() -> None:
    with timezone.override(UTC):
        html = render("{{ then|age }}", then=NOW)
    assert html.startswith(
        '<time datetime="2026-05-12T09:11:00+00:00" title="12 May 2026, 09:11:00'
    )
    assert render("{{ then|age }}", then=None) == "–"


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [(1, "case", "1 case"), (0, "case", "0 cases"), (2, "child,children", "2 children")],
)
def test_a_count_precedes_its_noun(count: int, noun: str, text: str) -> None:
    assert figures.counted(count, noun) == text


@pytest.mark.parametrize(
    "source",
    ['{% icon "v-perhaps" %}', '{% verdict "perhaps" %}', "{% dist counts %}", '{% shape "x" %}'],
)
def test_an_unknown_mark_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match=r"sprite has|has no mark"):
        render(source, counts={"perhaps": 1})


def test_a_verdict_is_a_shape_and_a_word() -> None:
    assert render('{% verdict "pass" "0.77" size="large" %}') == (
        '<span class="verdict" data-verdict="pass" data-size="large">'
        '<svg class="icon" aria-hidden="true"><use href="#v-pass"/></svg>Pass 0.77</span>'
    )
    assert ">Passed</span>" in render('{% gate_verdict "passed" %}')
    assert ">Cancelled</span>" in render('{% status "stopped" %}')
    assert ">Waiting</span>" in render('{% verdict "pending" %}')


def test_a_distribution_lists_its_counts_in_order_without_zeros() -> None:
    counts = {"fail": 8, "pass": 90, "borderline": 21, "error": 0}
    html = render("{% dist counts %}{% tally counts %}", counts=counts)
    assert 'aria-label="90 pass, 21 borderline, 8 fail"' in html
    assert '<rect data-verdict="borderline" x="75.63%" width="17.65%" height="100%"/>' in html
    assert "<b>21</b> borderline</li>" in html
    assert "errored" not in html
    assert 'aria-label="nothing yet"' in render("{% dist counts %}", counts={})


def test_a_bar_never_reaches_a_limit_its_share_missed() -> None:
    html = render('{% bar 0.79999 0.8 "fail" %}')
    assert '<rect class="fill" width="79.99%"' in html
    assert '<line x1="80%" x2="80%"' in html
    assert "<line" not in render("{% bar none %}", none=None)


def test_a_gate_shows_share_threshold_and_state() -> None:
    html = render('{% gate "Cases" 0.813 0.85 "at_risk" "106 of the last 114 must pass" %}')
    assert "81.3% <small>so far, needs 85%</small>" in html
    assert "At risk" in html
    assert "106 of the last 114 must pass" in html
    row = render('<dl class="gates">{% gate_row "Metrics" none 0.8 "open" %}</dl>', none=None)
    assert '<dd class="num">–</dd>' in row
    assert "Not evaluated" in row


@pytest.mark.parametrize(
    ("outcomes", "repetitions", "label"),
    [
        ("1101", 1, "3 of 4 outcomes met"),
        ([True, False], 1, "1 of 2 outcomes met"),
        ([1.0, 0.67, 0.0], 3, "1 of 3 outcomes met in every repetition, 1 in some"),
    ],
)
def test_pips_count_how_many_outcomes_were_met(outcomes: Any, repetitions: int, label: str) -> None:
    html = render("{% pips outcomes n %}", outcomes=outcomes, n=repetitions)
    assert f'aria-label="{label}"' in html


def test_pips_of_a_case_without_outcomes_are_missing() -> None:
    assert render("{% pips outcomes %}", outcomes="") == '<span class="quiet">–</span>'
    assert 'data-met="some"' in render("{% pips outcomes 2 %}", outcomes=[0.5])


def test_repetitions_are_read_out() -> None:
    html = render("{% reps verdicts %}", verdicts=["pass", "borderline", "running"])
    assert 'aria-label="pass, borderline, running"' in html
    assert html.count("<svg") == 3


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        (("0.0426", "0.0605"), ("$0.043", "$0.060")),  # $0.103
        (("0.0774", "0.0774"), ("$0.078", "$0.077")),  # $0.155
        (("1.4999", "0.405"), ("$1.50", "$0.40")),  # $1.90
        (("0.0004", "0.2"), ("<$0.001", "$0.200")),  # $0.200
        (("0", "8.625"), ("$0", "$8.63")),
        ((None, "0.25"), ("–", "$0.250")),
        ((None, None), ("–", "–")),
    ],
)
def test_the_parts_of_a_sum_add_up_as_they_are_shown(parts: Any, shown: tuple[str, str]) -> None:
    assert figures.money_parts(*(part and Decimal(part) for part in parts)) == shown


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        ((None, "0.00018"), ("–", "$0.0002")),  # ≥ $0.0002
        (("0.0024", "0.2"), ("$0.002", "$0.200")),  # ≥ $0.202
    ],
)
def test_so_do_the_known_parts_of_a_sum_without_all_prices(
    parts: Any, shown: tuple[str, str]
) -> None:
    known = (part and Decimal(part) for part in parts)
    assert figures.money_parts(*known, is_partial=True) == shown


def test_a_trend_names_its_ends_and_its_threshold() -> None:
    trend = SimpleNamespace(target="mini", scores=[0.779, 0.81, 0.826])
    html = render('{% spark trend 0.8 "pass" %}', trend=trend)
    label = "Mean score of mini in its last 3 runs, from 77.9% to 82.6%, threshold 80%"
    assert f'aria-label="{label}"' in html
    assert 'points="2.0,23.0 60.0,11.1 118.0,5.0"' in html


def test_a_meter_shows_a_score_against_its_bands() -> None:
    html = render('{% meter 0.744 "resolution" %}')
    assert 'low="0.6" high="0.8" optimum="1" aria-label="resolution" value="0.744' in html
    assert ">0.74</meter>" in html
    assert render('{% meter none "resolution" %}', none=None) == "<span></span>"


def test_a_meter_whose_pass_band_is_its_top_still_has_a_middle() -> None:
    assert 'high="0.999999999"' in render('{% meter 0.9 "strict" 0.6 1 %}')


def test_a_metric_carries_its_label() -> None:
    html = render('{% metric "Grounding fidelity" 2.0 %}')
    assert '<small data-tone="bad">poor</small>' in html
    assert '<span class="num">2.0</span>' in html


def test_user_text_is_escaped_everywhere() -> None:
    nasty = '"><script>alert(1)</script>'
    sources = (
        '{% verdict "pass" t %}',
        "{% meter 0.5 t %}",
        "{% metric t 3 %}",
        "{% mosaic items %}",
        "{% panel t note=t %}{{ t }}{% endpanel %}",
        '{% gate_row t 0.5 0.8 "open" %}',
        "{% turns turns agent=t %}",
        "{% trace steps %}",
        "{{ t|markdown }}",
    )
    html = render(
        "".join(sources),
        t=nasty,
        items=[("pass", nasty, nasty)],
        turns=[{"role": "user", "content": nasty}, {"role": "assistant", "content": nasty}],
        steps=[{"type": "tool", "name": nasty, "input": {"a": nasty}, "error": nasty}],
    )
    assert "<script" not in html


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("**bold**", "<p><strong>bold</strong></p>"),
        ("# Title", "<p><strong>Title</strong></p>"),
        ("a\nb", "<p>a<br>b</p>"),
        ("- one", "<ul><li>one</li></ul>"),
        (
            "![x](https://evil.example/p.png)",
            '<p>!<a href="https://evil.example/p.png" rel="noopener noreferrer nofollow">x</a></p>',
        ),
        ("[x](javascript:alert(1))", "<p>[x](javascript:alert(1))</p>"),
    ],
)
def test_markdown_of_a_model_is_shown_without_harmful_parts(text: str, html: str) -> None:
    assert render("{{ text|markdown }}", text=text) == html


def test_a_markdown_table_has_no_style() -> None:
    html = render("{{ text|markdown }}", text="|a|b|\n|:-|-:|\n|1|2|")
    assert "style" not in html
    assert "<td>2</td>" in html


def test_short_rows_of_a_table_are_filled_up_but_make_no_long_page_of_a_short_text() -> None:
    html = render("{{ text|markdown }}", text="|a|b|\n|-|-|\n|1|\n|2|3|")
    assert html.count("<td>") == 4
    broad = f"|{'a|' * 256}\n|{'-|' * 256}\n" + "|\n" * 254
    assert len(render("{{ text|markdown }}", text=broad * 3)) < 10 * len(broad * 3)


@pytest.mark.parametrize("text", ["*" * 50_001, "[" * 2_500])
def test_a_text_that_takes_long_to_read_stays_as_it_is_written(text: str) -> None:
    assert render("{{ text|markdown }}", text=text) == f"<pre>{text}</pre>"


def test_a_text_of_many_links_is_formatted() -> None:
    html = render("{{ text|markdown }}", text="[a](https://a.example) " * 500)
    assert html.count("<a ") == 500


def test_only_the_first_texts_of_a_long_conversation_are_formatted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(markdown, "MAX_LENGTH", 20)
    said = [{"role": "assistant", "content": f"**Answer {number}**"} for number in range(3)]

    html = render("{% turns messages %}", messages=said)

    assert "<strong>Answer 0</strong>" in html
    assert "<strong>Answer 1</strong>" not in html
    assert html.count("<pre>**Answer 2**</pre>") == 2


def test_a_conversation_keeps_the_raw_text_of_the_agent() -> None:
    html = render(
        '{% turns messages agent="support-agent" %}',
        messages=[
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "**Hello**"},
            {"role": "tool", "content": {"a": 1}},
            {"role": "assistant", "content": ""},
        ],
    )
    assert "Output, support-agent" in html
    assert "<strong>Hello</strong>" in html
    assert "<pre>**Hello**</pre>" in html
    assert "&quot;a&quot;: 1" in html
    assert "Empty text" in html


def test_a_path_breaks_between_its_names() -> None:
    html = render("{{ path|breakable_path }}", path="safety/<b>/tone")
    assert html == "safety/<wbr>&lt;b&gt;/<wbr>tone"


def test_a_trace_places_its_steps_on_one_line_of_time() -> None:
    html = render(
        "{% trace steps %}",
        steps=[
            {
                "type": "model",
                "name": "plan",
                "started_ms": 0,
                "duration_ms": 400,
                "input_tokens": 1412,
                "output_tokens": 96,
            },
            {
                "type": "tool",
                "name": "find_order",
                "input": {"order": "FO-1"},
                "output": "found",
                "duration_ms": 600,
            },
            {"type": "tool", "name": "quote", "error": "timed out"},
        ],
    )
    assert "1\u202f412 tokens in, 96 tokens out" in html
    assert 'x="40.00%" width="60.00%"' in html
    assert '<span class="quiet">FO-1</span>' in html
    assert '<pre data-tone="bad">timed out</pre>' in html
    assert '<span class="num">–</span>' in html


@pytest.mark.parametrize(
    ("view", "section"),
    [
        ("home", "suites"),
        ("runs:suite-cases", "suites"),
        ("runs:case", "suites"),
        ("runs:run", "runs"),
        ("runs:result", "runs"),
        ("runs:target-list", "targets"),
        ("evaluators:language-model", "models"),
        ("evaluators:gallery", "evaluators"),
        ("access:members", "members"),
        ("access:account", "account"),
        ("runs:search", "search"),
    ],
)
def test_the_sidebar_marks_the_section_of_the_page(view: str, section: str) -> None:
    request = RequestFactory().get("/")
    request.resolver_match = SimpleNamespace(view_name=view)
    names = ("suites", "runs", "targets", "models", "evaluators", "members", "account", "search")
    marked = [name for name in names if render("{% current name %}", request=request, name=name)]
    assert marked == [section]


@pytest.mark.parametrize(
    ("agent", "key"),
    [
        ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7)", "⌘"),
        ("Mozilla/5.0 (X11; Linux)", "Ctrl"),
        ("", "Ctrl"),
    ],
)
def test_shortcuts_name_the_key_of_the_readers_system(agent: str, key: str) -> None:
    request = RequestFactory().get("/", headers={"User-Agent": agent})
    html = render('{% include "components/keys.html" %}', request=request)
    assert f"<kbd>{key}</kbd> <kbd>K</kbd>" in html


def test_choices_of_the_browser_are_rendered_from_its_cookies() -> None:
    request = RequestFactory().get("/")
    request.COOKIES["theme"] = "dark"
    html = render('{% include "components/theme.html" %}', request=request)
    assert 'value="dark" autocomplete="off" checked' in html
    assert html.count("checked") == 1
    assert 'value="auto" autocomplete="off" checked' in render(
        '{% include "components/theme.html" %}'
    )


class Sample(forms.Form):
    name = forms.CharField(help_text="Shown in the sidebar")
    note = forms.CharField(required=False)
    on = forms.BooleanField(required=False, label="Send trace headers")
    kind = forms.ChoiceField(choices=[("a", "One")], widget=forms.RadioSelect)
    secret = forms.CharField(widget=forms.HiddenInput, required=False)


def test_a_field_ties_label_help_and_errors_to_its_input() -> None:
    form = Sample({"note": "kept"})
    assert not form.is_valid()
    name = render("{% field form.name %}", form=form)
    assert '<label for="id_name">Name</label>' in name
    assert 'aria-invalid="true"' in name
    assert 'aria-describedby="id_name_helptext id_name_error"' in name
    assert 'id="id_name_helptext">Shown in the sidebar' in name
    assert 'id="id_name_error"><li>This field is required.' in name
    assert 'data-tone="bad"' in name
    note = render("{% field form.note %}", form=form)
    assert "optional" in note
    assert 'value="kept"' in note
    assert 'class="check"' in render("{% field form.on %}", form=form)
    assert "<legend>Kind</legend>" in render("{% field form.kind %}", form=form)
    assert "label" not in render("{% field form.secret %}", form=form)


def test_the_errors_of_a_form_lead_to_their_fields() -> None:
    form = Sample({})
    form.add_error(None, "Somebody saved a newer version.")
    html = render('{% include "components/form_errors.html" %}', form=form)
    assert "Somebody saved a newer version." in html
    assert '<a href="#id_name">Name</a>: This field is required.' in html
    assert render('{% include "components/form_errors.html" %}', form=Sample()) == ""


def test_the_includes_show_their_values() -> None:
    html = render(
        """
        {% empty_state "i-suites" "None" "/a" "Go" %}T{% endempty_state %}
        {% banner "bad" "v-fail" "What." %}Detail.{% endbanner %}
        {% confirm "c" "Cancel?" url="/b" action="Yes" keep="No" %}T{% endconfirm %}
        {% include "components/facts.html" with facts=facts %}
        {% include "components/checklist.html" with outcomes=outcomes total=350 %}
        {% include "components/code.html" with id="t" title="Request" text="{}" %}
        {% include "components/chip.html" with chip=chip is_verdict=True %}
        {% panel "Title" note="n" body=True %}inside{% endpanel %}
        """,
        facts=[("Spent", "$2.97")],
        chip={
            "url": "?v=fail",
            "label": "Fail",
            "count": 7,
            "is_on": True,
            "value": "fail",
            "tone": "",
            "icon": "",
        },
        outcomes=[{"text": "Says when", "passed": False, "justification": "Two days"}],
        marks="",
    )
    for part in (
        "<h2>None</h2>",
        'role="alert"',
        'commandfor="c" command="close">No</button>',
        'action="/b" id="c-form"',
        "<dt>Spent</dt><dd>$2.97</dd>",
        "<small>Missed</small><blockquote>Two days</blockquote>",
        "The first 1 of 350 outcomes.",
        'data-copy="#t"',
        'aria-current="true" data-verdict="fail"',
        '<section class="panel" id="title" aria-labelledby="title-title">',
    ):
        assert part in html, part


def test_a_long_text_scrolls_and_a_short_one_does_not() -> None:
    assert render("{{ text|whole:'Reasoning' }}", text="a < b") == "a &lt; b"
    assert render("{{ text|whole:'Reasoning' }}", text="<b>" + "x" * 1_000) == (
        '<span class="long-text" tabindex="0" role="region" aria-label="Reasoning">&lt;b&gt;'
        + "x" * 1_000
        + "</span>"
    )


def test_of_a_very_long_text_a_page_shows_the_beginning() -> None:
    html = render("{{ text|whole }}", text="#" * 1_000_000)
    assert html.count("#") == 60_000
    assert "# … 940\u202f000 characters more</span>" in html


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
    text = render(PROSE, rule="equals", case=True, length=7)
    assert text == "<p>Rule <code>equals</code>, any case; 7 characters.</p>"
    text = render(PROSE, rule="equals", case=False, length=0)
    assert text == "<p>Rule <code>equals</code>.</p>"


def test_prose_leaves_the_punctuation_of_values_alone() -> None:
    assert render("{% prose %}from {{ name }}{% endprose %}", name=".net , :)") == "from .net , :)"


def test_prose_writes_a_value_of_much_white_space_as_one_space() -> None:
    value = f"a{' ' * 500_000}b{' ' * 500_000}"
    assert (
        render(PROSE, rule=value, case=True, length=0) == "<p>Rule <code>a b </code>, any case.</p>"
    )


def test_a_line_of_a_diff_adds_no_white_space() -> None:
    pieces = [TextPart("keep ", is_changed=False), TextPart("<new>", is_changed=True)]
    assert diff_line("good", pieces) == (
        '<p data-tone="good"><span class="unseen">after: </span>keep <ins>&lt;new&gt;</ins></p>'
    )
    assert diff_line("same", [TextPart(" a  b", is_changed=True)]) == "<p> a  b</p>"


def test_a_text_is_cut_whatever_it_is_made_of() -> None:
    template = "{{ text|truncatechars:6 }}"
    assert render(template, text="<b>refund</b>") == "&lt;b&gt;re…"
    assert render(template, text="cafe\u0301!") == "café!"
    marks = "\u0301" * 400_000 + "\u0323" * 400_000
    cut = render(template, text=f"refund{marks} of a parcel")
    assert (len(cut) < 60, cut[-1]) == (True, "…")


@pytest.mark.parametrize(
    ("expected", "output", "lacks", "adds"),
    [
        ("Your refund of $30", "Your refund of $25", ["30"], ["25"]),
        ("same", "same", [], []),
        ("", "new", [], ["new"]),
        # Signs that repeat, as many as a score keeps.
        ("!" * 2_000, "!#" * 1_000, ["!" * 1_000], ["#"] * 1_000),
    ],
)
def test_an_answer_is_compared_word_by_word(
    expected: str, output: str, lacks: list[str], adds: list[str]
) -> None:
    shown = difference({"expected": expected, "output": output})
    for parts, whole, changed in ((shown.expected, expected, lacks), (shown.output, output, adds)):
        assert "".join(part.text for part in parts) == whole
        assert "".join(part.text for part in parts if part.is_changed) == "".join(changed)


@pytest.mark.parametrize(
    ("rate", "parts"),
    [
        ((None, None, None), []),
        ((0.5, None, None), ['class="fill" width="50.00%"']),
        ((0.9, 0.75, 1.0), ['width="90.00%"', 'x1="75.00%" x2="100.00%"']),
    ],
)
def test_a_rate_is_a_bar_with_its_interval(rate: Any, parts: list[str]) -> None:
    html = render("{% rate_bar share low high %}", share=rate[0], low=rate[1], high=rate[2])
    assert all(part in html for part in parts)
    assert bool(html) == bool(parts)
    assert html.count("<line") == (0 if rate[1] is None else 3)
