"""OpenVINO GenAI."""

from collections.abc import Mapping, Sequence

from octavo.evaluation.comparison.peers.environment import Environment
from octavo.evaluation.comparison.peers.peer import Job, Run, Setting
from octavo.evaluation.comparison.peers.script import run_script
from octavo.progress import Progress


class OpenVinoPeer:
    """Continuous batching of the GGUF file itself, with its own default precision of the cache (8 bits)."""

    name = "openvino"
    num_pairs = 4
    first: int | None = None
    _environment = Environment("openvino", ("openvino-genai==2026.4.1.0", "numpy"))

    def set_up(self, progress: Progress) -> Mapping[str, str]:
        """Install it."""
        return self._environment.set_up(progress)

    def settings(self, job: Job) -> Sequence[Setting]:
        """All requests run at once."""
        return [{"max_num_seqs": str(max(8, len(job.items)))}]

    def run(self, job: Job, setting: Setting) -> Run:
        """One leg."""
        return run_script(
            self._environment, "openvino_batching.py", job.model.gguf, job, setting, {}
        )
