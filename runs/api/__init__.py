"""The API that programs read suites, cases, runs and results by; it changes nothing."""
