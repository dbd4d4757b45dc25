"""What would become of a finished run under other rules, from its stored scores alone (SCORING §2 to §4, §8)."""
