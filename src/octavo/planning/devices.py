"""What devices have: memory, bandwidth, speed of computing. Figures of the vendors' data sheets, and their names."""

from collections.abc import Mapping
from dataclasses import dataclass

from octavo.errors import ConfigError
from octavo.machine import Machine

GB = 10**9
GIB = 1024**3
TERA = 1e12
THIS_MACHINE = "cpu"


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator. The memory is the whole of it; drivers keep some."""

    name: str
    memory_bytes: int
    bytes_per_s: float
    """Peak bandwidth of its memory."""
    operations_per_s: float
    """Peak of dense matrix products in bfloat16; for a multiplication and an addition two are counted."""
    source: str
    """Where the figures are from."""

    @property
    def machine(self) -> Machine:
        """Its memory as that of a machine, for the same arithmetic as at the start of a server."""
        return Machine(
            cpu_model=self.name,
            num_cpus=1,
            num_cores=1,
            cpu_quota=None,
            memory_total=self.memory_bytes,
            memory_available=self.memory_bytes,
        )


DEVICES: Mapping[str, Device] = {
    device.name: device
    for device in (
        Device("v100-32gb", 32 * GIB, 900e9, 125 * TERA, "NVIDIA V100 data sheet, SXM2; float16"),
        Device("t4", 16 * GIB, 320e9, 65 * TERA, "NVIDIA T4 data sheet; float16"),
        Device("a10", 24 * GIB, 600e9, 125 * TERA, "NVIDIA A10 data sheet"),
        Device("a100-40gb", 40 * GIB, 1555e9, 312 * TERA, "NVIDIA A100 data sheet, SXM4 40 GB"),
        Device("a100-80gb", 80 * GIB, 2039e9, 312 * TERA, "NVIDIA A100 data sheet, SXM4 80 GB"),
        Device("l4", 24 * GIB, 300e9, 121 * TERA, "NVIDIA L4 data sheet, without sparsity"),
        Device("l40s", 48 * GIB, 864e9, 362 * TERA, "NVIDIA L40S data sheet, without sparsity"),
        Device("h100-80gb", 80 * GIB, 3350e9, 989 * TERA, "NVIDIA H100 data sheet, SXM5"),
        Device("h200", 141 * GB, 4800e9, 989 * TERA, "NVIDIA H200 data sheet, SXM"),
        Device("b200", 180 * GB, 7700e9, 2250 * TERA, "NVIDIA HGX B200 data sheet, a GPU of 8"),
        Device("mi300x", 192 * GB, 5300e9, 1307 * TERA, "AMD Instinct MI300X data sheet"),
    )
}
"""Devices by name. `cpu` is no entry: it is the machine that the command runs on."""


def device_named(name: str) -> Device:
    """The device of this name. Raises ConfigError that lists the names."""
    try:
        return DEVICES[name]
    except KeyError:
        raise ConfigError(
            f"--device must be one of {THIS_MACHINE}, {', '.join(DEVICES)}; given: {name}"
        ) from None
