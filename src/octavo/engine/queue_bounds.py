"""How many requests, and how many of their tokens, may wait; and when those who are refused may come again."""

from math import exp

from octavo.errors import QueueFullError

NO_QUEUE_LIMIT = 2**31 - 1
"""A caller that waits for all its prompts is not to be refused for their number."""
MEMORY_S = 10.0
"""What lies this long back counts a third in the measured rate."""
SHORTEST_RETRY_S = 1.0
LONGEST_RETRY_S = 3600.0


class Rate:
    """How fast something goes, by the time in which there was something to do; the latest counts most."""

    def __init__(self) -> None:
        self._count = 0.0
        self._seconds = 0.0

    def add(self, count: float, seconds: float) -> None:
        """So much was done in so many seconds."""
        kept = exp(-seconds / MEMORY_S)
        self._count = self._count * kept + count
        self._seconds = self._seconds * kept + seconds

    def seconds_for(self, count: float) -> float:
        """How long that takes; 0 where nothing was measured."""
        if count <= 0 or self._seconds == 0:
            return 0.0
        return count * self._seconds / self._count if self._count else LONGEST_RETRY_S


class QueueBounds:
    """Follows requests from the door until their prompts are computed."""

    def __init__(self, max_num_reqs: int, max_num_tokens: int) -> None:
        self._max_num_reqs = max_num_reqs
        self._max_num_tokens = max_num_tokens
        self._prompt_lens: dict[str, int] = {}
        self.num_tokens = 0
        """Prompt tokens of requests whose prompts are not computed."""
        self.num_refused = 0
        """Requests that found no room, since the start."""
        self._token_rate = Rate()
        self._request_rate = Rate()
        self._begun_tokens = self._begun_requests = 0

    def check(self, num_waiting: int, prompt_len: int) -> None:
        """Raise QueueFullError if one more request may not wait. A queue that is empty has room for any."""
        too_many = num_waiting + 1 - self._max_num_reqs
        too_long = self.num_tokens + prompt_len - self._max_num_tokens if self._prompt_lens else 0
        if too_many <= 0 and too_long <= 0:
            return
        self.num_refused += 1
        seconds = max(
            self._request_rate.seconds_for(too_many), self._token_rate.seconds_for(too_long)
        )
        seconds = min(max(seconds, SHORTEST_RETRY_S), LONGEST_RETRY_S)
        if too_many > 0:
            found = f"{num_waiting} requests are waiting, at most {self._max_num_reqs} may (--max-num-queued-reqs)"
        else:
            found = (
                f"{self.num_tokens} prompt tokens are waiting, with the {prompt_len} of this request more than the "
                f"{self._max_num_tokens} that may (--max-num-queued-tokens)"
            )
        raise QueueFullError(
            f"{found}; there will be room in about {seconds:.0f} s", retry_after_s=seconds
        )

    def enter(self, request_id: str, prompt_len: int) -> None:
        """A request was accepted."""
        self._prompt_lens[request_id] = prompt_len
        self.num_tokens += prompt_len

    def begin(self, request_id: str) -> None:
        """A request's prompt is computed: it makes room."""
        prompt_len = self.leave(request_id)
        self._begun_tokens += prompt_len
        self._begun_requests += prompt_len > 0

    def leave(self, request_id: str) -> int:
        """A request has ended, whether it had begun or not. Returns the tokens that waited with it."""
        prompt_len = self._prompt_lens.pop(request_id, 0)
        self.num_tokens -= prompt_len
        return prompt_len

    def count_step(self, seconds: float) -> None:
        """A step took this long, and those that have begun since the last did so in it."""
        if self._prompt_lens or self._begun_requests:
            self._token_rate.add(self._begun_tokens, seconds)
            self._request_rate.add(self._begun_requests, seconds)
        self._begun_tokens = self._begun_requests = 0
