"""One round of a beam search as requests: each beam asks for the most likely tokens after its last.

What a round has computed is in the prefix cache for the next: beams share pages, and part, by that alone.
"""

from octavo.core.beam_search import BeamSearch
from octavo.core.sampling_params import SamplingParams
from octavo.engine.messages import SequenceOutput


def round_params(search: BeamSearch, vocab_size: int) -> SamplingParams:
    """One token of one beam: what is wanted are the most likely ones in its place."""
    return SamplingParams(
        temperature=0.0,
        seed=0,  # nothing is drawn: let none be taken from those of other requests
        max_tokens=1,
        ignore_eos=True,
        detokenize=False,
        logprobs=min(search.num_candidates, vocab_size),
    )


def next_tokens(output: SequenceOutput) -> list[tuple[int, float]]:
    """The most likely tokens, best first. A request that failed has none."""
    return list(output.logprobs[0].top) if output.logprobs else []
