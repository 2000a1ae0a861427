"""Print the requirements of one of the installed package's extras, one a line, for `pip install -r`.

`pip install -e .[extra]` would compile the kernels again only to add what is missing.
"""

import re
import sys
from importlib.metadata import requires


def main(extra: str) -> None:
    """Print them. An extra that does not exist is an error."""
    wanted = re.compile(rf"\bextra\s*==\s*['\"]{re.escape(extra)}['\"]")
    lines = [line.split(";")[0].strip() for line in requires("octavo") or [] if wanted.search(line)]
    if not lines:
        sys.exit(f"octavo has no extra {extra!r}")
    print("\n".join(lines))  # noqa: T201  # its purpose


if __name__ == "__main__":
    main(sys.argv[1])
