"""Token counts of a response."""

from dataclasses import dataclass, field
from typing import Any

from octavo.server.generation import ChoiceText, GenerationRequest, Output, PromptEnd


@dataclass(slots=True)
class Usage:
    """Counts while outputs pass by. A prompt counts once, however many choices it has."""

    request: GenerationRequest
    num_cached_tokens: int = 0
    per_choice: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.per_choice = [0] * (len(self.request.prompts) * self.request.n)

    def count(self, output: Output) -> None:
        """Count what an output adds."""
        if isinstance(output, ChoiceText):
            self.per_choice[output.index] += len(output.token_ids)
        elif isinstance(output, PromptEnd):
            self.num_cached_tokens += output.num_cached_tokens

    def total(self) -> dict[str, Any]:
        """The whole response so far."""
        usage = _usage(self.request.num_prompt_tokens, sum(self.per_choice))
        usage["prompt_tokens_details"] = {"cached_tokens": self.num_cached_tokens}
        return usage

    def of_choice(self, index: int) -> dict[str, Any]:
        """One choice so far, for chunks with continuous usage."""
        prompt = self.request.prompts[index // self.request.n]
        return _usage(len(prompt.token_ids), self.per_choice[index])


def _usage(num_prompt_tokens: int, num_completion_tokens: int) -> dict[str, Any]:
    return {
        "prompt_tokens": num_prompt_tokens,
        "total_tokens": num_prompt_tokens + num_completion_tokens,
        "completion_tokens": num_completion_tokens,
    }
