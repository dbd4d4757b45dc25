"""The kinds of evaluator: one module each, found by scanning."""
