"""Cases of a suite: listed, edited, read from tables, and shown with how they went."""
