"""`python -m tools.pictures`: write the SVG of each description in docs/pictures.

With `--check`, write nothing and exit with 1 if a picture is out of date.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools.pictures.svg import drawn

PLACE = Path(__file__).parents[2] / "docs" / "pictures"


def main() -> int:
    """Write or compare all pictures; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.pictures", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    stale = False
    for source in sorted(PLACE.glob("*.toml")):
        target, fresh = source.with_suffix(".svg"), drawn(source.read_text("utf-8"))
        if not target.is_file() or target.read_text("utf-8") != fresh:
            stale = True
            if not check:
                target.write_text(fresh, "utf-8")
            print(f"{target.name} {'is out of date' if check else 'written'}")
    return int(stale and check)


if __name__ == "__main__":
    sys.exit(main())
