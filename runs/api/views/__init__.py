"""The calls of the API, each one reading."""
