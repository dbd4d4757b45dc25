"""Long texts are frozen as far as a page can show them, and say how much of them there is."""

from __future__ import annotations

from typing import Any

LONGEST_TEXT = 20_000
# Of what is said about an output: a finding, a justification, a reason.
LONGEST_REMARK = 2_000
# Of all texts of one document together.
MOST_CHARACTERS = 2_000_000


class Allowance:
    """Characters that the texts of one document may take up, handed out one text after the other."""

    def __init__(self, left: int = MOST_CHARACTERS) -> None:
        """Begin with so many characters."""
        self.left = left

    def brief(self, text: object) -> str:
        """Return a remark; of a long one the beginning, and how much of it that is."""
        whole = str(text or "")
        shown = whole[: min(LONGEST_REMARK, self.left)]
        self.left -= len(shown)
        if len(shown) == len(whole):
            return shown
        return f"{shown}… ({len(shown):,} of {len(whole):,} characters)"

    def cut(self, text: str, size: int | None = None) -> dict[str, Any]:
        """Return the beginning of a text as `text`, and as `size` how many characters the whole has.

        `size` is given where `text` is but the beginning already.
        """
        shown = text[: min(LONGEST_TEXT, self.left)]
        self.left -= len(shown)
        whole = len(text) if size is None else size
        return {"text": shown, "size": whole, "shown": len(shown), "is_cut": len(shown) < whole}
