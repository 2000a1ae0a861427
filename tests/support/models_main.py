"""The front end process of tests with several models: settings come from standard input."""

import logging
import sys

import msgspec

from octavo.config import ServerConfig
from octavo.errors import OctavoError
from octavo.server.models.serve import serve_models
from octavo.server.models.settings import ModelSettings


class Start(msgspec.Struct):
    """What the process reads."""

    models: list[ModelSettings]
    server: ServerConfig
    engine_module: str


if __name__ == "__main__":
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    start = msgspec.json.decode(sys.stdin.buffer.read(), type=Start)
    try:
        exit_code = serve_models(start.models, start.server, engine_module=start.engine_module)
    except OctavoError as error:  # as the command line does
        sys.stderr.write(f"octavo: {error}\n")
        exit_code = 2
    sys.exit(exit_code)
