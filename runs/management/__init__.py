"""Commands of the runs."""
