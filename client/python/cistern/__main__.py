"""The command ``cistern``: ``cistern dev`` starts a pool on this host."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from cistern import dev


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="cistern", description="Cistern, a pool for KV caches.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    one = commands.add_parser("dev", help="start a pool on this host", description=dev.__doc__)
    dev.add_arguments(one)
    one.set_defaults(run=dev.run)
    parsed = parser.parse_args(arguments)
    try:
        code: int = parsed.run(parsed)
        return code
    except dev.DevError as error:
        print(f"cistern: {error}", file=sys.stderr)
        return 1


def cisternctl() -> None:
    """The command ``cisternctl``: becomes the program that came with the package."""
    try:
        path = dev.program("cisternctl")
    except dev.DevError as error:
        sys.exit(f"cisternctl: {error}")
    os.execv(path, ["cisternctl", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
