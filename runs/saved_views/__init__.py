"""Saved views: what is on screen under a name, for oneself or shared, and the default of a suite."""
