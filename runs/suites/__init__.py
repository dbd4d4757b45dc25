"""Suites: their versions, drafts, settings and evaluator trees."""
