"""Beam search over HTTP: all beams of a round are requests to the engine, and the best are the choices."""

import asyncio
from array import array
from collections.abc import AsyncGenerator

from octavo.core.beam_search import BeamSearch, BeamSearchParams, EndedBeam
from octavo.engine.beams import next_tokens, round_params
from octavo.engine.client import EngineClient
from octavo.engine.messages import SequenceOutput
from octavo.server.generation import ChoiceText, GenerationRequest, Output, PromptEnd
from octavo.server.metrics import ChoiceClock, Metrics
from octavo.text.assets import TextAssets
from octavo.text.output_text import OutputText


class BeamGenerator:
    """Runs the searches of a request. Leaving an iteration early frees what they hold."""

    def __init__(
        self, client: EngineClient, assets: TextAssets, vocab_size: int, metrics: Metrics
    ) -> None:
        self._client = client
        self._assets = assets
        self._vocab_size = vocab_size
        self._metrics = metrics

    async def generate(
        self, request: GenerationRequest, params: BeamSearchParams
    ) -> AsyncGenerator[Output, None]:
        """The choices of each prompt, best first, once its search is over. Raises what the engine says of any beam."""
        searches = [
            asyncio.ensure_future(self._search(request, index, params))
            for index in range(len(request.prompts))
        ]
        try:
            for index, task in enumerate(searches):
                search, num_cached_tokens = await task
                for rank, ended in enumerate(search.ended):
                    yield self._choice(request, index, rank, ended)
                yield PromptEnd(index, num_cached_tokens, None)
        finally:
            for task in searches:
                task.cancel()
            await asyncio.gather(*searches, return_exceptions=True)

    async def _search(
        self, request: GenerationRequest, index: int, params: BeamSearchParams
    ) -> tuple[BeamSearch, int]:
        """A search that is over, and how much of its prompt was in the prefix cache at first."""
        max_tokens = request.prompts[index].params.max_tokens or params.max_tokens
        search = BeamSearch(params, self._assets.end_token_ids, max_tokens)
        num_cached_tokens: int | None = None
        num_rounds = 0
        while search.running:
            tasks = [
                asyncio.ensure_future(
                    self._ask(request, index, f"{num_rounds}-{number}", search, beam.token_ids)
                )
                for number, beam in enumerate(search.running)
            ]
            try:
                answers = await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
            if num_cached_tokens is None:
                num_cached_tokens = answers[0][1]
            search.advance([tokens for tokens, _ in answers])
            num_rounds += 1
        return search, num_cached_tokens or 0

    async def _ask(
        self,
        request: GenerationRequest,
        index: int,
        name: str,
        search: BeamSearch,
        beam: tuple[int, ...],
    ) -> tuple[list[tuple[int, float]], int]:
        """The most likely tokens after a beam, and how many of its tokens were cached."""
        found: list[tuple[int, float]] = []
        async with self._client.generate(
            f"{request.request_id}-{index}-{name}",
            array("i", [*request.prompts[index].token_ids, *beam]),
            round_params(search, self._vocab_size),
            priority=request.terms.priority,
            cache_salt=request.terms.cache_salt,
            is_beam=True,
            goes_on=bool(beam),
            tenant=request.terms.tenant,
            timeout_s=request.terms.seconds_left,
        ) as outputs:
            async for output in outputs:
                if isinstance(output, SequenceOutput) and output.logprobs:
                    found = next_tokens(output)
            return found, outputs.num_cached_tokens

    def _choice(
        self, request: GenerationRequest, index: int, rank: int, ended: EndedBeam
    ) -> ChoiceText:
        prompt, token_ids = request.prompts[index], list(ended.beam.token_ids)
        reason = "length" if ended.end_token_id is None else "stop"
        text = OutputText(self._assets.tokenizer, prompt.params, prompt.token_ids)
        clock = ChoiceClock(self._metrics, request.arrived)
        clock.tokens(len(token_ids))
        clock.end(reason)
        return ChoiceText(
            index=index * request.n + rank,
            text=text.add(token_ids, reason).text,
            token_ids=token_ids,
            logprobs=None,
            finish_reason=reason,
            stop_reason=None,
        )
