"""An engine process that says what its prompts tell it to say: `start_engine_process(..., module=MODULE)`.

A prompt that holds `<unk>SCRIPT<unk>` forces the tokens of SCRIPT, then the end token. Any other prompt is answered by
the fake runner, depending on every token before. Pages, scheduling, messages and processes are the real ones.
A script may begin with control characters; they are orders and are not said:
"""

import sys
import time
from array import array
from enum import IntEnum

from octavo.core.step import Runner, Sample, StepPlan, StepResult
from octavo.engine.process import main
from support.fake_runner import FakeRunner, RowError, hashed
from support.text_model import EOS

MODULE = "support.scripted_engine"
MARK = 0
"""Token id of `<unk>`."""
FILLER = ord("x") - ord("!") + 4
"""Said in place of a token that may not be drawn now."""
SLOW_STEP_S = 0.01
FIRST_BYTE = 4 + 94 + 12 + 82
"""Token id of byte 0: the byte-level alphabet puts the 188 printable bytes first, then the others from 0 on."""


class Order(IntEnum):
    """Control characters at the beginning of a script."""

    NOT_FINITE = 1
    """When the script is over, the row has no answer, as when its logits are not finite."""
    BLOCK = 2
    """When the script is over, the step never ends."""
    RAISE = 3
    """When the script is over, the step raises."""
    SLOW = 4
    """Steps take SLOW_STEP_S."""
    REPEAT = 5
    """The script is said again and again."""


_ORDER_OF_TOKEN = {FIRST_BYTE + order: order for order in Order}


def read_script(prompt: "array[int]") -> tuple[set[Order], "array[int]"] | None:
    """The orders and tokens between the first and the last mark of a prompt."""
    ids = prompt.tolist()
    if ids.count(MARK) < 2:
        return None
    first = ids.index(MARK)
    script = prompt[first + 1 : len(ids) - 1 - ids[::-1].index(MARK)]
    orders: set[Order] = set()
    while script and script[0] in _ORDER_OF_TOKEN:
        orders.add(_ORDER_OF_TOKEN[script[0]])
        script = script[1:]
    return orders, script


def scripted(history: "array[int]", sample: Sample) -> int:
    """The token that the script has at this place."""
    read = read_script(sample.token_ids[: sample.prompt_len])
    if read is None:
        return hashed(history, sample)
    orders, script = read
    index = sample.output_index
    if Order.REPEAT in orders:
        index %= len(script)
    if index >= len(script):
        _end(orders)
    token_id = script[index] if index < len(script) else EOS
    return FILLER if token_id in sample.suppressed_token_ids else token_id


def _end(orders: set[Order]) -> None:
    if Order.NOT_FINITE in orders:
        raise RowError("the logits are not finite")
    if Order.BLOCK in orders:
        time.sleep(3600)
    if Order.RAISE in orders:
        raise RuntimeError("the step was told to fail")


class ScriptedRunner(FakeRunner):
    """A fake runner that follows scripts."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(num_blocks, block_size, choose=scripted)

    def run(self, plan: StepPlan) -> StepResult:
        """As the fake runner, slowly if ordered."""
        scripts = (
            read_script(sample.token_ids[: sample.prompt_len])
            for step in plan.seqs
            for sample in step.samples
        )
        if any(script is not None and Order.SLOW in script[0] for script in scripts):
            time.sleep(SLOW_STEP_S)
        return super().run(plan)


def script_runner(runner: Runner) -> Runner:
    """A scripted runner of the same size."""
    return ScriptedRunner(runner.num_blocks, runner.block_size)


if __name__ == "__main__":
    sys.exit(main(script_runner))
