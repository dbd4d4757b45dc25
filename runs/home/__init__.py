"""The home page, the overview of a suite, search and the sidebar."""
