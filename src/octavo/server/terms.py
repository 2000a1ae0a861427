"""On which terms a request is served: for whom, and until when."""

import time
from dataclasses import dataclass
from math import isfinite

from fastapi import Request

from octavo.config import FairShareBy, ServerConfig
from octavo.errors import InvalidParameterError
from octavo.server.openai.cache_salt import key_hash

TIMEOUT_HEADER = "x-request-timeout"
"""Seconds that the request may take, from its arrival to its last token."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Whose share of the engine a request uses, and when it has to be done."""

    tenant: str = ""
    deadline: float | None = None
    """On the clock of `GenerationRequest.arrived`."""

    @property
    def seconds_left(self) -> float | None:
        """From now on; None: as long as it takes."""
        return None if self.deadline is None else self.deadline - time.perf_counter()


def terms_of(
    http_request: Request,
    config: ServerConfig,
    arrived: float,
    *,
    timeout_s: float | None = None,
    user: str | None = None,
) -> Terms:
    """The terms of a request whose body says this much. Raises InvalidParameterError for a time that is none."""
    limits = (config.request_timeout_s, timeout_s, _header_timeout(http_request))
    least = min((limit for limit in limits if limit is not None), default=None)
    return Terms(
        _tenant(http_request, config.fair_share_by, user),
        None if least is None else arrived + least,
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
