"""The API that programs read suites, cases, runs and results by, and by which they change them."""
