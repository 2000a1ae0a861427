"""What the routes of one application share: the engine's client, the text side of the model, and whether it serves."""

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from fastapi import Request

from octavo.config import SchedulingPolicy, ServerConfig
from octavo.engine.client import EngineClient
from octavo.engine.messages import Ready
from octavo.errors import EngineDeadError, UnsupportedParameterError
from octavo.server.beams import BeamGenerator
from octavo.server.exposition import Exposition
from octavo.server.generation import GenerationRequest, Generator
from octavo.server.http_errors import HttpError
from octavo.server.json_body import BodyMemory
from octavo.server.metrics import Metrics
from octavo.server.openai.common_fields import TermsFields
from octavo.server.openai.responses.store import Responses, ResponseStore
from octavo.server.terms import NOTHING_ASKED, Terms, terms_of
from octavo.text.assets import TextAssets

_LOGGER = logging.getLogger(__name__)

_TEXT_THREADS = 2
INLINE_CHARS = 2048
"""Shorter texts are tokenized on the event loop: a thread costs more than the half millisecond they take."""

PLACEHOLDERS = frozenset({"tgi", "dummy"})
"""What clients of TGI send for a model: its documentation says `tgi`, huggingface_hub `dummy` where it is given a URL."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that is ready: what the engine said about it, and its text side."""

    ready: Ready
    assets: TextAssets
    names: tuple[str, ...]
    """Names that requests may use; the first is echoed."""

    @property
    def fingerprint(self) -> str:
        """Changes with everything that may change the bits of an answer."""
        ready = self.ready
        parts = (ready.model, ready.architecture, ready.dtype, ready.kv_cache_dtype, ready.isa)
        return f"fp_{hashlib.blake2b('|'.join(parts).encode(), digest_size=5).hexdigest()}"

    @property
    def longest_text(self) -> int:
        """Most tokens of a text that is embedded: an engine that generates keeps room for one more."""
        ready = self.ready
        return ready.max_model_len - (0 if ready.is_encoder else 1)

    def check_generates(self) -> None:
        """Raise UnsupportedParameterError for a model that makes no text."""
        if self.ready.is_encoder:
            raise UnsupportedParameterError(
                f"{self.names[0]} is an encoder: it makes embeddings (/v1/embeddings), not text",
                parameter="model",
                value=self.names[0],
            )

    def check_name(self, name: str | None) -> None:
        """Raise HttpError 404 unless `name` is served; null means the one model there is."""
        if name is not None and name not in self.names and name not in PLACEHOLDERS:
            raise HttpError(
                404,
                f"The model `{name[:200]}` does not exist. This server has: {', '.join(self.names)}.",
                param="model",
            )


class Serving:
    """The state behind the routes. Lives on one event loop."""

    def __init__(
        self,
        client: EngineClient,
        assets: TextAssets | Callable[[], TextAssets],
        config: ServerConfig,
        policy: SchedulingPolicy,
        responses: Responses | None = None,
    ) -> None:
        """`responses`: where they are kept, if others share them; None: in a store of its own."""
        self.client = client
        self.config = config
        self.policy = policy
        self.bodies = BodyMemory(config.max_body_bytes)
        self.metrics = Metrics()
        self.exposition = Exposition(
            self.metrics, client, next(iter(config.served_model_names), None)
        )
        self.num_open = 0
        """Requests for generation that have been accepted and not yet answered."""
        self.num_open_elsewhere: Callable[[], int] = int
        """The same of other front ends, if there are some."""
        self.responses = ResponseStore() if responses is None else responses
        self.is_draining = False
        self.num_text_threads = _TEXT_THREADS
        self._load_assets = assets if callable(assets) else None
        self._assets = None if callable(assets) else assets
        self._threads = ThreadPoolExecutor(_TEXT_THREADS, thread_name_prefix="octavo-text")
        self._warned_fields: set[str] = set()

    async def load(self) -> None:
        """Load the text side beside the engine and wait for both. Raises what either of them failed with."""
        loading = asyncio.ensure_future(self._load_text_side())
        waiting = asyncio.ensure_future(self.client.wait_ready())
        try:
            await asyncio.gather(loading, waiting)
        finally:
            loading.cancel()
            waiting.cancel()

    async def _load_text_side(self) -> None:
        if self._load_assets is not None:
            loop = asyncio.get_running_loop()
            self._assets = await loop.run_in_executor(self._threads, self._load_assets)

    def model(self) -> ServedModel:
        """The model, if requests can be served now. Raises HttpError 503 with the progress, or EngineDeadError."""
        client = self.client
        if client.state == "dead":
            raise EngineDeadError("The engine has ended; this server is shutting down")
        if self.is_draining or client.state == "draining":
            raise HttpError(
                503,
                "The server is shutting down",
                headers={"retry-after": "5", "connection": "close"},
            )
        if client.ready is None or self._assets is None:
            raise self._loading()
        names = self.config.served_model_names or (client.ready.model,)
        return ServedModel(client.ready, self._assets, names)

    def terms(
        self, http_request: Request, arrived: float, asked: TermsFields = NOTHING_ASKED
    ) -> Terms:
        """On which terms a request is served. Raises InvalidParameterError."""
        return terms_of(http_request, self.config, self.policy, arrived, asked)

    def generator(self, model: ServedModel) -> Generator:
        """What makes text with `model`."""
        return Generator(self.client, model.assets.tokenizer, self.metrics)

    def beam_generator(self, model: ServedModel) -> BeamGenerator:
        """What searches for text with `model`."""
        return BeamGenerator(self.client, model.assets, model.ready.vocab_size, self.metrics)

    def _loading(self) -> HttpError:
        progress = self.client.loading
        stage = progress.stage if progress else "starting"
        fraction = progress.fraction if progress else 0.0
        return HttpError(
            503,
            f"The model is loading: {stage}, {fraction:.0%}",
            headers={"retry-after": "1"},
            extra={"status": "loading", "stage": stage, "fraction": fraction},
        )

    async def off_loop(self, size: int, work: Callable[[], Result]) -> Result:
        """Do text work of `size` characters, in a thread if it would make running streams wait."""
        return work() if size <= INLINE_CHARS else await self.in_thread(work)

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        """Do text work that may take long."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    @contextlib.contextmanager
    def open_request(self, request: GenerationRequest, what: str) -> Iterator[None]:
        """Count a request for generation while it is open, and log it when it ends, never its text."""
        self.num_open += 1
        outcome = "done"
        try:
            yield
        except BaseException as error:
            outcome = type(error).__name__
            raise
        finally:
            self.num_open -= 1
            if self.config.log_requests:
                _LOGGER.info(
                    "%s %s: %d prompts, %d prompt tokens, n %d, %.3f s, %s",
                    what,
                    request.request_id,
                    len(request.prompts),
                    request.num_prompt_tokens,
                    request.n,
                    time.perf_counter() - request.arrived,
                    outcome,
                )

    @contextlib.contextmanager
    def open_embedding(self) -> Iterator[None]:
        """Count a request for embeddings while it is open."""
        self.num_open += 1
        try:
            yield
        finally:
            self.num_open -= 1

    def log_ignored(self, names: list[str]) -> None:
        """Log each unknown field once in the life of the server."""
        for name in names:
            if name not in self._warned_fields and len(self._warned_fields) < 1000:
                self._warned_fields.add(name)
                _LOGGER.warning("ignored the unknown request field %.64r", name)

    def close(self) -> None:
        """Give back the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)
