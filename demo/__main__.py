"""``python -m demo run`` (``make demo``), ``postgres`` (``make demo-postgres``) and ``up`` (``make up``)."""

from __future__ import annotations

import argparse
import sys

from delta_cdc.core.errors import DeltaCdcError
from demo.places import PROJECT, Places


def main() -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("command", choices=("run", "postgres", "up"))
    parser.add_argument("--port", type=int, help="port of Airflow's UI; default: 8080, or a free one")
    arguments = parser.parse_args()
    places = Places(PROJECT / ".demo" / arguments.command)
    try:
        if arguments.command == "run":
            from demo import rounds

            return rounds.run(places)
        if arguments.command == "postgres":
            from demo import stream

            return stream.run(places)
        from demo import up

        return up.run(places, port=arguments.port)
    except (DeltaCdcError, RuntimeError) as error:
        sys.stderr.write(f"\nThe demo failed: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
