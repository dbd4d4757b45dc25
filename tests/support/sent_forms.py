"""What a browser sends of a form as it is rendered."""

from __future__ import annotations

from html.parser import HTMLParser

from django.http import QueryDict

# An option without a value sends its words.
WORDS = "\0"


class Sent(HTMLParser):
    """What a browser would send of a form as it is rendered."""

    def __init__(self, drawn: str) -> None:
        super().__init__()
        self.data = QueryDict(mutable=True)
        self.select, self.area, self.text = "", "", ""
        self.chosen: list[str] = []
        self.feed(drawn)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        is_box = found.get("type") in ("checkbox", "radio")
        if tag == "input" and "name" in found and (not is_box or "checked" in found):
            self.data.appendlist(found["name"], found.get("value", "on" if is_box else ""))
        elif tag == "select":
            self.select, self.chosen = found["name"], []
        elif tag == "option" and (not self.chosen or "selected" in found):
            self.chosen = [found.get("value", WORDS)]
        elif tag == "textarea":
            self.area, self.text = found["name"], ""

    def handle_data(self, data: str) -> None:
        self.text += data if self.area else ""
        if self.chosen == [WORDS]:
            self.chosen = [data]

    def handle_endtag(self, tag: str) -> None:
        if tag == "select":
            self.data.appendlist(self.select, self.chosen[0])
        elif tag == "textarea":
            self.data.appendlist(self.area, self.text.removeprefix("\n").replace("\n", "\r\n"))
            self.area = ""


def sent_unchanged(page: str, form_id: str) -> QueryDict:
    """Return what the unchanged form of a page sends, without its buttons."""
    _, _, rest = page.partition(f'id="{form_id}"')
    assert rest, f"the page has no form {form_id}"
    return Sent(rest.partition("</form>")[0]).data
