"""The tiny text model with a few tokens of several characters, for what happens inside a token."""

import json
from pathlib import Path

from support.server_process import write_long_text_model

MERGES = (("Ġ", "P"), ("a", "r"), ("i", "s"), ("ar", "is"), ("ĠP", "aris"))
"""The last makes one token of " Paris"."""
_FIRST_REPLACED = 0x10
"""Control characters from here on give their ids away."""


def write_merged_text_model(folder: Path, max_len: int) -> None:
    """Write the model. Its vocabulary has the size that it had."""
    write_long_text_model(folder, max_len)
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    for i, (left, right) in enumerate(MERGES):
        # The byte-level alphabet writes control character c as the letter 256 + c.
        vocabulary[left + right] = vocabulary.pop(chr(256 + _FIRST_REPLACED + i))
    tokenizer["model"]["merges"] = [list(pair) for pair in MERGES]
    path.write_text(json.dumps(tokenizer))
