"""Stop strings in text that comes in pieces."""

from array import array
from collections.abc import Sequence


class StopStrings:
    """Finds the first stop string in a text, and holds back what may be the beginning of one.

    The first is the one that is complete first, and of those that end at the same character the longest: the
    same whatever the pieces. Its match may begin in one piece and end in another.
    """

    def __init__(self, stops: Sequence[str], *, include_in_text: bool) -> None:
        self._searches = [_Search(stop) for stop in stops]
        self._include = include_in_text
        self._held = ""

    def add(self, piece: str) -> tuple[str, str | None]:
        """The text that is certain now, and the stop string if one is complete; the text ends there then.

        The text ends before the stop string, or after it if it is to be included.
        """
        found: _Search | None = None
        found_end = len(piece) + 1
        for search in self._searches:
            end = search.add(piece)
            if end is None or end > found_end:
                continue
            if end < found_end or found is None or len(search.stop) > len(found.stop):
                found, found_end = search, end
        text = self._held + piece
        if found is not None:
            end = len(self._held) + found_end
            self._held = ""
            return text[: end if self._include else end - len(found.stop)], found.stop
        # Included text can be shown at once: it stays even if it turns out to be a stop string.
        held = 0 if self._include else max(search.matched for search in self._searches)
        certain = len(text) - held
        self._held = text[certain:]
        return text[:certain], None

    def finish(self) -> str:
        """What was held back: the text ends here, without a stop string."""
        held, self._held = self._held, ""
        return held


class _Search:
    """One stop string, searched by Knuth, Morris and Pratt: no text is looked at twice."""

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.matched = 0
        """How much of the stop string the text ends with."""
        self._shorter = _shorter_matches(stop)

    def add(self, piece: str) -> int | None:
        """Where in the piece the stop string ends, if it does."""
        stop, matched, position = self.stop, self.matched, 0
        while position < len(piece):
            if matched == 0:
                position = piece.find(stop[0], position)
                if position < 0:
                    break
            character = piece[position]
            while matched and stop[matched] != character:
                matched = self._shorter[matched - 1]
            matched += stop[matched] == character
            position += 1
            if matched == len(stop):
                return position
        self.matched = matched
        return None


def _shorter_matches(stop: str) -> "array[int]":
    """For each beginning of `stop`, the length of the longest shorter one that it ends with."""
    shorter = array("i", [0])
    matched = 0
    for character in stop[1:]:
        while matched and stop[matched] != character:
            matched = shorter[matched - 1]
        matched += stop[matched] == character
        shorter.append(matched)
    return shorter
