"""JSON objects from files that may be missing, damaged or hostile."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from octavo.errors import CheckpointError

MAX_JSON_BYTES = 1 << 25
"""Far above any config, index or safetensors header; bounds the time to parse a forged one."""


def read_json_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises CheckpointError naming the file."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_JSON_BYTES + 1)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from error
    if len(raw) > MAX_JSON_BYTES:
        raise CheckpointError(f"{path}: must be at most {MAX_JSON_BYTES} bytes")
    return parse_json_object(raw, str(path))


def parse_json_object(raw: bytes, where: str) -> dict[str, Any]:
    """The object in UTF-8 JSON text. Raises CheckpointError that begins with `where`."""
    try:
        value = json.loads(raw.decode(), object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        # Also a depth beyond the parser's, and integers of more digits than Python converts.
        raise CheckpointError(f"{where}: not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{where}: must hold a JSON object")
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {twice!r} appears twice")
    return values
