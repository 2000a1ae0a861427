"""How many of a step's tokens each running sequence gets."""

from collections.abc import Iterable, Mapping

from octavo.core.request import Request
from octavo.core.sequence import Sequence


def share_budget(
    running: Iterable[Sequence], requests: Mapping[str, Request], budget: int
) -> list[tuple[Sequence, int]]:
    """How many known tokens each sequence computes in a step of at most `budget` tokens.

    Those that need a single token go first, so that no long prompt makes a decoding sequence wait.
    """
    shares: list[tuple[Sequence, int]] = []
    longer: list[Sequence] = []
    for sequence in running:
        if len(sequence.token_ids) - sequence.num_computed > 1:
            longer.append(sequence)
        elif budget > 0:
            budget -= 1
            shares.append((sequence, 1))
    for sequence in longer:
        if budget == 0:
            break
        chunk = requests[sequence.request_id].chunk_len(sequence, budget)
        budget -= chunk
        shares.append((sequence, chunk))
    return shares
