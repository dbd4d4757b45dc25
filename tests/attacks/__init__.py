"""Hostile requests by the thousand to a site in this process: `python -m tests.attacks` picks at random."""
