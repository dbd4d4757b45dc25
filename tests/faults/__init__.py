"""A run of 300 in real processes, and what may befall them: `python -m tests.faults` picks at random."""
