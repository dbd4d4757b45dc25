"""The form of one case, to create or edit it, and actions on many ticked cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.http import Http404, QueryDict
from django.shortcuts import get_object_or_404
from django.template.loader import render_to_string

from evaluators.reading.json import is_storable
from evaluators.scoring.tree import EvaluatorSpec
from evaluators.templatetags import figures
from runs.cases.checks import (
    InvalidCaseError,
    mapping_text,
    own_text,
    read_mapping,
    read_own,
    read_recorded_json,
    recorded_text,
)
from runs.cases.queries import CasesQuery, matching_keys
from runs.cases.services import (
    CaseKeyInUseError,
    CaseKeyTakenError,
    NoAnswerError,
    add_case,
    case_from_result,
    change_case,
    has_results,
    move_case,
    remove_cases,
    tag_cases,
    untag_cases,
    unused_key,
)
from runs.filters.language import FilterError
from runs.formats.suite_cases import MAX_KEY_LENGTH, MAX_TITLE_LENGTH, ROLES
from runs.lists import read_integer
from runs.models.results import Result
from runs.models.suites import Case, Suite
from runs.specs.problems import UnreadableFileError
from runs.specs.suites import MAX_CASE_ROWS, MAX_CASE_TAG_LENGTH, CaseSpec
from runs.suites.files import suite_files
from runs.suites.forms import TagsField
from runs.suites.services import SuiteArchivedError

ACTION = "row"
NEXT_ROLE = {"system": "user", "developer": "user", "user": "assistant"}


class RowsField(forms.Field):
    """A list of rows."""

    def clean(self, value: Any) -> Any:
        """Return the rows; raises ValidationError for too many."""
        if len(value or ()) > MAX_CASE_ROWS:
            raise forms.ValidationError(
                f"There are {len(value)} rows; {MAX_CASE_ROWS} is the limit."
            )
        return value or []


class _Rows(forms.Widget):
    use_fieldset = True
    row_template = ""
    add_label = ""

    def __init__(self) -> None:
        """Focus no row."""
        super().__init__()
        self.focus: int | None = None

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        """Return False: when no rows are sent, there are none."""
        return False

    def id_for_label(self, id_: str) -> str:
        """Return no id: the rows have a legend, not a label."""
        return ""

    def render(
        self, name: str, value: Any, attrs: dict[str, Any] | None = None, renderer: Any = None
    ) -> Any:
        """Render the rows, with an empty one if there are none."""
        given = attrs or {}
        context = {
            "rows": list(value or ()) or [self.empty(())],
            "blank": self.empty(value or ()),
            "name": name,
            "id": given.get("id", ""),
            "described_by": given.get("aria-describedby", ""),
            "is_bad": bool(given.get("aria-invalid")),
            "focus": self.focus,
            "roles": ROLES,
            "row_template": self.row_template,
            "add_label": self.add_label,
        }
        return render_to_string("cases/_row_list.html", context)

    def empty(self, rows: Sequence[Any]) -> Any:
        """Return an empty row to follow others."""
        raise NotImplementedError


class OutcomeRows(_Rows):
    """One text per row."""

    row_template = "cases/_outcome_row.html"
    add_label = "Add an outcome"

    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[str]:
        """Return the texts that were sent."""
        return [plain_lines(text) for text in _all(data, name)]

    def empty(self, rows: Sequence[Any]) -> str:
        """Return an empty text."""
        return ""


class MessageRows(_Rows):
    """Role and content per row; `origin` is the row's place in the messages the form was made from."""

    row_template = "cases/_message_row.html"
    add_label = "Add a message"

    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[dict[str, str]]:
        """Return the rows that were sent."""
        parts = (_all(data, f"{name}-{part}") for part in ("role", "content", "origin"))
        return [
            {"role": role, "content": plain_lines(content), "origin": origin}
            for role, content, origin in zip(*parts, strict=False)
        ]

    def empty(self, rows: Sequence[Any]) -> dict[str, str]:
        """Return an empty message with the role whose turn it is."""
        last = rows[-1]["role"] if rows else "assistant"
        return {"role": NEXT_ROLE.get(last, "user"), "content": "", "origin": ""}


def rearrange(widget: _Rows, name: str, rows: Sequence[Any], action: str) -> list[Any]:
    """Return the rows after a button such as `input up 2` was pressed; it may be for another field."""
    field, _, rest = action.partition(" ")
    action, _, number = rest.partition(" ")
    rows_after = list(rows) or [widget.empty(())]
    if field != name:
        return rows_after
    if action == "add":
        widget.focus = len(rows_after)
        return [*rows_after, widget.empty(rows_after)]
    place = read_integer(number)
    if place is None or place >= len(rows_after):
        return rows_after
    row = rows_after.pop(place)
    steps = {"up": -1, "down": 1}
    if action in steps:
        place = min(max(0, place + steps[action]), len(rows_after))
        rows_after.insert(place, row)
    elif action != "remove":
        rows_after.insert(place, row)
    widget.focus = min(place, max(0, len(rows_after) - 1))
    return rows_after or [widget.empty(())]


def plain_lines(text: str) -> str:
    """Return a text with the line ends it had before a browser submitted it."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _all(data: Any, name: str) -> list[str]:
    return data.getlist(name) if isinstance(data, QueryDict) else list(data.get(name) or ())


@dataclass(frozen=True, slots=True)
class InitialCase:
    """The case a form starts with, and the stored revision with the parts the form does not show."""

    source: Case | None = None
    content: CaseSpec | None = None
    message: str = ""


def read_initial_case(suite: Suite, params: Mapping[str, str]) -> InitialCase:
    """Return what the query asks for: `from` names a case, `result` a result by its number.

    Raises Http404 for anything that is not in this suite, and for an answer that there is not.
    """
    if key := params.get("from"):
        case = get_object_or_404(suite.cases, key=key, is_current=True)
        content = case.spec.replace(key=unused_key(suite, key))
        return InitialCase(case, content, f"A copy of {key}, not saved yet.")
    number = read_integer(params.get("result", ""))
    if number is None:
        return InitialCase()
    results = Result.objects.select_related("case", "output", "run__suite")
    result = get_object_or_404(results, pk=number, run__suite=suite, run__is_deleted=False)
    try:
        content = case_from_result(result, with_answer="answer" in params)
    except NoAnswerError as error:
        raise Http404(str(error)) from error
    message = f"Created from {result.case.key} in run #{result.run.number}, not saved yet."
    return InitialCase(result.case, content, message)


def read_revision(data: QueryDict, name: str = "base") -> int | None:
    """Return the submitted revision, None if there is none or it is not a number."""
    return read_integer(data.get(name, ""))


def result_at(slug: str, number: int, key: str, repetition: int) -> Result:
    """Return the result at an address, with its case and answer; raises Http404."""
    results = Result.objects.select_related("case", "output", "run__suite")
    place = {"run__suite__slug": slug, "run__number": number, "repetition": repetition}
    return get_object_or_404(results, case__key=key, run__is_deleted=False, **place)


def find_result(suite: Suite, text: str) -> Result | None:
    """Return the result of a suite that an address names by its id, None for anything else."""
    number = read_integer(text)
    if number is None:
        return None
    results = Result.objects.select_related("case", "run__suite").filter(run__is_deleted=False)
    return results.filter(run__suite=suite, pk=number).first()


ROWS = ("input", "expected_outcomes")
SHOWN_PROBLEMS = 10


def _area(label: str, rows: int, help_text: str = "", *, is_code: bool = False) -> forms.CharField:
    attrs = {"rows": rows} | ({"data-code": True, "spellcheck": "false"} if is_code else {})
    widget = forms.Textarea(attrs=attrs)
    return forms.CharField(
        label=label, required=False, strip=False, help_text=help_text, widget=widget
    )


class CaseForm(forms.Form):
    """A case of a suite. `source` is the stored revision its hidden parts come from, None without one."""

    key = forms.CharField(
        max_length=MAX_KEY_LENGTH,
        help_text="Unique ID. Can't be changed after the first run",
        widget=forms.TextInput(attrs={"spellcheck": "false", "autocomplete": "off"}),
    )
    title = forms.CharField(max_length=MAX_TITLE_LENGTH, required=False)
    tags = TagsField()
    input = RowsField(
        label="Messages", widget=MessageRows, help_text="Sent to the target in this order"
    )
    expected_output = _area("Expected output", 5, "A correct answer, to compare with")
    expected_outcomes = RowsField(
        required=False,
        widget=OutcomeRows,
        help_text="What the answer must achieve. Each is judged separately",
    )
    criteria = _area("Criteria", 4, "Extra guidance for judges (Markdown)")
    metadata = _area("Metadata", 4, "Names with values, in YAML or JSON", is_code=True)
    evaluators = _area("Evaluators of this case", 8, "YAML, one entry per evaluator", is_code=True)
    evaluators_append = forms.TypedChoiceField(
        label="Case evaluators",
        choices=(("beside", "Add to the suite's"), ("instead", "Replace the suite's")),
        coerce=lambda value: value == "beside",
        widget=forms.RadioSelect,
    )
    recorded_output = _area(
        "Recorded output", 4, "A stored answer, scored without asking a target", is_code=True
    )
    recorded_as = forms.ChoiceField(
        label="Format",
        choices=(("text", "Plain text"), ("json", "JSON with messages, trace or usage")),
        widget=forms.RadioSelect,
    )
    place = forms.IntegerField(
        required=False, min_value=1, max_value=10_000_000, label="Place in the suite"
    )
    base = forms.IntegerField(required=False, widget=forms.HiddenInput)
    source = forms.IntegerField(required=False, widget=forms.HiddenInput)

    def __init__(
        self,
        suite: Suite,
        data: QueryDict | None = None,
        *,
        case: Case | None = None,
        source: Case | None = None,
        begun: CaseSpec | None = None,
        place: int | None = None,
    ) -> None:
        """Fill the form with a case to edit, or with the start of a new one."""
        self.suite, self.case = suite, case
        self._source = _named_source(suite, data) or source or case
        shown = begun or (case.spec if case else None)
        super().__init__(data, initial=_initial(shown, case, self._source, place))
        # Fields are compared with the source the form was made from, not with its initial values.
        self._shown = _initial(self._source.spec, None, None, None) if self._source else {}
        if case is None:
            del self.fields["place"]
        elif has_results(suite, case.key):
            self.fields["key"].disabled = True
            self.fields["key"].help_text = "Can't be changed after the first run"
        self._content: CaseSpec | None = None

    @property
    def content(self) -> CaseSpec:
        """Return the case as entered; the form is valid."""
        if self._content is None:
            raise ValueError("the form is not valid")
        return self._content

    def clean(self) -> dict[str, Any]:
        """Make a case from the fields; parts the form does not show come from the source."""
        found: dict[str, Any] = super().clean() or self.cleaned_data
        source = self._source.spec if self._source else None
        parts: Mapping[str, Callable[[Any], Any]] = {
            "title": lambda text: text.strip(),
            "tags": tuple,
            "input": lambda rows: _turns(rows, source),
            "expected_output": plain_lines,
            "expected_outcomes": lambda rows: tuple(row for row in rows if row.strip()),
            "criteria": plain_lines,
            "metadata": lambda text: read_mapping(plain_lines(text)),
            "evaluators": self._own,
            "recorded_output": self._recorded,
        }
        values: dict[str, Any] = {}
        for name, read in parts.items():
            if name not in found:
                continue
            try:
                same = source is not None and self._is_as_shown(name, found)
                values[name] = getattr(source, name) if same else read(found[name])
                if name == "input" and not values[name]:
                    self.add_error(name, "Enter at least one message.")
            except UnreadableFileError as error:
                for problem in error.problems[:SHOWN_PROBLEMS]:
                    self.add_error(name, str(problem))
        if not self.errors:
            append = bool(found["evaluators_append"]) and values["evaluators"] is not None
            self._content = CaseSpec(key=self._key(found), evaluators_append=append, **values)
        return found

    def save(self, by: User) -> Case | None:
        """Store the case; None, with the reason at its field, if that is refused. Raises CaseChangedError."""
        content, place = self.content, self.cleaned_data.get("place")
        try:
            if self.case is None:
                return add_case(self.suite, content, by=by)
            base = self.cleaned_data["base"] or 0
            case = change_case(self.suite, self.case.key, content, base_revision=base, by=by)
            if place and place != self.initial.get("place"):
                move_case(self.suite, case.key, place, by=by)
        except InvalidCaseError as refusal:
            for field, messages in refusal.problems[content.key].items():
                self.add_error(field if field in self.fields else None, list(messages))
            return None
        except SuiteArchivedError as refusal:
            self.add_error(None, str(refusal))
            return None
        except (CaseKeyTakenError, CaseKeyInUseError) as refusal:
            self.add_error("key", str(refusal))
            return None
        return case

    def with_rows(self, action: str) -> CaseForm:
        """Return the form with its input, after a row's button was pressed."""
        again = CaseForm(self.suite, case=self.case, source=self._source)
        for name, field in self.fields.items():
            value = field.widget.value_from_datadict(self.data, self.files, name)
            if name in ROWS:
                value = rearrange(again.fields[name].widget, name, value, action)
            if not field.disabled:
                again.initial[name] = value
        return again

    def _key(self, found: Mapping[str, Any]) -> str:
        """Return the entered key; a key that a field cannot show in full does not change."""
        entered, kept = str(found["key"]), self.case.key if self.case else ""
        return kept if _one_line(kept) == entered else entered

    def _is_as_shown(self, name: str, found: Mapping[str, Any]) -> bool:
        """Tell whether a field still shows the source's value, which is then kept exactly."""
        beside = {"evaluators": "evaluators_append", "recorded_output": "recorded_as"}
        if (other := beside.get(name)) and self.data.get(other) != self._shown[other]:
            return False
        if name == "input":
            return False
        shown, entered = self._shown[name], self.data.get(name, "")
        if name == "expected_outcomes":
            return bool([plain_lines(text) for text in shown] == found[name])
        if name == "tags":
            shown = ", ".join(shown)
        if name in ("tags", "title"):
            return _one_line(shown) == _one_line(entered)
        return plain_lines(shown) == plain_lines(entered)

    def _own(self, text: str) -> EvaluatorSpec | None:
        append = bool(self.cleaned_data.get("evaluators_append"))
        root = self.suite.spec.evaluators
        files = suite_files(self.suite) if text.strip() else {}
        return read_own(plain_lines(text), root=root, append=append, files=files)

    def _recorded(self, text: str) -> Mapping[str, Any] | None:
        if not text.strip():
            return None
        if self.cleaned_data.get("recorded_as") == "json":
            return read_recorded_json(plain_lines(text), suite_files(self.suite))
        return {"output": plain_lines(text)}


def _one_line(text: str) -> str:
    return "".join(text.splitlines()).strip()


def _initial(
    shown: CaseSpec | None, case: Case | None, source: Case | None, place: int | None
) -> dict[str, Any]:
    initial: dict[str, Any] = {
        "evaluators_append": "beside",
        "recorded_as": "text",
        "base": case.revision if case else None,
        "source": source.pk if source else None,
        "place": place,
    }
    if shown is None:
        return initial
    recorded, is_json = recorded_text(shown.recorded_output)
    instead = shown.evaluators is not None and not shown.evaluators_append
    return initial | {
        "key": shown.key,
        "title": shown.title,
        "tags": list(shown.tags),
        "input": [
            {**turn, "origin": str(n) if source else ""} for n, turn in enumerate(shown.input)
        ],
        "expected_output": shown.expected_output,
        "expected_outcomes": list(shown.expected_outcomes),
        "criteria": shown.criteria,
        "metadata": mapping_text(shown.metadata),
        "evaluators": own_text(shown.evaluators),
        "evaluators_append": "instead" if instead else "beside",
        "recorded_output": recorded,
        "recorded_as": "json" if is_json else "text",
    }


def _turns(rows: list[dict[str, str]], source: CaseSpec | None) -> tuple[dict[str, Any], ...]:
    """Return the messages of the rows; an unchanged one keeps the parts that a row does not show.

    A message whose text was changed no longer contains its files.
    """
    origins = {str(n): dict(turn) for n, turn in enumerate(source.input)} if source else {}
    messages = []
    for row in rows:
        original = origins.pop(row["origin"], None)
        content = row["content"]
        if original is not None and plain_lines(str(original["content"])) == content:
            messages.append({**original, "role": row["role"]})
        elif content.strip():
            kept = {name: part for name, part in (original or {}).items() if name != "blocks"}
            messages.append({**kept, "role": row["role"], "content": content})
    return tuple(messages)


def _named_source(suite: Suite, data: QueryDict | None) -> Case | None:
    number = read_integer(data.get("source", "")) if data is not None else None
    return suite.cases.filter(pk=number).first() if number is not None else None


@dataclass(frozen=True, slots=True)
class SelectedCases:
    """The keys of the selected cases, in the suite's order: ticked rows, or `everything` that matches a filter."""

    suite: Suite
    keys: Sequence[str]
    query: CasesQuery
    everything: bool

    @property
    def refusal(self) -> str:
        """Say why there is nothing to do, and what to do instead; "" where there are cases."""
        if self.keys:
            return ""
        if self.everything:
            return "No case matches the filter. Change or clear it, then choose again."
        return "No case is ticked. Tick some rows, or all matching cases."

    @property
    def words(self) -> str:
        """Return their number as text."""
        return str(figures.counted(len(self.keys), "case"))


def selected_cases(suite: Suite, data: QueryDict) -> SelectedCases:
    """Return the cases a form names that still exist."""
    query = CasesQuery.read({name: data.get(name, "") for name in ("q", "tag", "verdict", "view")})
    if "everything" in data:
        try:
            listed = matching_keys(suite, query)
        except FilterError:
            # Such a filter lists nothing.
            listed = ()
        return SelectedCases(suite, listed, query, everything=True)
    named = set(data.getlist("case"))
    keys = matching_keys(suite, CasesQuery()) if named else ()
    return SelectedCases(suite, [key for key in keys if key in named], query, everything=False)


def change_tags(ticked: SelectedCases, written: str, *, is_added: bool, by: User, seen: str) -> str:
    """Add the tags to the cases, or remove them, and return a message; "" when there was no valid tag.

    Raises SuiteArchivedError, and SuiteChangedError if somebody else saved the suite that was `seen`.
    """
    tags = list(dict.fromkeys(tag for part in written.split(",") if (tag := part.strip())))
    if not tags or any(len(tag) > MAX_CASE_TAG_LENGTH or not is_storable(tag) for tag in tags):
        return ""
    change = tag_cases if is_added else untag_cases
    count = change(ticked.suite, ticked.keys, tags, by=by, seen=seen)
    named = ", ".join(tags)
    if is_added:
        return f"{figures.counted(count, 'case')} of {len(ticked.keys)} tagged {named}."
    return f"{named} removed from {figures.counted(count, 'case')} of {len(ticked.keys)}."


def is_deletion_confirmed(ticked: SelectedCases, data: QueryDict) -> bool:
    """Tell whether deleting was confirmed for exactly as many cases as there are now."""
    return data.get("sure") == str(len(ticked.keys))


def delete(ticked: SelectedCases, by: User) -> str:
    """Take the cases out of the suite and return a message; raises SuiteArchivedError."""
    count = remove_cases(ticked.suite, ticked.keys, by=by)
    return f"{figures.counted(count, 'case')} deleted. Results and earlier versions keep theirs."
