"""Edit a suite's evaluator tree over HTTP: the whole form, the buttons of its rows, one evaluator, a new one."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from evaluators.scoring.tree import EvaluatorSpec, below, walk
from runs.models.suites import Suite, SuiteDraft
from runs.suites.drafts import get_draft
from runs.suites.edits import nodes_with_paths
from tests.suites.contents import tree_of
from tests.support.factories import (
    change_evaluator,
    change_suite,
    make_model,
    make_suite,
    make_target,
)
from tests.support.members import make_client, make_member

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]
PAGE = "/suites/support/evaluators/"
KEEP = f"{PAGE}keep/"
HTML = "<script>alert(1)</script>"


def leaf(name: str, weight: float = 1.0, **marks: Any) -> EvaluatorSpec:
    return EvaluatorSpec(name=name, kind="llm_judge", weight=weight, **marks)


def group(name: str, *children: EvaluatorSpec, **aggregator: Any) -> EvaluatorSpec:
    config = {"aggregator": {"type": "weighted_average", **aggregator}}
    return EvaluatorSpec(name=name, kind="composite", config=config, children=children)


TREE = group(
    "suite",
    group("safety", leaf("no_pii"), leaf("no_harm"), type="minimum"),
    group("quality", leaf("facts", 3), leaf("tone")),
    leaf("length", 1),
)


@pytest.fixture
def ada(db: None) -> User:
    return make_member("editor", "ada")


@pytest.fixture
def suite(ada: User) -> Suite:
    return make_suite(slug="support", title="Support", tree=TREE.as_json())


@pytest.fixture
def client(suite: Suite, ada: User) -> Client:
    return make_client(ada)


def draft_content(suite: Suite, ada: User) -> Any:
    return get_draft(suite, ada).content


def text_of(response: Any) -> str:
    return " ".join(response.content.decode().split())


@pytest.fixture
def ids(suite: Suite, ada: User) -> dict[str, str]:
    content = draft_content(suite, ada)
    return {at: node["id"] for at, node in nodes_with_paths(content["evaluators"])}


def sent_form(client: Client) -> dict[str, Any]:
    """Return what a browser would send of the form untouched."""
    page = client.get(PAGE)
    sent: dict[str, Any] = {"stamp": page.context["draft"].stamp}
    for key, one in page.context["form"].fields.items():
        sent |= {f"{key}.weight": one.weight, f"{key}.below": one.below}
        sent |= {f"{key}.required": "on"} if one.required else {}
        sent |= {f"{key}.negate": "on"} if one.negate else {}
        if one.type:
            sent |= {f"{key}.type": one.type, f"{key}.gates": sorted(one.gates)}
            names = ("gate_threshold", "remainder", "threshold", "share")
            sent |= {f"{key}.{name}": getattr(one, name) for name in names}
    sent |= {name: one.text for name, one in page.context["thresholds"].items()}
    return sent


def keep(client: Client, **changes: Any) -> Any:
    sent = sent_form(client) | {name.replace("__", "."): value for name, value in changes.items()}
    return client.post(KEEP, {name: value for name, value in sent.items() if value is not None})


def nodes(suite: Suite, ada: User) -> dict[str, EvaluatorSpec]:
    return dict(walk(tree_of(draft_content(suite, ada))))


def test_sending_the_form_untouched_begins_no_draft(client: Client) -> None:
    assert keep(client).status_code == 302
    assert not SuiteDraft.objects.exists()


def test_one_form_changes_weights_marks_rules_and_thresholds_at_once(
    client: Client, suite: Suite, ada: User, ids: dict[str, str]
) -> None:
    root, quality, facts, tone = (ids[p] for p in ("", "quality", "quality/facts", "quality/tone"))
    answer = keep(
        client,
        **{
            f"{facts}.weight": "4.5",
            f"{tone}.required": "on",
            f"{tone}.below": "0.7",
            f"{tone}.negate": "on",
            f"{quality}.type": "all_or_nothing",
            f"{quality}.threshold": "0.65",
            f"{root}.type": "safety_gate",
            f"{root}.gates": [ids["safety"]],
            f"{root}.gate_threshold": "0.5",
            f"{root}.remainder": "remaining",
            "borderline_threshold": "0.65",
            "cases_pass_threshold": "85",
            "max_latency_increase_pct": "25",
        },
    )
    assert answer.status_code == 302
    found = nodes(suite, ada)
    assert found["quality/facts"].weight == 4.5
    assert (found["quality/tone"].required_below, found["quality/tone"].negate) == (0.7, True)
    assert found["quality"].aggregator.as_json() == {"type": "all_or_nothing", "threshold": 0.65}
    assert found[""].aggregator.as_json() == {
        "type": "safety_gate",
        "required": ["safety"],
        "gate_threshold": 0.5,
        "remainder": "remaining",
    }
    policy = draft_content(suite, ada)["policy"]
    assert (policy["borderline_threshold"], policy["cases_pass_threshold"]) == (0.65, 0.85)
    assert policy["max_latency_increase_pct"] == 25
    suite.refresh_from_db()
    assert (suite.version, suite.policy.borderline_threshold) == (1, 0.6)


def test_shares_of_the_draft_stand_beside_those_they_were(
    client: Client, ids: dict[str, str]
) -> None:
    keep(client, **{f"{ids['quality/facts']}.weight": "1"})
    page = client.get(PAGE)
    share = re.search(
        rf'id="{ids["quality/facts"]}-share" data-changed ?>(.*?)</div>', text_of(page)
    )
    assert share is not None
    assert "<del>" in share[1]
    assert "25.0%" in share[1]
    assert "16.6%" in share[1]
    assert "lowest score counts" in text_of(page)
    assert "Draft saved</span>, 1 change" in text_of(page)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("weight", "-1", "Enter a number of 0 or more."),
        ("weight", "NaN", "Enter a number of 0 or more."),
        ("weight", "inf", "Enter a number of 0 or more."),
        ("weight", "", "Enter a number of 0 or more."),
        ("weight", "9" * 100_000, "Enter a number of 0 or more."),
        ("weight", "1e9", "Enter at most 1,000,000"),
        ("weight", HTML, "Enter a number of 0 or more."),
        ("below", "1.5", "Enter a number from 0 to 1."),
        ("below", "nan", "Enter a number from 0 to 1."),
    ],
)
def test_a_number_that_is_none_is_refused_at_its_evaluator_and_nothing_is_kept(
    client: Client, ids: dict[str, str], field: str, value: str, said: str
) -> None:
    facts = ids["quality/facts"]
    answer = keep(
        client, **{f"{facts}.required": "on", f"{facts}.{field}": value, "pass_threshold": "0.9"}
    )
    assert answer.status_code == 422
    assert said in str(answer.context["form"].fields[facts].errors[field])
    assert HTML not in answer.content.decode()
    assert answer.context["thresholds"]["pass_threshold"].text == "0.9"
    assert not SuiteDraft.objects.exists()


@pytest.mark.parametrize(
    ("changes", "at", "said"),
    [
        ({"quality.type": "safety_gate"}, "quality", "at least one"),
        ({"quality.type": "code_judge"}, "quality", "Choose the script first"),
        ({"quality.type": "all_or_nothing", "quality.threshold": "2"}, "quality", "from 0 to 1"),
        ({"quality/facts.weight": "0", "quality/tone.weight": "0"}, "quality", "sum to 0"),
        (
            {
                "quality.type": "safety_gate",
                "quality.gates": ["quality/facts", "quality/tone"],
                "quality.remainder": "remaining",
            },
            "quality",
            "at least one that is not a gate",
        ),
    ],
)
def test_a_rule_that_cannot_be_is_refused_at_its_composite(
    client: Client, ids: dict[str, str], changes: dict[str, Any], at: str, said: str
) -> None:
    named = {
        f"{ids[key.rpartition('.')[0]]}.{key.rpartition('.')[2]}": [ids[one] for one in value]
        if isinstance(value, list)
        else value
        for key, value in changes.items()
    }
    answer = keep(client, **named)
    assert answer.status_code == 422
    assert said in " ".join(answer.context["form"].fields[ids[at]].errors.values())
    assert not SuiteDraft.objects.exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pass_threshold", "1.1"),
        ("pass_threshold", "0.5"),
        ("borderline_threshold", "nan"),
        ("metrics_pass_threshold", "101"),
        ("max_latency_increase_pct", "-1"),
    ],
)
def test_a_threshold_out_of_its_range_is_refused_at_its_field(
    client: Client, name: str, value: str
) -> None:
    answer = keep(client, **{name: value})
    assert answer.status_code == 422
    assert any(one.error for one in answer.context["thresholds"].values())
    assert not SuiteDraft.objects.exists()


@pytest.mark.parametrize(
    ("action", "order"),
    [
        (
            "quality up",
            "quality quality/facts quality/tone safety safety/no_pii safety/no_harm length",
        ),
        (
            "length into",
            "safety safety/no_pii safety/no_harm quality quality/facts quality/tone quality/length",
        ),
        (
            "quality/tone out",
            "safety safety/no_pii safety/no_harm quality quality/facts tone length",
        ),
        (
            "quality/tone group",
            "safety safety/no_pii safety/no_harm quality quality/facts quality/group quality/group/tone length",
        ),
        (
            "length duplicate",
            "safety safety/no_pii safety/no_harm quality quality/facts quality/tone length length_2",
        ),
        ("safety remove", "quality quality/facts quality/tone length"),
        (
            "length move @quality 0",
            "safety safety/no_pii safety/no_harm quality quality/length quality/facts quality/tone",
        ),
    ],
)
def test_a_button_of_a_row_changes_the_draft_and_keeps_what_was_entered(
    client: Client, suite: Suite, ada: User, ids: dict[str, str], action: str, order: str
) -> None:
    who, _, rest = action.partition(" ")
    words = [ids[word[1:]] if word.startswith("@") else word for word in rest.split()]
    answer = keep(client, do=" ".join([ids[who], *words]), pass_threshold="0.9")
    assert answer.status_code == 302
    assert [path for path in nodes(suite, ada) if path] == order.split()
    assert draft_content(suite, ada)["policy"]["pass_threshold"] == 0.9
    assert client.get(answer["Location"].partition("#")[0]).status_code == 200


@pytest.mark.parametrize(
    "action",
    [
        "safety up",
        "length down",
        "length out",
        " remove",
        "safety move @safety 0",
        "quality move @quality/facts 0",
        "safety/no_pii move @ 999999999999999999999999",
        "length fly",
        "length move",
        "nobody up",
        "../x edit",
        "é add",
        "\x00 try",
        "quality move nobody 0",
    ],
)
def test_what_a_row_cannot_do_is_refused_and_the_tree_stays(
    client: Client, ids: dict[str, str], action: str
) -> None:
    who, _, rest = action.partition(" ")
    words = [ids[word[1:]] if word.startswith("@") else word for word in rest.split()]
    answer = keep(client, do=" ".join([ids.get(who, who), *words]))
    assert answer.status_code == 422
    assert answer.context["form"].refusals
    assert not SuiteDraft.objects.exists()


def test_a_place_past_the_end_is_the_end(client: Client, ids: dict[str, str]) -> None:
    answer = keep(client, do=f"{ids['safety/no_pii']} move {ids['']} 9999")
    assert answer.status_code == 302


def test_a_form_of_an_older_draft_is_not_applied_and_keeps_what_was_entered(
    client: Client, suite: Suite, ada: User, ids: dict[str, str]
) -> None:
    old = sent_form(client)
    keep(client, **{f"{ids['length']}.weight": "7"})
    answer = client.post(KEEP, old | {f"{ids['length']}.weight": "2"})
    assert answer.status_code == 409
    assert "changed in another tab" in text_of(answer)
    assert answer.context["form"].fields[ids["length"]].weight == "2"
    assert nodes(suite, ada)["length"].weight == 7
    again = keep(client, **{f"{ids['length']}.weight": "2"})
    assert again.status_code == 302
    assert nodes(suite, ada)["length"].weight == 2


def test_sending_the_same_form_twice_duplicates_once(
    client: Client, suite: Suite, ada: User, ids: dict[str, str]
) -> None:
    sent = sent_form(client) | {"do": f"{ids['length']} duplicate"}
    assert [client.post(KEEP, sent).status_code for _ in range(2)] == [302, 409]
    assert [path for path in nodes(suite, ada) if "length" in path] == ["length", "length_2"]


def test_a_viewer_reads_the_tree_and_cannot_post(suite: Suite) -> None:
    client = make_client(make_member("viewer", "vera"))
    page = text_of(client.get(PAGE))
    assert "no_harm" in page
    assert "<select" not in page
    assert client.post(KEEP, {}).status_code == 403


def test_thresholds_are_on_the_scale_of_the_suite(client: Client, suite: Suite, ada: User) -> None:
    change_suite(suite, scale=100)
    assert keep(client, pass_threshold="85.5").status_code == 302
    assert draft_content(suite, ada)["policy"]["pass_threshold"] == 0.855


def test_the_gallery_of_a_suite_leads_to_a_form_that_adds(
    client: Client, suite: Suite, ada: User, ids: dict[str, str]
) -> None:
    quality = ids["quality"]
    gallery = text_of(client.get(f"{PAGE}add/?into={quality}"))
    assert f'href="{PAGE}add/rubric/?into={quality}"' in gallery
    address = f"{PAGE}add/expected_output/?into={quality}"
    form = client.get(address).context["form"]
    sent = {"stamp": get_draft(suite, ada).stamp, "name": "match", "weight": "2", "parent": quality}
    for bound in form.settings:
        value = bound.field.prepare_value(bound.value())
        if value is not None and value is not False:
            sent[bound.html_name] = str(value)
    taken = client.post(address, sent | {"name": "facts"})
    assert taken.status_code == 422
    assert "already called “facts”" in text_of(taken)
    assert client.post(address, sent).status_code == 302
    assert client.post(address, sent | {"name": "again"}).status_code == 409
    found = nodes(suite, ada)
    assert (found["quality/match"].kind, found["quality/match"].weight) == ("expected_output", 2)
    assert "quality/again" not in found


def test_a_panel_of_models_and_agents_is_put_together_from_those_there_are(
    client: Client, suite: Suite, ada: User, ids: dict[str, str]
) -> None:
    make_model(slug="juno-2")
    make_target(name="fact checker", kind="http", config={"url": "http://127.0.0.1:9/ask"})
    make_target(name="recorded answers")
    address = f"{PAGE}add/deliberation/?into={ids['quality']}"
    page = text_of(client.get(address))
    assert "Available: fact checker." in page
    assert "recorded answers" not in page
    sent = {
        "stamp": get_draft(suite, ada).stamp,
        **{"name": "panel", "weight": "1", "parent": ids["quality"]},
        **{"settings-rounds": "2", "settings-score_by": "midpoint", "settings-models": "juno-2"},
    }

    alone = client.post(address, sent)
    assert alone.status_code == 422
    assert "one judge cannot deliberate" in text_of(alone)
    both = client.post(address, sent | {"settings-agents": "fact checker\r\nfact checker\r\n"})

    assert both.status_code == 302
    config = nodes(suite, ada)["quality/panel"].config
    assert (config["models"], config["agents"]) == (["juno-2"], ["fact checker", "fact checker"])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a/b", "cannot be a name"),
        ("x" * 100_000, "100 is the limit"),
        ("tone", "already called “tone”"),
        ("\N{ZERO WIDTH SPACE}", "one line"),
        ("", "required"),
    ],
)
def test_a_name_that_cannot_be_is_refused_at_the_name(
    client: Client, suite: Suite, ada: User, ids: dict[str, str], name: str, said: str
) -> None:
    address = f"{PAGE}{ids['quality/facts']}/"
    sent = {"stamp": get_draft(suite, ada).stamp, "name": name, "weight": "1"}
    sent |= {"settings-samples": "1", "settings-samples_by": "median"}
    answer = client.post(address, sent)
    assert answer.status_code == 422
    assert said in str(answer.context["form"].marks.errors["name"])
    assert not SuiteDraft.objects.exists()


def test_one_evaluator_is_edited_with_its_settings_and_its_problems_stand_at_their_field(
    client: Client, suite: Suite, ada: User, ids: dict[str, str]
) -> None:
    make_model(slug="juno-2")
    address = f"{PAGE}{ids['quality/facts']}/"
    page = client.get(address)
    assert '<option value="juno-2">' in text_of(page)
    sent = {"stamp": get_draft(suite, ada).stamp, "name": HTML.replace("/", ""), "weight": "2.5"}
    sent |= {"settings-samples": "3", "settings-samples_by": "mean", "settings-model": "juno-2"}
    refused = client.post(address, sent | {"settings-prompt": "{{nothing}}"})
    assert "is not a variable" in str(refused.context["form"].settings.errors["prompt"])
    assert client.post(address, sent).status_code == 302
    node = nodes(suite, ada)[below("quality", sent["name"])]
    assert (node.weight, node.config["samples"], node.config["model"]) == (2.5, 3, "juno-2")
    assert sent["name"] not in client.get(PAGE).content.decode()
    draft = SuiteDraft.objects.get()
    draft.content["evaluators"]["children"][1]["children"][0]["config"]["model"] = "gone"
    draft.save()
    assert "there is no language model" in str(
        client.get(address).context["form"].settings.errors["model"]
    )
    # The page asks for what is wrong with the draft after it is shown; without script by a link.
    problem = "there is no language model"
    page = client.get(PAGE).content.decode()
    assert problem not in page
    address = re.search(r'hx-get="([^"]+/draft/problems/)"', page)
    assert address
    answer = client.get(address[1]).content.decode()
    row = f'id="{draft.content["evaluators"]["children"][1]["children"][0]["id"]}-problems"'
    assert problem in answer.partition(row)[0]
    assert problem in answer.partition(row)[2]
    assert row in page
    assert text_of(client.get(f"{PAGE}?check")).count(problem) == 2


def test_a_composite_is_edited_with_its_rule(
    client: Client, suite: Suite, ada: User, ids: dict[str, str]
) -> None:
    address = f"{PAGE}{ids['quality']}/"
    sent = {"stamp": get_draft(suite, ada).stamp, "name": "worth", "weight": "1"}
    wrong = client.post(address, sent | {"settings-type": "code_judge"})
    assert wrong.status_code == 422
    bare = client.post(address, sent | {"settings-type": "safety_gate"})
    assert "at least one" in str(bare.context["form"].settings.errors["required"])
    chosen = {
        "settings-type": "safety_gate",
        "settings-required": "tone",
        "settings-gate_threshold": "0.5",
    }
    assert client.post(address, sent | chosen).status_code == 302
    rule = nodes(suite, ada)["worth"].aggregator
    assert rule is not None
    assert (rule.type, rule.required, rule.gate_threshold) == ("safety_gate", ("tone",), 0.5)


def test_what_has_no_effect_is_pointed_out_at_its_evaluator(
    client: Client, suite: Suite, ids: dict[str, str]
) -> None:
    model = make_model(slug="juno-2")
    change_suite(suite, judge=model)
    make_target(name="desk", kind="chat", model=model)
    keep(client, **{f"{ids['quality/tone']}.weight": "0"})
    page = text_of(client.get(PAGE))
    assert "“quality/tone” can never change a verdict" in page
    assert "which is the model of desk: it judges itself" in page


def test_saving_or_throwing_away_leads_back_to_where_it_was_asked(
    client: Client, ids: dict[str, str]
) -> None:
    for next_, there in (
        (PAGE, PAGE),
        ("//elsewhere.example/", "/suites/support/"),
        ("/suites/other/evaluators/", "/suites/support/"),
    ):
        keep(client, **{f"{ids['length']}.weight": str(len(next_))})
        stamp = client.get(PAGE).context["draft"].stamp
        answer = client.post("/suites/support/draft/discard/", {"stamp": stamp, "next": next_})
        assert answer["Location"] == there


def test_a_tree_of_two_hundred_is_one_page_of_few_queries(
    ada: User, django_assert_max_num_queries: Any
) -> None:
    branch = [group(f"g{n}", *(leaf(f"l{n}_{m}") for m in range(9))) for n in range(20)]
    make_suite(slug="support", tree=group("suite", *branch).as_json())
    client = make_client(ada)
    with django_assert_max_num_queries(20):
        page = client.get(PAGE)
    assert page.content.decode().count('class="node" data-node') == 201


def test_an_evaluator_of_an_unknown_kind_is_shown_and_can_be_removed(
    client: Client, suite: Suite, ada: User, ids: dict[str, str]
) -> None:
    change_evaluator(suite, "length", kind="palmistry")
    page = client.get(PAGE)
    assert "palmistry, unknown here" in text_of(page)
    own = text_of(client.get(f"{PAGE}{ids['length']}/"))
    assert "This kind is unknown here" in own
    assert keep(client, do=f"{ids['length']} remove").status_code == 302
    assert "length" not in nodes(suite, ada)


def test_an_evaluator_that_was_edited_in_another_tab_is_kept_on_the_second_try(
    client: Client, suite: Suite, ada: User, ids: dict[str, str]
) -> None:
    address = f"{PAGE}{ids['length']}/"
    sent = {"stamp": get_draft(suite, ada).stamp, "name": "size", "weight": "2"}
    sent |= {"settings-samples": "1", "settings-samples_by": "median"}
    keep(client, pass_threshold="0.9")
    stale = client.post(address, sent)
    assert stale.status_code == 409
    assert 'value="size"' in text_of(stale)
    stamp = re.search(r'name="stamp" value="([^"]+)"', text_of(stale))
    assert stamp is not None
    assert client.post(address, sent | {"stamp": stamp[1]}).status_code == 302
    assert nodes(suite, ada)["size"].weight == 2
    assert client.get(f"{PAGE}n999/").status_code == 404


def test_saving_keeps_the_form_and_makes_the_version_at_once(
    client: Client, suite: Suite, ada: User, ids: dict[str, str]
) -> None:
    refused = keep(client, **{f"{ids['length']}.weight": "-1"}, do="save")
    assert refused.status_code == 422
    sent = {f"{ids['length']}.weight": "3", "next": PAGE, "note": "Length counts"}
    answer = keep(client, **sent, do="save")
    assert answer["Location"] == PAGE
    suite.refresh_from_db()
    assert (suite.version, suite.versions.get(number=2).note) == (2, "Length counts")
    assert not SuiteDraft.objects.exists()
    assert nodes(suite, ada)["length"].weight == 3
    nothing = client.post(KEEP, sent_form(client) | {"do": "save", "next": PAGE}, follow=True)
    assert "there is nothing to save" in text_of(nothing)


def test_of_two_who_save_from_open_pages_the_second_decides_and_overwrites_nothing(
    client: Client, suite: Suite, ada: User, ids: dict[str, str]
) -> None:
    bob = make_client(make_member("editor", "bob"))
    mine = sent_form(client) | {"pass_threshold": "0.9", "do": "save"}
    keep(bob, **{f"{ids['length']}.weight": "5"}, do="save")
    answer = client.post(KEEP, mine)
    assert answer["Location"] == "/suites/support/draft/conflict/"
    page = text_of(client.get(answer["Location"]))
    for words in ("weight", "only theirs", "pass threshold", "only yours"):
        assert words in page
    suite.refresh_from_db()
    assert (suite.version, suite.policy.pass_threshold) == (2, 0.8)


def test_what_two_people_save_meets_on_the_conflict_page(
    client: Client, suite: Suite, ada: User, ids: dict[str, str]
) -> None:
    bob = make_client(make_member("editor", "bob"))
    assert keep(client, **{f"{ids['length']}.weight": "3"}).status_code == 302
    keep(bob, **{f"{ids['length']}.weight": "5"}, do="save")
    answer = keep(client, pass_threshold="0.9", do="save")
    assert answer["Location"] == "/suites/support/draft/conflict/"
    suite.refresh_from_db()
    assert suite.version == 2
    assert nodes(suite, ada)["length"].weight == 3
