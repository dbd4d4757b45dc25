"""Signing in with an account of the team's organisation (OpenID Connect), with roles from its groups."""
