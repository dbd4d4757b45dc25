"""One run in numbers. Pure: values in, values out (SCORING §8)."""
