"""The front end process of tests: `serve` with settings from standard input, over whichever engine module they name."""

import logging
import resource
import sys

import msgspec

from octavo.config import EngineConfig, ServerConfig
from octavo.errors import OctavoError
from octavo.server.serve import serve


class Start(msgspec.Struct):
    """What the process reads."""

    engine: EngineConfig
    server: ServerConfig
    engine_module: str
    limits: dict[int, int]
    """Soft limits of the process, by RLIMIT_ number."""


if __name__ == "__main__":
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    start = msgspec.json.decode(sys.stdin.buffer.read(), type=Start)
    for kind, value in start.limits.items():
        resource.setrlimit(kind, (value, resource.getrlimit(kind)[1]))
    try:
        exit_code = serve(
            start.engine,
            start.server,
            engine_module=start.engine_module,
            on_ready=lambda url, ready, _: logging.info("ready at %s: %s", url, ready.model),
        )
    except OctavoError as error:  # as the command line does
        sys.stderr.write(f"octavo: {error}\n")
        exit_code = 2
    sys.exit(exit_code)
