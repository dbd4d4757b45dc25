"""Filters of results and their language."""
