"""Logging in, roles, members and API tokens."""
