"""What a suite says: the values that files, versions, drafts and snapshots hold."""
