"""What grammars cost: the same number of sequences decoding, free and each after a grammar, in turns."""

import time
from dataclasses import dataclass

from octavo.core.sampling_params import SamplingParams
from octavo.core.structured_outputs import StructuredOutputsParams
from octavo.engine.loop import Engine
from octavo.engine.messages import StepOutputs, Submit
from octavo.engine.named_errors import error_named
from octavo.engine.prompts import token_id_array
from octavo.evaluation.percentiles import median
from octavo.progress import Progress, silent

SCHEMA = {
    "type": "array",
    "minItems": 100_000,  # no answer ends while it is measured
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 40},
            "kind": {"enum": ["river", "mountain", "city"]},
            "height": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
        },
        "required": ["name", "kind", "height", "tags"],
        "additionalProperties": False,
    },
}


@dataclass(frozen=True, slots=True)
class GrammarCost:
    """Tokens a second of all sequences together."""

    num_seqs: int
    num_steps: int
    plain_tokens_per_s: float
    structured_tokens_per_s: float
    cost: float
    """What is lost of the plain rate: median over neighbouring runs."""


def measure_grammar_cost(
    engine: Engine,
    prompt: list[int],
    *,
    num_seqs: int,
    num_steps: int,
    num_rounds: int,
    progress: Progress = silent,
) -> GrammarCost:
    """Decode greedily, after one round to warm up. The engine must not guess ahead."""
    grammar = StructuredOutputsParams(json=SCHEMA)
    free = SamplingParams(temperature=0.0, max_tokens=None, ignore_eos=True)
    bound = SamplingParams(temperature=0.0, max_tokens=None, structured_outputs=grammar)
    engine.check_grammar(bound)
    pairs: list[tuple[float, float]] = []
    for number in range(num_rounds + 1):
        # Who comes first changes, so that a machine that gets slower or faster favours neither.
        order = (free, bound) if number % 2 else (bound, free)
        rates = {id(params): _rate(engine, prompt, params, num_seqs, num_steps) for params in order}
        pairs.append((rates[id(free)], rates[id(bound)]))
        progress("rounds", (number + 1) / (num_rounds + 1))
    plain, structured = zip(*pairs[1:], strict=True)
    return GrammarCost(
        num_seqs,
        num_steps,
        median(list(plain)),
        median(list(structured)),
        median([1 - b / a for a, b in pairs[1:]]),
    )


def _rate(
    engine: Engine, prompt: list[int], params: SamplingParams, num_seqs: int, num_steps: int
) -> float:
    """Tokens a second while all sequences decode."""
    for i in range(num_seqs):
        token_ids = token_id_array([*prompt, *prompt[: 1 + i % len(prompt)]])
        engine.submit(Submit(f"sequence-{i}", token_ids.tobytes(), params, seed=i))
    begun: set[str] = set()
    while len(begun) < num_seqs:
        begun.update(output.request_id for output in _step(engine).sequences)
    start = time.perf_counter()
    num_tokens = 0
    for _ in range(num_steps):
        num_tokens += sum(len(output.token_ids) for output in _step(engine).sequences)
    seconds = time.perf_counter() - start
    engine.abort_all()
    return num_tokens / seconds


def _step(engine: Engine) -> StepOutputs:
    outputs = engine.step()
    for end in outputs.ends:
        if end.error is not None:
            raise error_named(end.error_type, end.error)
    return outputs
