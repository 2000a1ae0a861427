"""Hugging Face transformers: what most people start from."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from octavo.evaluation.comparison.peers.environment import Environment
from octavo.evaluation.comparison.peers.peer import Job, PeerError, Run, Setting
from octavo.evaluation.comparison.peers.script import run_script
from octavo.progress import Progress


class TransformersPeer:
    """Static batches of bfloat16, in the order of the requests; each batch runs until its longest request ends."""

    name = "transformers"
    num_pairs = 2
    first: int | None = 32
    _environment = Environment("transformers", ("transformers==5.24.0", "torch==2.13.0"))

    def set_up(self, progress: Progress) -> Mapping[str, str]:
        """Install it."""
        return self._environment.set_up(progress)

    @property
    def python(self) -> Path:
        """The interpreter that has it."""
        return self._environment.python

    def settings(self, job: Job) -> Sequence[Setting]:
        """Batch sizes that the requests fill."""
        sizes = sorted({min(size, len(job.items)) for size in (8, 16, 32)})
        return [{"batch": str(size)} for size in sizes]

    def run(self, job: Job, setting: Setting) -> Run:
        """One leg."""
        return run_script(
            self._environment, "transformers_static.py", folder_of(job), job, setting, {}
        )


def folder_of(job: Job) -> Path:
    """The folder of bfloat16 weights. Raises PeerError for a model that has none."""
    if job.model.folder is None:
        raise PeerError("this model has no folder of bfloat16 weights here")
    return job.model.folder
