"""File formats, read and written: one module each."""
