"""Load the templates of the site without the indentation of their lines."""

from __future__ import annotations

import re

from django.template import Origin
from django.template.loaders import filesystem

_INDENTATION = re.compile(r"^[ \t]+", re.MULTILINE)
# A text to be shown as it is written; one with tags of templates is indented as these are.
_EXAMPLE = re.compile(r"(<pre\b(?:(?!\{%|</pre>).)*</pre>)", re.DOTALL)


class Loader(filesystem.Loader):
    """Leaves out indentation, a quarter of a long page; numbers of lines in errors stay right.

    Examples between `<pre>` keep theirs. A template must not indent what it writes there or in a
    `<textarea>` by tags.
    """

    def get_contents(self, origin: Origin) -> str:
        """Return the source of a template; raise TemplateDoesNotExist when there is none."""
        parts = _EXAMPLE.split(super().get_contents(origin))
        # Every second part is an example.
        parts[::2] = [_INDENTATION.sub("", part) for part in parts[::2]]
        return "".join(parts)
