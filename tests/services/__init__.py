"""Real servers for the tests, each on a free port with its files in a folder that is thrown away."""
