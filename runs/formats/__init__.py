"""The file formats. What they read and write are plain values, nothing stored yet."""
