"""Named prefixes: PUT, GET and DELETE /v1/prefixes/{name}.

A name belongs to those who share pages: with a `cache_salt`, or with --salt-cache-by-api-key, others neither see nor
change it.
"""

import re
import time
import uuid
from dataclasses import dataclass
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from octavo.core.sampling_params import SamplingParams
from octavo.engine.messages import PinPrefix, PrefixReport
from octavo.errors import InvalidParameterError
from octavo.server.disconnect import run_while_connected
from octavo.server.generation import arrival_time
from octavo.server.http_errors import HttpError
from octavo.server.json_body import read_json_object
from octavo.server.openai.cache_salt import cache_salt_of
from octavo.server.openai.chat_prompt import chat_prompt
from octavo.server.openai.fields import ignored_header, parse_request, refuse_unknown
from octavo.server.openai.known_fields import TOKENIZE_FIELDS
from octavo.server.openai.prompts import check_token_ids
from octavo.server.openai.requests import ChatPrefixRequest, PrefixFields, TextPrefixRequest
from octavo.server.openapi import json_body
from octavo.server.plain_request import encoded
from octavo.server.serving import ServedModel, Serving

DEFAULT_TTL_S = 3600.0
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ONE_TOKEN = SamplingParams(temperature=0.0, max_tokens=1)
"""The least that computes a prompt."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A checked request for a prefix."""

    body: PrefixFields
    token_ids: list[int]
    ignored: list[str]


def prefix_routes(serving: Serving) -> APIRouter:
    """The routes, bound to `serving`."""
    router = APIRouter()

    @router.put(
        "/v1/prefixes/{name}", openapi_extra=json_body(TextPrefixRequest, ChatPrefixRequest)
    )
    async def put_prefix(name: str, request: Request) -> Response:
        """Compute a beginning of prompts, and keep its pages for a time, whatever is evicted. Again: for another time."""
        return await _put(serving, name, request)

    @router.get("/v1/prefixes/{name}")
    async def get_prefix(name: str, request: Request) -> Response:
        """A named prefix, what it holds, and how long it will be kept. With `?cache_salt=` one of that salt."""
        model = serving.model()
        return _json(_described(model, _find(serving, name, _salt(request))))

    @router.get("/v1/prefixes")
    async def list_prefixes(request: Request) -> Response:
        """All named prefixes. With `?cache_salt=` those of that salt."""
        model, salt = serving.model(), _salt(request)
        found = [_described(model, p) for p in _live(serving) if p.cache_salt == salt]
        return _json({"object": "list", "data": found})

    @router.delete("/v1/prefixes/{name}")
    async def delete_prefix(name: str, request: Request) -> Response:
        """Give up a named prefix: its pages stay until others need them. With `?cache_salt=` one of that salt."""
        serving.model()
        salt = _salt(request)
        _find(serving, name, salt)
        serving.client.unpin(name, salt)
        return _json({"name": name, "object": "prefix", "deleted": True})

    def _salt(request: Request) -> str:
        return cache_salt_of(request.query_params.get("cache_salt"), request, serving.config)

    return router


async def _put(serving: Serving, name: str, request: Request) -> Response:
    model = serving.model()
    _check_name(name)
    fields = await read_json_object(request, serving.bodies)
    arrived = arrival_time()
    wanted = await _wanted(serving, model, fields)
    terms = serving.terms(request, arrived, wanted.body)
    ttl_s = DEFAULT_TTL_S if wanted.body.ttl_s is None else wanted.body.ttl_s

    async def compute() -> int:
        async with serving.client.generate(
            f"prefix-{uuid.uuid4().hex}",
            wanted.token_ids,
            _ONE_TOKEN,
            priority=terms.priority,
            cache_salt=terms.cache_salt,
            tenant=terms.tenant,
            timeout_s=terms.seconds_left,
            pin=PinPrefix(name, ttl_s),
        ) as outputs:
            async for _ in outputs:
                pass
            return outputs.num_cached_tokens

    num_cached = await run_while_connected(lambda _: compute(), request.receive)
    described = _described(model, _find(serving, name, terms.cache_salt))
    return _json({**described, "cached_tokens": num_cached}, ignored_header(wanted.ignored))


async def _wanted(serving: Serving, model: ServedModel, fields: dict[str, Any]) -> _Wanted:
    make = _wanted_messages if "messages" in fields else _wanted_text
    wanted = await make(serving, model, fields)
    model.check_name(wanted.body.model)
    serving.log_ignored(wanted.ignored)
    return wanted


async def _wanted_messages(serving: Serving, model: ServedModel, fields: dict[str, Any]) -> _Wanted:
    strict = serving.config.strict_requests
    body, ignored = parse_request(ChatPrefixRequest, fields, TOKENIZE_FIELDS, strict=strict)
    begins = bool(body.add_generation_prompt)  # others: the prompt goes on with messages
    prompt = await chat_prompt(
        serving,
        model,
        body.model_copy(update={"add_generation_prompt": begins}),
        add_special_tokens=bool(body.add_special_tokens),
        may_call=True,
    )
    if strict:
        refuse_unknown(prompt.ignored_fields)
    return _Wanted(body, prompt.token_ids, ignored + prompt.ignored_fields)


async def _wanted_text(serving: Serving, model: ServedModel, fields: dict[str, Any]) -> _Wanted:
    strict = serving.config.strict_requests
    body, ignored = parse_request(TextPrefixRequest, fields, TOKENIZE_FIELDS, strict=strict)
    text = body.prompt
    if not isinstance(text, str):
        return _Wanted(body, check_token_ids(text, model.ready.vocab_size, "prompt"), ignored)
    adds = body.add_special_tokens is not False
    token_ids = await encoded(serving, model, text, add_special_tokens=adds)
    return _Wanted(body, token_ids, ignored)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidParameterError(
            f"the name of a prefix has 1 to 64 of A-Z a-z 0-9 . _ -; given: {name[:80]}",
            parameter="name",
            value=name[:80],
        )


def _live(serving: Serving) -> list[PrefixReport]:
    now = time.monotonic()
    return [p for p in serving.client.prefixes if p.expires_at is None or p.expires_at > now]


def _find(serving: Serving, name: str, cache_salt: str) -> PrefixReport:
    for prefix in _live(serving):
        if (prefix.name, prefix.cache_salt) == (name, cache_salt):
            return prefix
    raise HttpError(404, f"There is no prefix named {name[:80]}", param="name")


def _described(model: ServedModel, prefix: PrefixReport) -> dict[str, Any]:
    expires_at = prefix.expires_at
    return {
        "name": prefix.name,
        "object": "prefix",
        "num_tokens": prefix.num_tokens,
        "num_blocks": prefix.num_blocks,
        "num_bytes": prefix.num_blocks * model.ready.block_bytes,
        "expires_in_s": None if expires_at is None else expires_at - time.monotonic(),
    }


def _json(value: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), headers=headers, media_type="application/json")
