"""Suites, cases, targets, runs, results, and their pages."""
