"""More samples than are asked for, of which the most likely are the answer (OpenAI's legacy `best_of`)."""

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace

from octavo.server.generation import ChoiceText, Output, PromptEnd


@dataclass(slots=True)
class _Sample:
    """All of one sample. Its outputs carry log-probabilities."""

    parts: list[ChoiceText] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        return sum(len(part.token_ids) for part in self.parts)

    @property
    def mean_logprob(self) -> float:
        """Of its tokens, in the model's own distribution. A sample without tokens is the worst."""
        total = sum(value.logprob for part in self.parts for value in part.logprobs or ())
        return total / self.num_tokens if self.num_tokens else float("-inf")


async def best_of(
    outputs: AsyncGenerator[Output, None], n: int, num_samples: int
) -> AsyncGenerator[Output, None]:
    """Of each prompt's samples, once all have ended, the `n` with the highest log-probability per token, best first.

    Equally likely samples keep their order. The tokens of the others are counted in `PromptEnd`.
    """
    samples: dict[int, list[_Sample]] = {}
    async with contextlib.aclosing(outputs):
        async for output in outputs:
            if isinstance(output, ChoiceText):
                prompt_index, number = divmod(output.index, num_samples)
                known = samples.setdefault(prompt_index, [_Sample() for _ in range(num_samples)])
                known[number].parts.append(output)
            elif isinstance(output, PromptEnd):
                ranked = sorted(samples.pop(output.prompt_index), key=lambda s: -s.mean_logprob)
                for rank, sample in enumerate(ranked[:n]):
                    for part in sample.parts:
                        yield replace(part, index=output.prompt_index * n + rank)
                num_dropped = sum(sample.num_tokens for sample in ranked[n:])
                yield replace(output, num_dropped_tokens=num_dropped)
            else:
                yield output
