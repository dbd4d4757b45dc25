"""Load the templates of the site without the indentation of their lines."""

from __future__ import annotations

import re

from django.template import Origin
from django.template.loaders import filesystem

_INDENTATION = re.compile(r"^[ \t]+", re.MULTILINE)


class Loader(filesystem.Loader):
    """Leaves out indentation, a quarter of a long page; numbers of lines in errors stay right.

    A template must not indent what it writes between `<pre>` or `<textarea>`.
    """

    def get_contents(self, origin: Origin) -> str:
        """Return the source of a template; raise TemplateDoesNotExist when there is none."""
        return _INDENTATION.sub("", super().get_contents(origin))
