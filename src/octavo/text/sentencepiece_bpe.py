"""SentencePiece BPE as merge rules.

SentencePiece keeps a score for each piece and joins, again and again, the two neighbours whose
concatenation is the piece with the best score. A BPE model wants the pairs that may be joined, best
first. Both do the same if every way to cut a piece into two pieces is a rule, in the order of the scores
of what they make.
"""

from collections.abc import Iterable

from tokenizers import decoders, normalizers
from tokenizers.decoders import Decoder
from tokenizers.normalizers import Normalizer

SPACE_MARK = "▁"
"""U+2581, which stands for a space in the pieces."""


def merges_from_scores(pieces: Iterable[tuple[float, str]]) -> list[tuple[str, str]]:
    """The merge rules of the pieces (score, text), best first; of equal scores the earlier piece first.

    Only pieces that are made by joining belong here: no control, byte or user-defined tokens.
    """
    ordered = [text for _, text in sorted(pieces, key=lambda piece: -piece[0])]
    known = set(ordered)
    merges: list[tuple[str, str]] = []
    # 1.4 million cuts for a vocabulary of 262k: the right half is only sliced off where the left is known.
    for text in ordered:
        for cut in range(1, len(text)):
            left = text[:cut]
            if left in known:
                right = text[cut:]
                if right in known:
                    merges.append((left, right))
    return merges


def build_normalizer(*, add_space_prefix: bool) -> Normalizer:
    """Spaces become marks. The prefix goes before each stretch of text between special tokens."""
    marks = normalizers.Replace(" ", SPACE_MARK)
    if not add_space_prefix:
        return marks
    return normalizers.Sequence([normalizers.Prepend(SPACE_MARK), marks])


def build_decoder(*, add_space_prefix: bool) -> Decoder:
    """The reverse: marks become spaces, and the first space of a text goes if a prefix was added."""
    steps: list[Decoder] = [
        decoders.Replace(SPACE_MARK, " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
    ]
    if add_space_prefix:
        steps.append(decoders.Strip(" ", 1, 0))
    return decoders.Sequence(steps)
