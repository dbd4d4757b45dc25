"""Commands for people with a shell on the server."""
