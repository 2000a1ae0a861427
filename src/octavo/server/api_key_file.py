"""Reading API keys, before anything of HTTP is imported."""

from pathlib import Path

from octavo.config import ServerConfig
from octavo.errors import ConfigError


def all_api_keys(config: ServerConfig) -> tuple[str, ...]:
    """Those given and those of the file, one a line; lines that begin with # are comments. Raises ConfigError."""
    keys = list(config.api_keys)
    if config.api_key_file is not None:
        try:
            lines = Path(config.api_key_file).expanduser().read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"api_key_file: {error}") from error
        in_file = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        if not in_file:
            raise ConfigError(f"api_key_file: there is no key in {config.api_key_file}")
        keys += in_file
    for position, key in enumerate(keys, start=1):
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise ConfigError(
                f"API key number {position} must be printable ASCII without spaces; it is not shown here"
            )
    return tuple(keys)
