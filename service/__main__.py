"""Runs the command line: `python -m service`."""

import sys

from service.cli.parser import main

if __name__ == "__main__":
    sys.exit(main())
