"""An engine process that says what its prompts tell it to say: `start_engine_process(..., module=MODULE)`.

A prompt that holds `<unk>SCRIPT<unk>` forces the tokens of SCRIPT, then the end token. Any other prompt is answered by
a hash of all tokens before. Scheduling, messages and processes are the real ones; there are no pages behind the block
tables, so that hundreds of long sequences cost little (wrong pages: support.fake_runner).
A script may begin with control characters; they are orders and are not said: `Order`.
"""

import sys
import time
from array import array
from dataclasses import dataclass
from enum import IntEnum

from octavo.core.step import Runner, Sample, SampledToken, SeqId, StepPlan, StepResult
from octavo.engine.process import main
from support.fake_runner import hashed, logprobs_of
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


@dataclass(frozen=True)
class Script:
    """What a prompt orders."""

    orders: frozenset[Order]
    token_ids: list[int]

    @staticmethod
    def read(prompt: list[int]) -> "Script | None":
        """What stands between the first and the last mark of a prompt."""
        if prompt.count(MARK) < 2:
            return None
        first = prompt.index(MARK)
        said = prompt[first + 1 : len(prompt) - 1 - prompt[::-1].index(MARK)]
        orders: set[Order] = set()
        while said and said[0] in _ORDER_OF_TOKEN:
            orders.add(_ORDER_OF_TOKEN[said.pop(0)])
        return Script(frozenset(orders), said)

    def token_at(self, index: int) -> int | None:
        """The token to say, or None when the script ends in a row without an answer."""
        if Order.REPEAT in self.orders:
            index %= len(self.token_ids)
        if index < len(self.token_ids):
            return self.token_ids[index]
        if Order.NOT_FINITE in self.orders:
            return None
        if Order.BLOCK in self.orders:
            time.sleep(3600)
        if Order.RAISE in self.orders:
            raise RuntimeError("the step was told to fail")
        return EOS


class ScriptedRunner:
    """Implements `Runner`."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._scripts: dict[SeqId, Script | None] = {}

    def run(self, plan: StepPlan) -> StepResult:
        """Say what the scripts say."""
        samples = [sample for step in plan.seqs for sample in step.samples]
        scripts = [self._script(sample) for sample in samples]
        if any(script is not None and Order.SLOW in script.orders for script in scripts):
            time.sleep(SLOW_STEP_S)
        tokens = [_answer(*pair) for pair in zip(samples, scripts, strict=True)]
        prompt_logprobs = {
            step.seq_id: [
                logprobs_of(array("i", [step.start + offset]), target, step.num_prompt_logprobs)
                for offset, target in enumerate(step.prompt_targets)
            ]
            for step in plan.seqs
            if step.num_prompt_logprobs is not None
        }
        return StepResult.of(tokens, prompt_logprobs)

    def close(self) -> None:
        """Nothing to give back."""

    def _script(self, sample: Sample) -> Script | None:
        if sample.seq_id not in self._scripts:
            prompt = sample.token_ids[: sample.prompt_len].tolist()
            self._scripts[sample.seq_id] = Script.read(prompt)
        return self._scripts[sample.seq_id]


def _answer(sample: Sample, script: Script | None) -> SampledToken:
    history = sample.token_ids
    token_id = hashed(history, sample) if script is None else script.token_at(sample.output_index)
    if token_id is None:
        return SampledToken(0, error="the logits are not finite")
    if token_id in sample.suppressed_token_ids:
        token_id = FILLER
    if sample.params.logprobs is None:
        return SampledToken(token_id)
    logprobs = logprobs_of(history, token_id, sample.params.logprobs)
    return SampledToken(token_id, logprobs)


def script_runner(runner: Runner) -> Runner:
    """A scripted runner of the same size."""
    return ScriptedRunner(runner.num_blocks, runner.block_size)


if __name__ == "__main__":
    sys.exit(main(script_runner))
