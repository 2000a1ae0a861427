"""Run lm-evaluation-harness against a server of its own and compare every log-probability with transformers'.

    .venv/bin/python tools/run_lm_eval.py LM_EVAL [MODEL]

LM_EVAL is the program of an environment that has `lm-eval[api]` and `transformers`; MODEL a GGUF file's name in the
model cache (default: smollm2). Prints markdown; exits with 1 if a log-probability is further off than BOUND.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from octavo.checkpoints.locate import locate
from octavo.cli.benchmarks.server_process import started_server
from octavo.config import CacheConfig, EngineConfig, ModelConfig, ServerConfig
from octavo.models.model import load_model
from octavo.models.weights_map import config_tensor_name

ROOT = Path(__file__).resolve().parents[1]
TASK = ROOT / "bench" / "lm_eval"
BOUND = 2e-3
"""Of the log-probability of a whole continuation, in nats."""


def main(lm_eval: str, model: str = "smollm2") -> int:
    """Evaluate, compare, print."""
    path = locate(model)
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    engine = EngineConfig(
        model=ModelConfig(model=model, dtype="float32"), cache=CacheConfig(kv_cache_dtype="float32")
    )
    server = ServerConfig(port=0, served_model_names=(model,))
    with tempfile.TemporaryDirectory() as name, started_server(engine, server) as started:
        folder = Path(name)
        tokenizer.save_pretrained(folder / "tokenizer")
        task = (TASK / "facts.yaml").read_text().replace("FACTS", str(TASK / "facts.jsonl"))
        (folder / "facts.yaml").write_text(task)
        arguments = {
            "model": model,
            "base_url": f"{started.url}/v1/completions",
            "tokenizer": folder / "tokenizer",
            "tokenizer_backend": "huggingface",
            "num_concurrent": 8,
            "max_length": 2048,
        }
        subprocess.run(
            [
                lm_eval, "run", "--model", "local-completions", "--tasks", "octavo_facts",
                "--include_path", str(folder), "--output_path", str(folder / "out"), "--log_samples",
                "--model_args", ",".join(f"{key}={value}" for key, value in arguments.items()),
            ],
            check=True,
            stdout=sys.stderr,
        )  # fmt: skip
        (samples,) = (folder / "out").rglob("samples_*.jsonl")
        (results,) = (folder / "out").rglob("results_*.json")
        asked = [json.loads(line) for line in samples.read_text().splitlines()]
        accuracy = json.loads(results.read_text())["results"]["octavo_facts"]["acc,none"]
    oracle = oracle_of(path)
    differences = [abs(ours - logprob_of(oracle, tokenizer, *pair)) for pair, ours in pairs(asked)]
    sys.stdout.write(
        f"{len(asked)} questions, {len(differences)} continuations; accuracy {accuracy:.2f}; "
        f"log-probabilities within {max(differences):.1e} nat of transformers' (float32; bound {BOUND})\n"
    )
    return 0 if max(differences) <= BOUND else 1


def oracle_of(path: Path) -> Any:
    """transformers' model with the weights of a GGUF file, in float32."""
    model = load_model(path)
    config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    oracle = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    weights = {
        config_tensor_name(name, model.spec): torch.from_numpy(weight.to_float32())
        for name, weight in model.weights.items()
    }
    missing, unknown = oracle.load_state_dict(weights, strict=False)
    assert not unknown and set(missing) <= {"lm_head.weight"}, (missing, unknown)
    oracle.tie_weights()
    return oracle.eval()


def pairs(samples: list[dict[str, Any]]) -> Iterator[tuple[tuple[str, str], float]]:
    """Each context and continuation that was asked for, and its log-probability."""
    for sample in samples:
        for asked, (answer,) in zip(sample["arguments"].values(), sample["resps"], strict=True):
            yield (asked["arg_0"], asked["arg_1"]), float(answer[0])


def logprob_of(oracle: Any, tokenizer: Any, context: str, continuation: str) -> float:
    """The log-probability of a continuation, as transformers computes it."""
    before = tokenizer(context)["input_ids"]
    ids = tokenizer(context + continuation)["input_ids"]
    with torch.no_grad():
        logprobs = torch.log_softmax(oracle(torch.tensor([ids])).logits[0].double(), dim=-1)
    return sum(float(logprobs[i - 1, ids[i]]) for i in range(len(before), len(ids)))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
