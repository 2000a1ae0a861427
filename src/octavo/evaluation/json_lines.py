"""Files with an object of JSON on each line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from octavo.errors import ConfigError

T = TypeVar("T")


def read_json_lines(path: Path, noun: str, make: Callable[[dict[str, Any]], T]) -> list[T]:
    """What `make` makes of each line's object; empty lines are passed over.

    Raises ConfigError if there is none, or naming the line that is no such thing, as `make` says by
    ValueError, KeyError or TypeError.
    """
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    made: list[T] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            made.append(make(json.loads(line)))
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{path}:{number}: not a {noun}: {type(error).__name__} {error}"
            ) from error
    if not made:
        raise ConfigError(f"{path}: no {noun}s")
    return made
