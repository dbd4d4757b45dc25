"""The results of runs: the list of runs, one run, one result."""
