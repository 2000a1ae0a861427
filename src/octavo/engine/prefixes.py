"""Requests that pin their prompt under a name, and what is pinned."""

import time
from array import array
from collections.abc import Callable

from octavo.core.named_prefixes import NamedPrefix, NamedPrefixes, PrefixKey
from octavo.engine.messages import PinPrefix, PrefixReport, Submit
from octavo.errors import UserError


class PrefixDesk:
    """Between requests and `NamedPrefixes`: a prompt is pinned when it is computed, for as long as was asked."""

    def __init__(
        self, prefixes: NamedPrefixes, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._prefixes = prefixes
        self._clock = clock
        self._open: dict[str, tuple[PinPrefix, PrefixKey, array[int]]] = {}
        self._errors: dict[str, UserError] = {}
        self._has_changed = False

    def check(self, submit: Submit) -> None:
        """Raise the UserError of a request for a prefix that could never be pinned."""
        if submit.pin is not None:
            self._prefixes.check(len(submit.token_ids) // 4)

    def enter(self, submit: Submit, prompt: "array[int]") -> None:
        """A request is accepted."""
        if submit.pin is not None:
            key = PrefixKey(submit.pin.name, submit.cache_salt)
            self._open[submit.request_id] = (submit.pin, key, prompt)

    def computed(self, request_id: str) -> None:
        """The prompt of a request has just been computed: no block of it has been given to others yet."""
        entry = self._open.get(request_id)
        if entry is None:
            return
        pin, key, prompt = entry
        expires_at = None if pin.ttl_s is None else self._clock() + pin.ttl_s
        try:
            self._prefixes.pin(key, prompt, expires_at)
            self._has_changed = True
        except UserError as error:
            self._errors[request_id] = error

    def leave(self, request_id: str) -> UserError | None:
        """A request has ended. Returns why its prompt is not pinned, if it should be."""
        self._open.pop(request_id, None)
        return self._errors.pop(request_id, None)

    def unpin(self, name: str, cache_salt: str) -> None:
        """Give up a prefix, if there is one of that name."""
        self._has_changed |= self._prefixes.unpin(PrefixKey(name, cache_salt))

    def expire(self) -> bool:
        """Give up those whose time has come. Returns whether there were any."""
        has_expired = self._prefixes.expire(self._clock())
        self._has_changed |= has_expired
        return has_expired

    @property
    def seconds_to_expiry(self) -> float | None:
        """When the first expires, from now on; None if none does."""
        first = self._prefixes.first_expiry
        return None if first is None else max(0.0, first - self._clock())

    @property
    def all(self) -> list[PrefixReport]:
        """What is pinned, and not expired."""
        now = self._clock()
        return [_report(p) for p in self._prefixes.all if not _has_expired(p, now)]

    def take_changed(self) -> list[PrefixReport] | None:
        """What is pinned now; None if it is the same as last time."""
        if not self._has_changed:
            return None
        self._has_changed = False
        return self.all


def _has_expired(prefix: NamedPrefix, now: float) -> bool:
    return prefix.expires_at is not None and prefix.expires_at <= now


def _report(prefix: NamedPrefix) -> PrefixReport:
    return PrefixReport(
        prefix.key.name,
        prefix.key.cache_salt,
        prefix.num_tokens,
        prefix.num_blocks,
        prefix.expires_at,
    )
