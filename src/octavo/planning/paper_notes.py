"""Why simulated values differ from the published ones. What each of these says is shown by rows of the table."""

from enum import Enum


class Note(Enum):
    """An explanation."""

    SPEED = (
        "The paper's steps were slower: 30.4 requests at 2 a second are there for 15 s each (Little's law), 45 ms for "
        "each of 338 tokens. A roofline takes half of that, so fewer are there at a time; with the missing time added the "
        "batch is the published one. It is not added elsewhere: that would be fitting."
    )
    EXAMPLES = (
        "Reserving systems spend most of their time on computing the examples again, which pages keep. The slower the "
        "steps besides, as the paper's were, the smaller that share: see the rows with an overhead of 25 ms."
    )
    CHATBOT = (
        "Pages hold some 12 conversations of full length where 7 were, so the gain is at most 1.7 if all prompts have "
        "1,024 tokens, less by what computing these takes. The paper cuts histories there and does not say how long the "
        "others are; the shorter, the higher the gain."
    )
    SAMPLES = (
        "Lengths are log-normal with an assumed spread; how the values move with it is shown below."
    )
    BEAMS = "The model of beams has one number, set on Alpaca with two beams; the others are predictions."
    SWAPPING = (
        "Beyond 16 tokens a block this link is faster than the paper's was; with half the bandwidth large blocks come "
        "within a fifth."
    )

    @property
    def letter(self) -> str:
        """What rows refer to it by."""
        return "abcdefgh"[list(Note).index(self)]
