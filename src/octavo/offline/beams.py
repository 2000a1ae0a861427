"""Beam searches, run round by round: in each, every beam is a request for one token."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from octavo.core.beam_search import BeamSearch
from octavo.engine.beams import next_tokens, round_params
from octavo.engine.loop import Engine
from octavo.engine.messages import StepOutputs, Submit
from octavo.engine.named_errors import error_named
from octavo.offline.interrupts import DeferredInterrupt
from octavo.offline.prompts import ParsedPrompt, naming_prompt
from octavo.offline.step import take_step
from octavo.outputs import BeamSearchOutput, BeamSearchSequence
from octavo.text.tokenizer import Tokenizer


@dataclass(slots=True)
class _Running:
    """One search and its current round."""

    number: int
    prompt: ParsedPrompt
    search: BeamSearch
    num_rounds: int = 0
    answers: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    """The next tokens of each beam, by request id, in the order of the beams."""
    num_open: int = 0


class BeamBatch:
    """Searches that run together. What a round has computed is in the prefix cache for the next."""

    def __init__(self, engine: Engine, vocab_size: int) -> None:
        self._engine = engine
        self._vocab_size = vocab_size
        self._requests: dict[str, _Running] = {}

    def run(self, prompts: Sequence[ParsedPrompt], searches: Sequence[BeamSearch]) -> None:
        """Bring all searches to their ends. Raises what a prompt cannot run with, before any of them runs."""
        with DeferredInterrupt() as interrupt:
            try:
                for number, (prompt, search) in enumerate(zip(prompts, searches, strict=True)):
                    with naming_prompt(number if len(prompts) > 1 else None):
                        self._begin_round(_Running(number, prompt, search))
                while self._engine.has_work:
                    self._take(take_step(self._engine))
                    interrupt.check()
            finally:
                self._engine.abort_all()  # nothing is open unless the way out is an error

    def _begin_round(self, running: _Running) -> None:
        running.answers = {}
        params = round_params(running.search, self._vocab_size)
        for index, beam in enumerate(running.search.running):
            request_id = f"beam-{running.number}-{running.num_rounds}-{index}"
            token_ids = running.prompt.token_ids + array("i", beam.token_ids)
            self._engine.submit(
                Submit(
                    request_id,
                    token_ids.tobytes(),
                    params,
                    seed=0,
                    cache_salt=running.prompt.cache_salt,
                    is_beam=True,
                    goes_on=running.num_rounds > 0,
                )
            )
            running.answers[request_id] = []
            self._requests[request_id] = running
        running.num_open = len(running.answers)
        running.num_rounds += 1

    def _take(self, outputs: StepOutputs) -> None:
        for output in outputs.sequences:
            self._requests[output.request_id].answers[output.request_id] = next_tokens(output)
        for end in outputs.ends:
            running = self._requests.pop(end.request_id)
            if end.error is not None:
                raise error_named(end.error_type, f"prompt {running.number}: {end.error}")
            running.num_open -= 1
            if running.num_open == 0:
                running.search.advance(list(running.answers.values()))
                if running.search.running:
                    self._begin_round(running)


def beam_search_output(
    prompt: ParsedPrompt, search: BeamSearch, tokenizer: Tokenizer
) -> BeamSearchOutput:
    """The result of a search that is over."""
    sequences = []
    for ended in search.ended:
        tokens = [*prompt.token_ids, *ended.beam.token_ids]
        sequences.append(
            BeamSearchSequence(
                tokens,
                tokenizer.decode(tokens, skip_special_tokens=True),
                ended.beam.logprob,
                ended.score,
                "length" if ended.end_token_id is None else "stop",
            )
        )
    return BeamSearchOutput(sequences)
