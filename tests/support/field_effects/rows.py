"""What can be said of a field of a request, and what to look at in an answer to see it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Seen:
    """Something that an answer shows. An answer is its JSON; of a stream `{"events": [...]}`."""

    what: str
    of: Callable[[Any], Any]


@dataclass(frozen=True)
class Effect:
    """With `value`, the answer differs from the one without in what is seen.

    A value may be a function of the answer without it. `base` are fields that both requests have.
    """

    value: Any
    seen: Seen
    base: Json = field(default_factory=dict)
    warm: bool = False
    """Ask without the field twice: the second answer finds what the first has left in the prefix cache."""


@dataclass(frozen=True)
class Refusal:
    """The value is refused. The error says the field's name, or else `says`."""

    value: Any
    status: int = 400
    base: Json = field(default_factory=dict)
    says: str = ""


@dataclass(frozen=True)
class Same:
    """The value is taken and changes nothing, because of `reason`."""

    value: Any
    reason: str
    base: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Elsewhere:
    """Only other models or settings show the effect: the test of this name in this file does, and says the field's name."""

    file: str
    test: str


Row = Effect | Refusal | Same | Elsewhere


def _piece(event: Any) -> str:
    """What an event of a stream adds."""
    if event.get("choices"):
        choice = event["choices"][0]
        return str(choice["text"] if "text" in choice else choice["delta"].get("content", ""))
    return str(event.get("delta", ""))


def _text(answer: Any) -> list[Any]:
    if "events" in answer:
        return ["".join(map(_piece, answer["events"]))]
    if "choices" in answer:
        return [c.get("text", c.get("message", {}).get("content")) for c in answer["choices"]]
    if "output" in answer:
        return [p["text"] for item in answer["output"] for p in item.get("content", [])]
    if "content" in answer:
        return [block.get("text") for block in answer["content"]]
    if "generated_text" in answer:
        return [answer["generated_text"]]
    if "outputs" in answer:
        return [text for o in answer["outputs"] if o["name"] == "text_output" for text in o["data"]]
    texts = answer["text_output"]
    return texts if isinstance(texts, list) else [texts]


def _num_tokens(answer: Any) -> int:
    if "details" in answer:
        return int(answer["details"]["generated_tokens"])
    if "num_output_tokens" in answer:
        return int(answer["num_output_tokens"])
    usage = answer["usage"]
    return int(
        usage["completion_tokens"] if "completion_tokens" in usage else usage["output_tokens"]
    )


def _num_prompt_tokens(answer: Any) -> int:
    if "details" in answer:
        return len(answer["details"]["prefill"])
    for name in ("count", "num_tokens", "num_input_tokens", "input_tokens"):
        if name in answer:
            return int(answer[name])
    usage = answer["usage"]
    if "prompt_tokens" in usage:
        return int(usage["prompt_tokens"])
    # Anthropic counts what was read from the cache apart.
    return int(usage["input_tokens"]) + int(usage.get("cache_read_input_tokens", 0))


def _num_cached(answer: Any) -> int:
    if "cached_tokens" in answer:
        return int(answer["cached_tokens"])
    usage = answer["usage"]
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
    return int(details.get("cached_tokens", usage.get("cache_read_input_tokens", 0)))


def _calls(answer: Any) -> list[str]:
    """Names of the functions that are called."""
    if "choices" in answer:
        calls = answer["choices"][0]["message"].get("tool_calls") or []
        return [call["function"]["name"] for call in calls]
    blocks = answer["output"] if "output" in answer else answer["content"]
    return [b["name"] for b in blocks if b["type"] in ("function_call", "tool_use")]


TEXT = Seen("the text", _text)
NUM_TOKENS = Seen("the number of tokens", _num_tokens)
NUM_PROMPT_TOKENS = Seen("the number of tokens of the prompt", _num_prompt_tokens)
NUM_CACHED = Seen("the number of tokens from the prefix cache", _num_cached)
CALLS = Seen("the calls", _calls)
IS_STREAM = Seen("whether it is a stream", lambda answer: "events" in answer)


def has(name: str) -> Seen:
    """Whether the first choice has something under this name."""
    return Seen(f"`{name}`", lambda answer: bool(answer["choices"][0].get(name)))


def shown(name: str) -> Seen:
    """What the answer has under this name."""
    return Seen(f"`{name}`", lambda answer: answer.get(name))


def said(text: str) -> Seen:
    """Whether the answer says this anywhere."""
    return Seen(f"`{text}`", lambda answer: text in str(answer))
