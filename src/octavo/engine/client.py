"""The front end's view of an engine process."""

import asyncio
import contextlib
import functools
import logging
import signal
import threading
import time
from array import array
from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from octavo.core.pooling import Pooling
from octavo.core.sampling_params import SamplingParams
from octavo.engine.channel import ClientEnd
from octavo.engine.endpoint import Endpoint
from octavo.engine.messages import (
    Abort,
    AbortSequence,
    ClientGone,
    Drain,
    EngineFailed,
    EngineStats,
    FromEngine,
    Loading,
    PinPrefix,
    PrefixReport,
    Ready,
    StepOutputs,
    Submit,
    Unpin,
)
from octavo.engine.named_errors import error_named
from octavo.engine.prompts import check_token_ids, token_id_array
from octavo.engine.pulse import OwnPauses, Pulse, PulseReading
from octavo.engine.seeds import SeedSource
from octavo.engine.stream import RequestStream
from octavo.errors import EngineDeadError, InvalidParameterError, OctavoError

logger = logging.getLogger(__name__)

ClientState: TypeAlias = Literal["loading", "ready", "draining", "dead"]

FREEZE_TIMEOUT_S = 10.0
"""An engine process that has not beaten for this long (it beats every second) counts as dead."""
STEP_TIMEOUT_S = 300.0
"""So does one that is in one step for this long: 2,048 tokens of a large model take a minute on a slow machine."""
CHECK_INTERVAL_S = 1.0
LAST_WORDS_S = 0.1
"""After the process has ended its last messages may still be on their way."""
REASON_TIMEOUT_S = 5.0
"""One that ends by itself with an error has said why. On a machine that is busy that takes longer to arrive."""
EXIT_GRACE_S = 5.0
"""How much longer than the time given to a drain the process may take before it is killed."""


class EngineHandle(Protocol):
    """An engine process as a client needs it: `EngineProcess` for who started it, `AttachedEngine` for others."""

    @property
    def pid(self) -> int:
        """The process id."""
        ...

    @property
    def endpoint(self) -> Endpoint:
        """Where they meet."""
        ...

    @property
    def client_index(self) -> int:
        """Which of the engine's clients this is."""
        ...

    @property
    def is_own(self) -> bool:
        """Whether this client ends the process."""
        ...

    def wait(self) -> int | None:
        """Wait until the process has ended; its exit code, which only its parent learns."""
        ...

    def stop(self) -> None:
        """End the process at once, if it is one's own."""

    def connected(self) -> None:
        """The first message has come."""

    def kill(self) -> None:
        """As `stop`, and remove what has been made for it."""


class EngineClient:
    """Submits requests to an engine process and hands out what comes back. One event loop owns it.

    `state` is "dead" when the process has ended (known at once), shows no life for FREEZE_TIMEOUT_S or is in one step
    for STEP_TIMEOUT_S (known at most 2 s later). Then all open requests fail with EngineDeadError. A process that answers
    again is "ready" again.
    """

    def __init__(
        self,
        process: EngineHandle,
        *,
        seed: int | None = None,
        freeze_timeout_s: float = FREEZE_TIMEOUT_S,
        step_timeout_s: float = STEP_TIMEOUT_S,
    ) -> None:
        """`seed`: where the seeds of requests that bring none come from; None: at random."""
        self.state: ClientState = "loading"
        self.loading: Loading | None = None
        self.ready: Ready | None = None
        self.stats = EngineStats()
        self.prefixes: list[PrefixReport] = []
        """Named prefixes; those that have expired may still be among them."""
        self.error: OctavoError | None = None
        """Why the state is "dead"."""
        self._process = process
        self._seeds = SeedSource(seed)
        self._freeze_timeout_s = freeze_timeout_s
        self._step_timeout_s = step_timeout_s
        self._streams: dict[str, RequestStream] = {}
        self._is_draining = False
        self._is_frozen = False
        self._is_closed = False
        self._is_connected = False

    async def connect(self) -> None:
        """Begin to listen. Call once, before anything but `close`."""
        self._is_connected = True
        self._loop = asyncio.get_running_loop()
        self._has_exited: asyncio.Future[int | None] = self._loop.create_future()
        self._may_be_ready = asyncio.Event()
        self._channel = ClientEnd(self._process.endpoint, self._process.client_index)
        self._pulse = Pulse(self._process.endpoint.pulse)
        self._pauses = OwnPauses(CHECK_INTERVAL_S + self._freeze_timeout_s / 2)
        self._loop.add_reader(self._channel.fileno(), self._receive)
        self._receive()
        threading.Thread(target=self._watch_exit, name="octavo-engine-exit", daemon=True).start()
        self._check_timer = self._loop.call_later(CHECK_INTERVAL_S, self._check_pulse)

    async def wait_ready(self) -> Ready:
        """Wait until the engine serves. Raises what stopped it from loading."""
        while self.state == "loading":
            await self._may_be_ready.wait()
        if self.error is not None:
            raise _again(self.error)
        assert self.ready is not None
        return self.ready

    async def wait_dead(self) -> None:
        """Wait until the process has ended."""
        await asyncio.wait({self._has_exited})

    def generate(
        self,
        request_id: str,
        prompt_token_ids: "Sequence[int] | array[int]",
        params: SamplingParams,
        *,
        priority: int = 0,
        cache_salt: str = "",
        wants_kv_usage: bool = False,
        is_beam: bool = False,
        pooling: Pooling | None = None,
        tenant: str = "",
        timeout_s: float | None = None,
        pin: PinPrefix | None = None,
        goes_on: bool = False,
    ) -> RequestStream:
        """An async context manager over the outputs of a request; see `RequestStream`.

        `request_id` must never have been used before. Raises UserError at once for token ids and parameters that the
        model does not have. Iterating raises what the engine refused the request with, or EngineDeadError.
        """
        token_ids = token_id_array(prompt_token_ids)
        if self.ready is not None:
            check_token_ids(token_ids, self.ready.vocab_size)
            max_logprobs = -1 if is_beam else self.ready.max_logprobs
            params.verify(vocab_size=self.ready.vocab_size, max_logprobs=max_logprobs)
        seed = self._seeds.next(params.seed)
        try:
            frame = self._channel.encode(
                Submit(
                    request_id,
                    token_ids.tobytes(),
                    params,
                    seed,
                    priority,
                    cache_salt,
                    wants_kv_usage,
                    pooling,
                    is_beam,
                    tenant,
                    timeout_s,
                    pin,
                    goes_on,
                )
            )
        except (OverflowError, UnicodeEncodeError) as error:
            raise InvalidParameterError(
                f"a sampling parameter holds a number beyond 64 bits or text that is not Unicode: {error}"
            ) from error
        return RequestStream(self, request_id, frame)

    async def drain(self, timeout_s: float) -> bool:
        """Take no new requests, wait for the open ones, let the process exit. Returns whether it exited with 0.

        What is open after `timeout_s` is aborted; a process that does not end then is killed.
        """
        if self.state in ("ready", "draining"):
            self.state, self._is_draining = "draining", True
            self._send(Drain(timeout_s))
            await asyncio.wait({self._has_exited}, timeout=timeout_s + EXIT_GRACE_S)
        if not self._has_exited.done():
            self._process.stop()
        return await self._has_exited == 0

    async def close(self) -> None:
        """End the process, whatever it does, fail what is open, and give back everything. Safe to call twice."""
        if self._is_closed:
            return
        self._is_closed = True
        if not self._is_connected:
            self._process.kill()
            return
        if self._process.is_own:
            await self.drain(0.0)
        else:
            self._die(EngineDeadError("this front end is shutting down"))
        self._check_timer.cancel()
        self._loop.remove_reader(self._channel.fileno())
        self._channel.close()
        self._pulse.close()
        if self._process.is_own:
            self._process.endpoint.remove()

    def client_gone(self, index: int) -> None:
        """Another client of the engine has ended: its requests are aborted, and one that takes its place is welcome."""
        self._send(ClientGone(index))

    async def open_stream(self, stream: RequestStream, frame: bytes) -> None:
        """Send a request. Waits while the engine loads. Raises EngineDeadError when it does not serve."""
        await self.wait_ready()
        if self.state == "draining":
            raise EngineDeadError("the engine is shutting down and takes no new requests")
        if stream.request_id in self._streams:
            raise InvalidParameterError(
                f"request_id must be new; given: {stream.request_id}",
                parameter="request_id",
                value=stream.request_id,
            )
        self._channel.send(frame)
        self._streams[stream.request_id] = stream
        self._receive()

    def leave_stream(self, stream: RequestStream) -> None:
        """The reader of a stream has gone: abort the request unless it has ended."""
        if self._streams.get(stream.request_id) is stream:
            del self._streams[stream.request_id]
            self._send(Abort([stream.request_id]))

    def abort_sequence(self, stream: RequestStream, index: int) -> None:
        """The reader of a stream wants no more of one sequence. What has ended stays as it is."""
        if self._streams.get(stream.request_id) is stream:
            self._send(AbortSequence(stream.request_id, index))

    def unpin(self, name: str, cache_salt: str) -> None:
        """Give up a named prefix."""
        self.prefixes = [p for p in self.prefixes if (p.name, p.cache_salt) != (name, cache_salt)]
        self._send(Unpin(name, cache_salt))

    def _send(self, message: Abort | AbortSequence | ClientGone | Unpin | Drain) -> None:
        with contextlib.suppress(EngineDeadError):  # it has gone: done as well
            self._channel.send(self._channel.encode(message))
        self._receive()  # sending may swallow the sign that something has come

    def _receive(self) -> None:
        for message in self._channel.receive():
            self._take(message)

    def _take(self, message: FromEngine) -> None:
        if isinstance(message, StepOutputs):
            self._dispatch(message)
        elif isinstance(message, Loading):
            if self.loading is None:
                self._process.connected()
            self.loading = message
        elif isinstance(message, Ready):
            self.ready, self.state = message, "ready"
            self._may_be_ready.set()
        elif isinstance(message, EngineFailed):
            self._die(error_named(message.error_type, message.message))

    def _dispatch(self, outputs: StepOutputs) -> None:
        """Each part of a step to the stream of its request. Those of unknown requests have lost their reader."""
        self.stats = outputs.stats
        if outputs.prefixes is not None:
            self.prefixes = outputs.prefixes
        streams = self._streams
        for prompt in outputs.prompts:
            if stream := streams.get(prompt.request_id):
                stream.num_cached_tokens = prompt.num_cached_tokens
        for values in outputs.prompt_logprobs:
            if stream := streams.get(values.request_id):
                stream.put_prompt_logprobs(values)
        for pooled in outputs.pooled:
            if stream := streams.get(pooled.request_id):
                stream.put_pooled(pooled)
        for output in outputs.sequences:
            if stream := streams.get(output.request_id):
                stream.put(output)
        for end in outputs.ends:
            if stream := streams.pop(end.request_id, None):
                stream.end(end)

    def _die(self, error: OctavoError) -> None:
        """Fail everything that is open. The first reason stays."""
        if self.error is None:
            self.error = error
            # One that never served has its error raised by `wait_ready`.
            is_sudden = self.ready is not None and not self._is_draining
            level = logging.ERROR if is_sudden else logging.DEBUG
            logger.log(level, "the engine serves no more: %s", error)
        self.state = "dead"
        self._may_be_ready.set()
        streams, self._streams = list(self._streams.values()), {}
        for stream in streams:
            stream.fail(EngineDeadError(str(self.error)))
        if streams and not self._has_exited.done():
            self._send(Abort([stream.request_id for stream in streams]))

    def _check_pulse(self) -> None:
        self._check_timer = self._loop.call_later(CHECK_INTERVAL_S, self._check_pulse)
        watched_s = self._pauses.seconds_since()
        if self.ready is None or (self.state == "dead" and not self._is_frozen):
            return
        reason = self._frozen_since(self._pulse.read(), watched_s)
        if reason is not None:
            self._is_frozen = True
            self._die(EngineDeadError(reason))
        elif self._is_frozen:
            logger.warning("the engine answers again")
            self._is_frozen, self.error = False, None
            self.state = "draining" if self._is_draining else "ready"

    def _frozen_since(self, pulse: PulseReading, watched_s: float) -> str | None:
        """Why the engine counts as dead, seen for `watched_s` without a pause of this process; None: it does not."""
        if min(pulse.since_beat_s, watched_s) > self._freeze_timeout_s:
            return f"the engine process has not shown life for {pulse.since_beat_s:.0f} s"
        if pulse.step_s is not None and min(pulse.step_s, watched_s) > self._step_timeout_s:
            return f"the engine has not finished a step for {pulse.step_s:.0f} s"
        return None

    def _watch_exit(self) -> None:
        """A thread of its own: waits for the process, whatever way it ends."""
        code = self._process.wait()
        with contextlib.suppress(RuntimeError):  # the event loop is closed: nobody waits any more
            until = time.monotonic() + REASON_TIMEOUT_S
            exit_later = functools.partial(self._exit, code, until)
            self._loop.call_soon_threadsafe(self._loop.call_later, LAST_WORDS_S, exit_later)

    def _exit(self, code: int | None, until: float) -> None:
        """The process has ended: take its last words, and wait for those that it must have said."""
        if not self._has_exited.done():
            self._receive()
            is_silent = self.error is None and not self._is_closed and time.monotonic() < until
            if code is not None and code > 0 and is_silent:
                self._loop.call_later(LAST_WORDS_S, self._exit, code, until)
                return
            self._has_exited.set_result(code)
            self._is_frozen = False
            self._die(EngineDeadError(_exit_reason(code)))


def _exit_reason(code: int | None) -> str:
    if code is None:
        return "the engine process has ended"
    if code < 0:
        hint = " (perhaps by the kernel, for want of memory)" if -code == signal.SIGKILL else ""
        return f"the engine process was ended by {signal.Signals(-code).name}{hint}"
    return "the engine has shut down" if code == 0 else f"the engine process has exited with {code}"


def _again(error: OctavoError) -> OctavoError:
    """A fresh instance: one that is raised in several tasks would collect their tracebacks."""
    return error_named(type(error).__name__, str(error))
