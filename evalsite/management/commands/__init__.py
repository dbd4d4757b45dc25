"""Commands for the site as a whole."""
