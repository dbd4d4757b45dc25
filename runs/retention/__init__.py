"""What is stored, what may be deleted, and deleting it: by hand, or when it is old enough."""
