"""Token counts of a response."""

from dataclasses import dataclass, field
from typing import Any

from octavo.engine.messages import RequestEnd
from octavo.server.generation import ChoiceText, GenerationRequest, Output, PromptEnd


@dataclass(slots=True)
class Usage:
    """Counts while outputs pass by. A prompt counts once, however many choices it has."""

    request: GenerationRequest
    num_cached_tokens: int = 0
    num_dropped_tokens: int = 0
    """Of samples that were made and not among the best."""
    kv_ends: list[RequestEnd] = field(default_factory=list)
    """The engine's last words, if the cost in pages was asked for."""
    per_choice: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.per_choice = [0] * (len(self.request.prompts) * self.request.n)

    def count(self, output: Output) -> None:
        """Count what an output adds."""
        if isinstance(output, ChoiceText):
            self.per_choice[output.index] += len(output.token_ids)
        elif isinstance(output, PromptEnd):
            self.num_cached_tokens += output.num_cached_tokens
            self.num_dropped_tokens += output.num_dropped_tokens
            if output.end is not None and output.end.kv_usage is not None:
                self.kv_ends.append(output.end)

    def total(self) -> dict[str, Any]:
        """The whole response so far."""
        num_tokens = sum(self.per_choice) + self.num_dropped_tokens
        usage = _usage(self.request.num_prompt_tokens, num_tokens)
        usage["prompt_tokens_details"] = {"cached_tokens": self.num_cached_tokens}
        if self.request.wants_kv_usage:
            usage["kv_cache"] = self._kv_usage()
        return usage

    def _kv_usage(self) -> dict[str, Any]:
        """Over all prompts. Each has its peak when it has: the sum is an upper bound of their common one."""
        reports = [end.kv_usage for end in self.kv_ends if end.kv_usage is not None]
        return {
            "peak_blocks": sum(report.peak_blocks for report in reports),
            "block_seconds": sum(report.block_seconds for report in reports),
            "num_preemptions": sum(end.num_preemptions for end in self.kv_ends),
            "num_recomputed_tokens": sum(end.num_recomputed_tokens for end in self.kv_ends),
        }

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
