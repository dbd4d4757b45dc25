"""Trying one evaluator of a draft on one output, outside of any run."""
