"""Write docs/reference/options.md: every pair of options, asked for whole and as a stream of real servers."""

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.matrix_servers import outcomes  # noqa: E402 - found by the line above
from support.option_matrix import page  # noqa: E402


def main() -> None:
    """Ask, and write the page."""
    with tempfile.TemporaryDirectory() as folder:
        text = page(outcomes(Path(folder) / "tiny"))
    (ROOT / "docs" / "reference" / "options.md").write_text(text)


if __name__ == "__main__":
    main()
