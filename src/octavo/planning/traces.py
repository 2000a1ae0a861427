"""Recorded loads: our own JSON lines, and the column layouts in which traces have been published.

| layout | file | columns or keys that are used |
| --- | --- | --- |
| octavo | JSON lines | `prompt_token_ids` or `prompt_len`; `max_tokens` or `output_len` or `output_token_ids`; `arrival_s`; `n` |
| azure | CSV | `TIMESTAMP`, `ContextTokens`, `GeneratedTokens` (Patel et al., Splitwise, ISCA 2024) |
| burstgpt | CSV | `Timestamp`, `Request tokens`, `Response tokens` (Wang et al., BurstGPT, KDD 2025) |
| mooncake | JSON lines | `timestamp` (ms), `input_length`, `output_length`, `hash_ids` (Qin et al., Mooncake, FAST 2025) |

The layout is told by the first line. Arrivals count from the first of them. Token ids, of prompts and of answers, say
what a cache of prefixes would find; where there are only lengths, no two requests begin alike.
"""

import csv
import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from octavo.errors import ConfigError
from octavo.planning.requests import SimRequest
from octavo.planning.workloads import fresh_tokens, poisson_times

MOONCAKE_BLOCK = 512
"""Tokens that one of Mooncake's `hash_ids` stands for."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """One recorded request. No arrival: the file has none."""

    arrival_s: float | None
    token_ids: "array[int]"
    output_len: int
    n: int = 1
    answers: tuple["array[int]", ...] = ()


Row = Mapping[str, Any]
_Reader = Callable[[Row, int], _Entry | None]


def read_trace(path: Path) -> list[SimRequest]:
    """All requests of a trace, in order of arrival. Without recorded arrivals all come at once.

    Raises ConfigError naming the line.
    """
    entries = list(_entries(path))
    if not entries:
        raise ConfigError(f"{path}: no requests")
    first = min((e.arrival_s for e in entries if e.arrival_s is not None), default=0.0)
    requests = [
        SimRequest(
            f"r{i}",
            (e.arrival_s or first) - first,
            e.token_ids,
            e.output_len,
            e.n,
            answers=e.answers,
        )
        for i, e in enumerate(entries)
    ]
    return sorted(requests, key=lambda request: request.arrival_s)


def at_rate(requests: Iterable[SimRequest], rate: float, seed: int = 0) -> list[SimRequest]:
    """The same requests, arriving at random instead, `rate` a second on average."""
    times = poisson_times(rate, seed)
    return [replace(r, arrival_s=time) for r, time in zip(requests, times, strict=False)]


def in_rhythm(requests: Sequence[SimRequest], rate: float, seed: int = 0) -> list[SimRequest]:
    """The same requests, `rate` a second on average, with their pauses in proportion; at random if they came at once.

    Takes them in order of arrival.
    """
    span = requests[-1].arrival_s - requests[0].arrival_s
    if span == 0:
        return at_rate(requests, rate, seed)
    scale = (len(requests) - 1) / span / rate
    return [replace(request, arrival_s=request.arrival_s * scale) for request in requests]


def fitting(requests: Iterable[SimRequest], max_model_len: int) -> tuple[list[SimRequest], int]:
    """The requests that fit the context, and how many do not."""
    known = list(requests)
    kept = [r for r in known if r.prompt_len + r.output_len <= max_model_len]
    return kept, len(known) - len(kept)


def _entries(path: Path) -> Iterator[_Entry]:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    rows = _json_rows(text, path) if text.lstrip().startswith("{") else _csv_rows(text)
    reader: _Reader | None = None
    for number, row in rows:
        try:
            reader = reader or _reader_for(row)
            entry = reader(row, number)
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise ConfigError(
                f"{path}:{number}: not a request: {type(error).__name__} {error}"
            ) from error
        if entry is not None:
            yield entry


def _json_rows(text: str, path: Path) -> Iterator[tuple[int, Row]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"{path}:{number}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise ConfigError(f"{path}:{number}: must be an object; given: {line[:60]}")
        yield number, row


def _csv_rows(text: str) -> Iterator[tuple[int, Row]]:
    reader = csv.DictReader(text.splitlines())
    for row in reader:
        yield reader.line_num, row


def _reader_for(row: Row) -> _Reader:
    for needed, reader in _LAYOUTS.items():
        if all(any(name in row for name in names) for names in needed):
            return reader
    raise ValueError(f"no known layout; the columns are {', '.join(map(str, row))}")


def _octavo(row: Row, number: int) -> _Entry:
    ids = row.get("prompt_token_ids")
    token_ids = fresh_tokens(number, _count(row["prompt_len"])) if ids is None else array("i", ids)
    if not token_ids:
        raise ValueError("the prompt is empty")
    arrival, n = row.get("arrival_s"), _count(row.get("n", 1))
    output_len, answers = _answers(row, n)
    return _Entry(None if arrival is None else float(arrival), token_ids, output_len, n, answers)


def _answers(row: Row, n: int) -> tuple[int, tuple["array[int]", ...]]:
    """How long answers are, and what they are where that is recorded."""
    ids = row.get("output_token_ids")
    if ids is None:
        return _count(row.get("max_tokens", row.get("output_len"))), ()
    if n != 1:
        raise ValueError(f"output_token_ids are of one answer; n is {n}")
    return _count(len(ids)), (array("i", ids),)


def _azure(row: Row, number: int) -> _Entry | None:
    # Seven digits of a second are one more than Python reads.
    time = datetime.fromisoformat(row["TIMESTAMP"][:26].removesuffix("Z").split("+")[0])
    arrival = time.replace(tzinfo=timezone.utc).timestamp()
    return _of_lengths(arrival, row["ContextTokens"], row["GeneratedTokens"], number)


def _burstgpt(row: Row, number: int) -> _Entry | None:
    arrival = float(row["Timestamp"])
    return _of_lengths(arrival, row["Request tokens"], row["Response tokens"], number)


def _mooncake(row: Row, number: int) -> _Entry:
    length = _count(row["input_length"])
    token_ids = array("i")
    for hash_id in row["hash_ids"]:
        token_ids.extend(fresh_tokens(int(hash_id), MOONCAKE_BLOCK))
    if len(token_ids) < length:
        token_ids.extend(fresh_tokens(-number, length - len(token_ids)))
    return _Entry(float(row["timestamp"]) / 1000, token_ids[:length], _count(row["output_length"]))


def _of_lengths(arrival: float, prompt: Any, output: Any, number: int) -> _Entry | None:
    """None for a request without an answer: published traces keep those that failed."""
    if int(output) == 0 or int(prompt) == 0:
        return None
    return _Entry(arrival, fresh_tokens(number, _count(prompt)), _count(output))


def _count(value: Any) -> int:
    count = int(value)
    if count < 1:
        raise ValueError(f"lengths are at least 1; given: {value}")
    return count


_LAYOUTS: Mapping[tuple[tuple[str, ...], ...], _Reader] = {
    (("TIMESTAMP",), ("ContextTokens",), ("GeneratedTokens",)): _azure,
    (("Timestamp",), ("Request tokens",), ("Response tokens",)): _burstgpt,
    (("timestamp",), ("input_length",), ("output_length",), ("hash_ids",)): _mooncake,
    (
        ("prompt_token_ids", "prompt_len"),
        ("max_tokens", "output_len", "output_token_ids"),
    ): _octavo,
}
"""Readers by the columns that they need; of each tuple of names one has to be there."""
