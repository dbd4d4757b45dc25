"""Talking to judge models: transport, quoting, parsing, repair, prices and limits."""
