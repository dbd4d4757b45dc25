"""Commands that work against a site elsewhere, by its API; without Django and without a database."""
