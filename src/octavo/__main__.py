"""`octavo` and `python -m octavo`."""

import logging
import sys

from octavo.cli.app import app
from octavo.errors import OctavoError

ERROR_EXIT_CODE = 2


def main() -> None:
    """Run the command line. What went wrong on purpose is one line on stderr and exit code 2."""
    logging.basicConfig(format="octavo: %(message)s", level=logging.WARNING, stream=sys.stderr)
    try:
        app()
    except OctavoError as error:
        sys.stderr.write(f"octavo: {error}\n")
        sys.exit(ERROR_EXIT_CODE)


if __name__ == "__main__":
    main()
