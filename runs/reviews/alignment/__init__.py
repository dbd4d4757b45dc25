"""Align a judge with people: a model writes other instructions, and decisions it never saw say whether they are better."""
