"""Runs the command line: python -m warptok."""

from __future__ import annotations

import sys

from service.cli.parser import main

if __name__ == "__main__":
    sys.exit(main())
