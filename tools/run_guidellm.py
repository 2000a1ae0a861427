"""Run guidellm, a load generator for servers that speak OpenAI's API, against a server of its own.

    .venv/bin/python tools/run_guidellm.py [MODEL]

MODEL: a name of the model cache (default: smollm2). guidellm is installed into an environment of its own in the
cache. Prints its reports; exits with 1 if a request failed or an answer is not as long as was asked for.
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
from octavo.evaluation.comparison.peers.environment import Environment
from octavo.progress import silent

ENVIRONMENT = Environment("guidellm", ("guidellm==0.8.1", "torch==2.13.0"))
ROUTES = ("/v1/completions", "/v1/chat/completions", "/v1/responses")
NUM_REQUESTS, PROMPT_LEN, ANSWER_LEN, NUM_STREAMS = 64, 128, 64, 16


def main(model: str = "smollm2") -> int:
    """Send requests to every route; 0 if all were answered."""
    tokenizer = cached_bf16_folder(locate(model))
    versions = ENVIRONMENT.set_up(silent)
    engine = EngineConfig(model=ModelConfig(model=model))
    server = ServerConfig(port=0, served_model_names=(model,))
    is_right = True
    with started_server(engine, server) as started:
        for route in ROUTES:
            report, found = measure(started.url, model, tokenizer, route)
            is_right &= is_complete(found, route)
            sys.stdout.write(f"\n{versions} {route}\n{report}\n")
            sys.stdout.flush()
    return 0 if is_right else 1


def measure(url: str, model: str, tokenizer: Path, route: str) -> tuple[str, dict[str, Any]]:
    """The report that guidellm prints for one route, and its figures."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [
            str(ENVIRONMENT.folder / "bin" / "guidellm"), "run",
            "--backend", f"kind=openai_http,target={url},model={model},request_format={route}",
            "--profile", f"kind=concurrent,streams={NUM_STREAMS}",
            "--constraint", f"kind=max_requests,count={NUM_REQUESTS}",
            "--data", f"kind=synthetic_text,prompt_tokens={PROMPT_LEN},output_tokens={ANSWER_LEN}",
            "--tokenizer", f"kind=huggingface_auto,model={tokenizer}",
            "--output", f"kind=json,path={result}", "--output", "kind=console",
            "--disable-console-interactive",
        ]  # fmt: skip
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "COLUMNS": "140"}
        done = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True, env=environment
        )
        found: dict[str, Any] = json.loads(result.read_text())
    _, mark, report = done.stdout.rpartition("ℹ Run Summary Info")
    return mark + report.rstrip(), found


def is_complete(found: dict[str, Any], route: str) -> bool:
    """Whether each request was answered, with as many tokens as it asked for."""
    (benchmark,) = found["benchmarks"]
    totals = benchmark["metrics"]["request_totals"]
    answers = benchmark["requests"]["successful"]
    lengths = {answer["output_metrics"]["text_tokens"] for answer in answers}
    is_right: bool = len(answers) == totals["total"] == NUM_REQUESTS and lengths == {ANSWER_LEN}
    if not is_right:
        sys.stderr.write(f"{route}: {totals}; tokens of answers: {lengths}\n")
    return is_right


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
