"""People beside the machine: what they review, decide, and how far they agree with judges."""
