"""Write docs/reference/fields.md, what each field of each request does; with --check say whether it is current."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.field_effects.page import page  # noqa: E402 - found by the line above


def main() -> None:
    """Write the page, or compare."""
    path, text = ROOT / "docs" / "reference" / "fields.md", page()
    if "--check" not in sys.argv:
        path.write_text(text)
    elif not path.exists() or path.read_text() != text:
        sys.exit("not current, run `make docs`: docs/reference/fields.md")


if __name__ == "__main__":
    main()
