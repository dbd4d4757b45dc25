"""What-if: the result of a finished run under other rules, from its stored scores (SCORING §2 to §4, §8)."""
