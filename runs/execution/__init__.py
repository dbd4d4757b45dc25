"""The shell around the engine: claim, execute, record, finish, and clean up after dead workers."""
