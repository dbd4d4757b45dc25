"""Turn rows into exactly what one page shows."""
