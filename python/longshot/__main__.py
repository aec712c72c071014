"""The program that the wheel carries: `longshot`, or `python -m longshot`."""
from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Becomes the program, with the same words."""
    program = os.environ.get("LONGSHOT_PROGRAM") or Path(__file__).parent / "lib" / "longshot"
    try:
        os.execv(program, ["longshot", *sys.argv[1:]])
    except OSError as why:
        sys.exit(f"longshot: {program}: {why.strerror}. This package was not installed from a "
                 "wheel; LONGSHOT_PROGRAM names the program")


if __name__ == "__main__":
    main()
