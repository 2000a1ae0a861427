"""The two files of a batch. Answers stand in the order of the requests, so a batch that was stopped can go on."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import ConfigError
from octavo.server.batch.lines import custom_id_of


@dataclass(frozen=True, slots=True)
class InputLine:
    """A line of the input that is not empty."""

    number: int
    """From 1, empty ones counted."""
    data: bytes


def input_lines(path: Path) -> Iterator[InputLine]:
    """The lines one by one. Raises ConfigError if the file cannot be read."""
    try:
        with path.open("rb") as file:
            for number, data in enumerate(file, start=1):
                if data.strip():
                    yield InputLine(number, data)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error


def num_answered(input_path: Path, output_path: Path) -> int:
    """How many requests an earlier run has answered. A last line that is cut is taken away.

    Raises ConfigError if the output does not belong to the input.
    """
    if not output_path.exists():
        return 0
    data = output_path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    answers = whole.splitlines()
    requests = input_lines(input_path)
    for count, answer in enumerate(answers):
        request = next(requests, None)
        if request is None or custom_id_of(request.data) != custom_id_of(answer):
            raise ConfigError(
                f"{output_path}: line {count + 1} does not answer the request in its place of {input_path}; "
                "give another output file, or leave out --resume"
            )
    if len(whole) != len(data):
        with output_path.open("r+b") as file:
            file.truncate(len(whole))
    return len(answers)
