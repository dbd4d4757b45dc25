"""Align a judge with people: a model writes other instructions, and decisions that it never saw test them."""
