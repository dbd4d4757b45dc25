"""Campaigns: runs of one suite started together against several targets, ranked."""
