"""What the answers of the API look like: their fields, units, and what null means. They describe; reports make."""
