"""The rules of SCORING as pure functions: no Django, no I/O, no clock, no randomness."""
