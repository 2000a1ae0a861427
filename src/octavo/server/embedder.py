"""Texts to vectors, with one engine."""

import asyncio
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from octavo.core.pooling import Pooling
from octavo.core.sampling_params import SamplingParams
from octavo.engine.client import EngineClient
from octavo.engine.messages import Pooled
from octavo.errors import RequestFailedError
from octavo.server.terms import Terms

_PARAMS = SamplingParams(temperature=0.0, max_tokens=1)
"""Of the token that ends each request. It means nothing."""


class Embedder:
    """Leaving `embed` early frees what the texts hold."""

    def __init__(self, client: EngineClient) -> None:
        self._client = client

    async def embed(
        self,
        request_id: str,
        prompts: Sequence[list[int]],
        pooling: Pooling,
        terms: Terms,
    ) -> list[NDArray[np.float32]]:
        """The vector of each prompt, float32 [E], in order. Raises what the engine says of any of them."""
        tasks = [
            asyncio.ensure_future(self._embed_one(f"{request_id}-{i}", ids, pooling, terms))
            for i, ids in enumerate(prompts)
        ]
        try:
            return [*await asyncio.gather(*tasks)]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _embed_one(
        self, name: str, token_ids: list[int], pooling: Pooling, terms: Terms
    ) -> NDArray[np.float32]:
        async with self._client.generate(
            name,
            token_ids,
            _PARAMS,
            priority=terms.priority,
            cache_salt=terms.cache_salt,
            pooling=pooling,
            tenant=terms.tenant,
            timeout_s=terms.seconds_left,
        ) as outputs:
            async for output in outputs:
                if isinstance(output, Pooled):
                    return np.frombuffer(output.vector, np.float32)
        raise RequestFailedError("the request ended without a vector")
