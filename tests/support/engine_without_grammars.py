"""An engine process of an installation without the extra `grammars`: `start_engine_process(..., module=MODULE)`."""

import sys

from octavo.core.step import Runner
from octavo.engine.process import main

MODULE = "support.engine_without_grammars"


def unchanged(runner: Runner) -> Runner:
    """The runner; the library is what is missing."""
    sys.modules["llguidance"] = None  # type: ignore[assignment]
    return runner


if __name__ == "__main__":
    sys.exit(main(unchanged))
