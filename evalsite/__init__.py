"""The wiring: settings, roles, URLs, the worker and the command line."""
