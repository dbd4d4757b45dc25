"""What is done with many results or cases at once: reviews, tags, a new suite, a file."""
