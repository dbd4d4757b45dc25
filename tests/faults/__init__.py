"""A run of 100 in real processes, and the faults injected into them: `python -m tests.faults` picks at random."""
