"""What came of runs: their list, one run, one result."""
