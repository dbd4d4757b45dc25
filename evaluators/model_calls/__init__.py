"""Calls of language models: transport, prompts, replies, prices and limits."""

from __future__ import annotations
