"""The systems under test: their kinds, settings and pages."""
