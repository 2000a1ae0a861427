"""Which requests may share the pages of equal beginnings."""

from hashlib import blake2b

from fastapi import Request

from octavo.config import ServerConfig
from octavo.server.api_keys import api_key_of


def cache_salt_of(given: str | None, http_request: Request, config: ServerConfig) -> str:
    """Requests share only if this is equal: the body's `cache_salt`, and with `salt_cache_by_api_key` the API key."""
    salt = given or ""
    if not config.salt_cache_by_api_key:
        return salt
    return f"{key_hash(http_request)} {salt}"


def key_hash(http_request: Request) -> str:
    """Equal for requests with the same API key, which itself goes no further than here.

    Requests without one form a group of their own.
    """
    key = api_key_of(http_request.headers).encode("utf-8", "surrogatepass")
    return blake2b(key, digest_size=32).hexdigest()
