"""Share links to frozen documents: their detail levels, and the search for secrets in them."""
