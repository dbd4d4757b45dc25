"""Runs scored again from what is stored of them: asking what would come out, and keeping it as a new run."""
