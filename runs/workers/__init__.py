"""The workers page: who works on what, what waits and why."""
