"""A process that computes logits under the instruction set of its environment: `python -m support.tier_main JOB OUT`.

JOB is JSON: `model`, a path; `prompts`, lists of token ids; `modes`, name -> options of the native runner;
`chunks`, how many tokens are computed at a time. OUT becomes an .npz of [T, V] named mode/chunk/prompt.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from octavo import _C
from octavo.models.model import load_model
from support.backends import make_runner, prompt_logits


def main() -> None:
    """Do the job."""
    job = json.loads(sys.argv[1])
    model = load_model(Path(job["model"]))
    found: dict[str, Any] = {"isa": np.array(_C.isa())}
    num_blocks = max(map(len, job["prompts"])) // 16 + 3
    for name, options in job["modes"].items():
        runner = make_runner("native", model, num_blocks=num_blocks, **options)
        for chunk in job["chunks"]:
            for i, prompt in enumerate(job["prompts"]):
                found[f"{name}/{chunk}/{i}"] = prompt_logits(runner, prompt, chunk=chunk)
        runner.close()
    np.savez(sys.argv[2], **found)


if __name__ == "__main__":
    main()
