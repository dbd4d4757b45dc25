"""Comments on results, cases, runs and comparisons: threads, mentions of members, and who may see them."""
