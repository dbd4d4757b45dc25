"""How fast runs are: `python -m tests.benchmarks` prints the table."""
