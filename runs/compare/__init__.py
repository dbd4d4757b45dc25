"""Two runs side by side (SCORING §9)."""
