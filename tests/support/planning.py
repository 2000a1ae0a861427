"""A small simulated machine."""

from octavo.config import SchedulerConfig
from octavo.planning.costs import Roofline
from octavo.planning.model_numbers import ModelNumbers
from octavo.planning.setups import MachineSetup
from octavo.planning.work import AttentionSpan

MODEL = ModelNumbers(
    name="small",
    span=AttentionSpan(((None, 4),)),
    max_model_len=512,
    weight_bytes=10**9,
    token_weights=4 * 10**8,
    row_weights=10**8,
    key_bytes=4096,
    pair_operations=4096,
)
COSTS = Roofline(MODEL, 50e9, 1e12, 0.001)
SETUP = MachineSetup(MODEL, COSTS, 2048, 512, limits=SchedulerConfig(256, 16))
