"""Starting, stopping, resuming and retrying runs."""
