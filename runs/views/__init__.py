"""The pages of suites, runs and results: each view makes one call and shows what it gave."""
