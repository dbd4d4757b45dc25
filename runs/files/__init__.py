"""Suites, recorded outputs and results in and out of files."""
