"""Filters over results: the language that people type, and the cases that match."""
