"""The audit: who changed what, newest first."""
