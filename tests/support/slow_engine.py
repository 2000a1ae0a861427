"""An engine process that takes a while to load: `start_engine_process(..., module=MODULE)`."""

import sys
import time

from octavo.core.step import Runner
from octavo.engine.process import main

MODULE = "support.slow_engine"
LOAD_S = 2.0


def late(runner: Runner) -> Runner:
    """The runner, later."""
    time.sleep(LOAD_S)
    return runner


if __name__ == "__main__":
    sys.exit(main(late))
