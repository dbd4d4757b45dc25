"""The kinds of target: one module each, found by scanning."""
