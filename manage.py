#!/usr/bin/env python
"""Run a command: the same as `evalsite`."""

from __future__ import annotations

from evalsite.cli import main

if __name__ == "__main__":
    main()
