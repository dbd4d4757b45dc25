"""The charts of a suite: score against cost, and the trend."""
