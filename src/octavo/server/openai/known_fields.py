"""Fields of the OpenAI API and of vLLM that the request models do not declare, and what happens to each.

When a feature arrives, its entry moves from here to the request model.
"""

from octavo.server.openai.fields import KnownFields, Refused

_NO_EFFECT_ANYWHERE = frozenset(
    {
        "metadata",
        "store",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",  # hints for caches; answers do not depend on caches
        "prompt_cache_options",
        "prompt_cache_retention",
        "session_id",
        "guided_decoding_backend",  # there is one
        "stream_interval",  # how a stream is cut, not what it says
    }
)

_TRUNCATION = "prompts are never cut; send at most the model's context"
_MULTIMODAL = "this server takes and gives text only"

_REFUSED_ANYWHERE = {
    "structural_tag": Refused("use structured_outputs with a grammar"),
    "truncate_prompt_tokens": Refused(_TRUNCATION),
    "truncation_side": Refused(_TRUNCATION),
    "logprob_token_ids": Refused("logprobs of chosen ids are not available", ([],)),
    "repetition_detection": Refused("repetition detection is not available"),
    "thinking_token_budget": Refused("thinking budgets are not available", (-1,)),
    "return_prompt_text": Refused("ask /tokenize, or use return_token_ids", (False,)),
    "kv_transfer_params": Refused("transfer of keys and values is not available", ({},)),
    "vllm_xargs": Refused("there are no custom logits processors", ({},)),
    "mm_processor_kwargs": Refused(_MULTIMODAL, ({},)),
}

COMPLETION_FIELDS = KnownFields(
    no_effect=_NO_EFFECT_ANYWHERE,
    refused={
        **_REFUSED_ANYWHERE,
        "suffix": Refused("insertion is not available", ("",)),
        "prompt_embeds": Refused("prompts are text or token ids"),
    },
)

CHAT_FIELDS = KnownFields(
    no_effect=_NO_EFFECT_ANYWHERE
    | {
        "prediction",  # a hint for speed
    },
    refused={
        **_REFUSED_ANYWHERE,
        "functions": Refused("use tools", ([],)),
        "function_call": Refused("use tool_choice", ("none",)),
        "modalities": Refused(_MULTIMODAL, (["text"],)),
        "audio": Refused(_MULTIMODAL),
        "verbosity": Refused("this model has no levels of verbosity", ("medium",)),
        "web_search_options": Refused("web search is not available"),
        "tool_prompt": Refused("the chat template explains the tools", ("",)),
        "moderation": Refused("there is no moderation"),
    },
)

TOKENIZE_FIELDS = KnownFields(
    no_effect=frozenset({"user"}), refused={"mm_processor_kwargs": Refused(_MULTIMODAL, ({},))}
)
