"""What guessing tokens ahead is worth: the same prompts, one at a time and greedy, with it and without in turns."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.core.sampling_params import SamplingParams
from octavo.engine.loop import Engine
from octavo.engine.messages import Submit
from octavo.engine.named_errors import error_named
from octavo.engine.prompts import token_id_array
from octavo.evaluation.json_lines import read_json_lines
from octavo.evaluation.percentiles import median
from octavo.progress import Progress, silent


@dataclass(frozen=True, slots=True)
class Prompt:
    """A message to the model."""

    id: str
    kind: str
    """What is asked: edit, extract, summary, question."""
    text: str


@dataclass(frozen=True, slots=True)
class Gain:
    """One prompt with and without."""

    id: str
    kind: str
    num_prompt_tokens: int
    num_output_tokens: int
    plain_tokens_per_s: float
    """From the first token to the last, median of the rounds."""
    guessing_tokens_per_s: float
    speedup: float
    """Median of the ratios of neighbouring runs."""
    num_draft_tokens: int
    num_accepted_tokens: int

    @property
    def acceptance_rate(self) -> float | None:
        """Share of the guessed tokens that were right."""
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else None


def read_prompts(path: Path) -> list[Prompt]:
    """JSON lines {"id", "kind", "text"}. Raises ConfigError naming the line."""

    def prompt(entry: dict[str, Any]) -> Prompt:
        return Prompt(str(entry["id"]), str(entry["kind"]), str(entry["text"]))

    return read_json_lines(path, "prompt", prompt)


def measure_speculation(
    plain: Engine,
    guessing: Engine,
    prompts: Sequence[Prompt],
    encode: Callable[[str], list[int]],
    *,
    max_tokens: int,
    num_rounds: int,
    progress: Progress = silent,
) -> list[Gain]:
    """Run each prompt `num_rounds` times on both engines, after one round to warm up.

    Raises AssertionError if the two answer differently: that is a defect of Octavo.
    """
    gains = []
    for i, prompt in enumerate(prompts):
        token_ids = encode(prompt.text)
        before = guessing.stats
        rounds = [_pair(plain, guessing, token_ids, max_tokens) for _ in range(num_rounds + 1)][1:]
        after = guessing.stats
        num_runs = num_rounds + 1
        gains.append(
            Gain(
                prompt.id,
                prompt.kind,
                len(token_ids),
                rounds[0][0].num_tokens,
                median([a.tokens_per_s for a, _ in rounds]),
                median([b.tokens_per_s for _, b in rounds]),
                median([b.tokens_per_s / a.tokens_per_s for a, b in rounds]),
                (after.num_draft_tokens - before.num_draft_tokens) // num_runs,
                (after.num_accepted_tokens - before.num_accepted_tokens) // num_runs,
            )
        )
        progress("prompts", (i + 1) / len(prompts))
    return gains


@dataclass(frozen=True, slots=True)
class _Run:
    num_tokens: int
    seconds: float

    @property
    def tokens_per_s(self) -> float:
        return (self.num_tokens - 1) / self.seconds


def _pair(
    plain: Engine, guessing: Engine, token_ids: list[int], max_tokens: int
) -> tuple[_Run, _Run]:
    first, wanted = _run(plain, token_ids, max_tokens)
    second, found = _run(guessing, token_ids, max_tokens)
    if found != wanted:
        raise AssertionError("the answers with and without speculation differ")
    return first, second


def _run(engine: Engine, token_ids: list[int], max_tokens: int) -> tuple[_Run, list[int]]:
    params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
    engine.submit(Submit("prompt", token_id_array(token_ids).tobytes(), params, seed=0))
    tokens: list[int] = []
    first_at = 0.0
    while engine.has_work:
        outputs = engine.step()
        if not tokens:
            first_at = time.perf_counter()
        tokens += [token_id for output in outputs.sequences for token_id in output.token_ids]
        for end in outputs.ends:
            if end.error is not None:
                raise error_named(end.error_type, end.error)
    return _Run(len(tokens), time.perf_counter() - first_at), tokens
