"""On which terms a request is served: how soon, with whom it shares pages, for whom, and until when."""

import time
from dataclasses import dataclass
from math import isfinite

from fastapi import Request

from octavo.config import FairShareBy, SchedulingPolicy, ServerConfig
from octavo.errors import InvalidParameterError
from octavo.server.openai.cache_salt import cache_salt_of, key_hash
from octavo.server.openai.common_fields import TermsFields

TIMEOUT_HEADER = "x-request-timeout"
"""Seconds that the request may take, from its arrival to its last token."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What the engine is told of a request besides what to generate."""

    priority: int = 0
    """Lower is earlier."""
    cache_salt: str = ""
    """Only requests with the same salt share prefixes."""
    tenant: str = ""
    """Whose share of the engine it uses."""
    deadline: float | None = None
    """On the clock of `GenerationRequest.arrived`."""

    @property
    def seconds_left(self) -> float | None:
        """From now on; None: as long as it takes."""
        return None if self.deadline is None else self.deadline - time.perf_counter()


NOTHING_ASKED = TermsFields()
"""Of dialects whose requests have no words for it."""


def terms_of(
    http_request: Request,
    config: ServerConfig,
    policy: SchedulingPolicy,
    arrived: float,
    asked: TermsFields,
) -> Terms:
    """The terms of a request whose body asks for this much.

    Raises InvalidParameterError for a priority that would have no effect, and for a time that is none.
    """
    _check_priority(asked.priority, policy)
    limits = (config.request_timeout_s, asked.timeout_s, _header_timeout(http_request))
    least = min((limit for limit in limits if limit is not None), default=None)
    return Terms(
        priority=asked.priority or 0,
        cache_salt=cache_salt_of(asked.cache_salt, http_request, config),
        tenant=_tenant(http_request, config.fair_share_by, asked.user),
        deadline=None if least is None else arrived + least,
    )


def _check_priority(priority: int | None, policy: SchedulingPolicy) -> None:
    if priority and policy is not SchedulingPolicy.PRIORITY:
        raise InvalidParameterError(
            f"priority needs --scheduling-policy priority; given: {priority}",
            parameter="priority",
            value=priority,
        )


def _tenant(http_request: Request, by: FairShareBy, user: str | None) -> str:
    if by is FairShareBy.NOTHING:
        return ""
    key = key_hash(http_request)
    return f"{key} {user or ''}" if by is FairShareBy.USER else key


def _header_timeout(http_request: Request) -> float | None:
    text = http_request.headers.get(TIMEOUT_HEADER)
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not (seconds > 0 and isfinite(seconds)):
        raise InvalidParameterError(
            f"{TIMEOUT_HEADER} must be a number of seconds above 0; given: {text[:80]}",
            parameter=TIMEOUT_HEADER,
            value=text[:80],
        )
    return seconds
