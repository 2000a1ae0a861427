"""Typed reading of a checkpoint's metadata: a value of the wrong kind is named with its file."""

import math
from collections.abc import Mapping
from typing import Any, NoReturn

from octavo.errors import CheckpointError

MAX_SIZE = 1 << 24
"""Above any size of a real model; keeps a forged number from costing memory."""


class Fields:
    """A mapping with the place it came from. A missing key and null are the same: `default`.

    Without a default, a missing key raises CheckpointError, as every wrong value does.
    """

    def __init__(self, values: Mapping[str, Any], where: str, prefix: str = "") -> None:
        self._values = values
        self._where = where
        self._prefix = prefix

    def fail(self, key: str, problem: str) -> NoReturn:
        """Raise CheckpointError about the value of `key`."""
        raise CheckpointError(f"{self._where}: {self._prefix}{key}: {problem}")

    def raw(self, key: str) -> Any:
        """The value as it is, or None."""
        return self._values.get(self._prefix + key)

    def keys(self) -> list[str]:
        """The keys that have a value other than null."""
        start = len(self._prefix)
        return [
            key[start:]
            for key, value in self._values.items()
            if key.startswith(self._prefix) and value is not None
        ]

    def has(self, key: str) -> bool:
        """Whether there is a value other than null."""
        return self.raw(key) is not None

    def is_null(self, key: str) -> bool:
        """Whether the key is there and null."""
        return self.raw(key) is None and self._prefix + key in self._values

    def having(self, key: str, value: object) -> "Fields":
        """The same fields with one value replaced."""
        return Fields({**self._values, self._prefix + key: value}, self._where, self._prefix)

    def _get(self, key: str, default: Any) -> Any:
        value = self.raw(key)
        if value is None:
            value = default
        return self.fail(key, "is missing") if value is None else value

    def size(self, key: str, default: int | None = None, *, most: int = MAX_SIZE) -> int:
        """An integer from 1 to `most`."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            self.fail(key, f"must be an integer from 1 to {most}; given: {value!r}")
        return value

    def positive(self, key: str, default: float | None = None) -> float:
        """A finite number above 0."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.fail(key, f"must be a number; given: {value!r}")
        if not math.isfinite(value) or value <= 0:
            self.fail(key, f"must be finite and above 0; given: {value}")
        return float(value)

    def flag(self, key: str, default: bool | None = None) -> bool:
        """True or false."""
        value = self._get(key, default)
        return (
            value
            if isinstance(value, bool)
            else self.fail(key, f"must be a bool; given: {value!r}")
        )

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self._get(key, default)
        return (
            value if isinstance(value, str) else self.fail(key, f"must be text; given: {value!r}")
        )

    def child(self, key: str) -> "Fields":
        """A nested object; a missing one is empty."""
        value = self._get(key, {})
        if not isinstance(value, dict):
            self.fail(key, f"must be an object; given: {value!r}")
        return Fields(value, f"{self._where}: {self._prefix}{key}")

    def only(self, key: str, *neutral: object) -> None:
        """Refuse any value but null and these: others would change answers and are not honoured."""
        value = self.raw(key)
        if value is not None and not any(type(value) is type(n) and value == n for n in neutral):
            self.fail(key, f"{value!r} is not supported")
