"""``python -m delta_cdc.cli``: the command, if its script is not on the path."""

from __future__ import annotations

import sys

from delta_cdc.cli import main

if __name__ == "__main__":
    sys.exit(main())
