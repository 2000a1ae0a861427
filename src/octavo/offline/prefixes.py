"""Named prefixes of an `LLM`."""

import time

from octavo.core.sampling_params import SamplingParams
from octavo.engine.loop import Engine
from octavo.engine.messages import PinPrefix, PrefixReport, Submit
from octavo.engine.named_errors import error_named
from octavo.offline.prompts import ParsedPrompt
from octavo.outputs import NamedPrefixOutput

_ONE_TOKEN = SamplingParams(temperature=0.0, max_tokens=1)
"""The least that computes a prompt."""


def pin_prefix(
    engine: Engine,
    request_id: str,
    name: str,
    prompt: ParsedPrompt,
    ttl_s: float | None,
    block_bytes: int,
) -> NamedPrefixOutput:
    """Compute a prompt and pin it. Raises the UserError that says why it cannot be pinned."""
    engine.submit(
        Submit(
            request_id,
            prompt.token_ids.tobytes(),
            _ONE_TOKEN,
            seed=0,
            cache_salt=prompt.cache_salt,
            pin=PinPrefix(name, ttl_s),
        )
    )
    while engine.has_work:
        for end in engine.step().ends:
            if end.error is not None:
                raise error_named(end.error_type, end.error, end.error_parameter)
    (pinned,) = (p for p in engine.prefixes if (p.name, p.cache_salt) == (name, prompt.cache_salt))
    return prefix_output(pinned, block_bytes)


def prefix_output(prefix: PrefixReport, block_bytes: int) -> NamedPrefixOutput:
    """A named prefix, for people."""
    expires_at = prefix.expires_at
    return NamedPrefixOutput(
        prefix.name,
        prefix.cache_salt,
        prefix.num_tokens,
        prefix.num_blocks,
        prefix.num_blocks * block_bytes,
        None if expires_at is None else expires_at - time.monotonic(),
    )
