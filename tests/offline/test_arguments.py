"""vLLM's arguments of `LLM`: honoured, accepted or refused."""

from typing import Any

import pytest

from octavo.errors import ConfigError, InvalidParameterError, UnsupportedParameterError
from octavo.offline.prompts import PromptDict
from support.offline import GREEDY, make_llm
from support.text_model import BOS, MAX_LEN, text_model_folder


def test_arguments_of_vllm_that_change_nothing_are_accepted() -> None:
    make_llm(
        swap_space=4,
        enforce_eager=True,
        disable_custom_all_reduce=True,
        gpu_memory_utilization=0.5,
        trust_remote_code=True,
        tensor_parallel_size=1,
        quantization="gguf",
        prefix_caching_hash_algo="sha256",
    ).close()


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"tensor_parallel_size": 2}, UnsupportedParameterError, "tensor_parallel_size .*1.*given: 2"),
        ({"quantization": "awq"}, ConfigError, "quantization must be one of int8, int4; given: awq"),
        ({"kv_cache_dtype": "fp8_e5m2"}, ConfigError, "kv_cache_dtype .*fp8_e4m3; given: fp8_e5m2"),
        ({"enable_lora": True}, UnsupportedParameterError, "enable_lora"),
        ({"hf_overrides": {"a": 1}}, UnsupportedParameterError, "hf_overrides"),
        ({"max_modle_len": 5}, TypeError, "max_modle_len.*did you mean max_model_len"),
        ({"enforce_eagre": True}, TypeError, "did you mean enforce_eager"),
        ({"dtype": "float16"}, ConfigError, "dtype must be one of .*float32.*given: float16"),
        ({"block_size": 5}, ConfigError, "block_size"),
        ({"max_model_len": MAX_LEN + 1}, ConfigError, f"at most {MAX_LEN}"),
        ({"max_model_len": 200, "num_gpu_blocks_override": 4}, ConfigError, "at most 64"),
        ({"scheduling_policy": "lifo"}, ConfigError, "scheduling_policy must be one of fcfs, priority"),
        ({"backend": "gpu"}, ConfigError, "backend must be one of native, reference"),
    ],
)  # fmt: skip
def test_arguments_that_are_refused(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        make_llm(**arguments)


def test_a_small_token_budget_lowers_the_number_of_sequences() -> None:
    with make_llm(max_num_batched_tokens=8) as llm:
        assert llm.engine_info.max_num_seqs == 8
        assert len(llm.generate(["a" * 30] * 12, GREEDY, use_tqdm=False)) == 12


def test_a_tokenizer_of_its_own() -> None:
    with make_llm(tokenizer=str(text_model_folder() / "tokenizer.json")) as llm:
        assert llm.generate("a", GREEDY, use_tqdm=False)[0].prompt_token_ids[0] == BOS


@pytest.mark.parametrize(("given", "has"), [(None, True), (True, True), (False, False)])
def test_prefix_caching(given: bool | None, has: bool) -> None:
    text = "a beginning of more than sixteen tokens"
    with make_llm(enable_prefix_caching=given) as llm:
        assert llm.engine_info.prefix_caching == has
        found = []
        for salt in ("x", "x", "y"):
            prompt: PromptDict = {"prompt": text, "cache_salt": salt}
            (output,) = llm.generate(prompt, GREEDY, use_tqdm=False)
            found.append(output.num_cached_tokens)
        assert found == [0, len(output.prompt_token_ids) - 1 if has else 0, 0]
        stats = llm.kv_stats()
        assert (stats.num_prefix_hits, stats.num_blocks_cached > 0) == (found[1], has)
        assert llm.reset_prefix_cache()
        assert llm.kv_stats().num_blocks_free == stats.num_blocks_total


def test_a_salt_is_text() -> None:
    with make_llm() as llm, pytest.raises(InvalidParameterError, match="cache_salt must be text"):
        llm.generate({"prompt": "a", "cache_salt": 5}, use_tqdm=False)  # type: ignore[arg-type]


def test_lora_is_refused() -> None:
    with make_llm() as llm, pytest.raises(UnsupportedParameterError, match="lora_request"):
        llm.generate("a", lora_request=object(), use_tqdm=False)  # type: ignore[arg-type]
