"""Frozen documents behind share links: what each level of detail lets out, and what in them looks secret."""
