"""Who changed what, newest first."""
