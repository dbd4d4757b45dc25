"""Commands about the site as a whole."""
