"""Who shares beginnings with whom."""

import pytest
from starlette.requests import Request

from octavo.config import ServerConfig
from octavo.server.openai.cache_salt import cache_salt_of


def salt(key: str | None, given: str | None, *, by_key: bool) -> str:
    headers = [] if key is None else [(b"authorization", f"Bearer {key}".encode())]
    request = Request({"type": "http", "headers": headers})
    return cache_salt_of(given, request, ServerConfig(salt_cache_by_api_key=by_key))


def test_without_the_option_only_the_body_counts() -> None:
    assert salt("one", None, by_key=False) == salt(None, None, by_key=False) == ""
    assert salt("one", "a", by_key=False) == salt("two", "a", by_key=False) == "a"


@pytest.mark.parametrize("given", [None, "a"])
def test_with_it_each_key_is_a_group_and_stays_here(given: str | None) -> None:
    salts = [salt(key, given, by_key=True) for key in ("one", "two", None, "one")]
    assert len(set(salts)) == 3
    assert salts[0] == salts[3]
    assert "one" not in salts[0]
    assert salt("one", given, by_key=True) != salt("one", "b", by_key=True)
