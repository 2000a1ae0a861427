"""Octavo: an LLM serving engine built on paged attention.

The public names are imported when they are first used: `import octavo` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo.config import (
        Backend,
        CacheConfig,
        EngineConfig,
        ModelConfig,
        SchedulerConfig,
        SchedulingPolicy,
        ServerConfig,
    )
    from octavo.core.beam_search import BeamSearchParams
    from octavo.core.sampling_params import SamplingParams
    from octavo.core.structured_outputs import StructuredOutputsParams
    from octavo.errors import OctavoError, UserError
    from octavo.llm import LLM
    from octavo.outputs import CompletionOutput, Logprob, RequestOutput

    __version__: str

__all__ = [
    "LLM",
    "Backend",
    "BeamSearchParams",
    "CacheConfig",
    "CompletionOutput",
    "EngineConfig",
    "Logprob",
    "ModelConfig",
    "OctavoError",
    "RequestOutput",
    "SamplingParams",
    "SchedulerConfig",
    "SchedulingPolicy",
    "ServerConfig",
    "StructuredOutputsParams",
    "UserError",
    "__version__",
]

_MODULES = {
    "octavo.config": (
        "Backend",
        "CacheConfig",
        "EngineConfig",
        "ModelConfig",
        "SchedulerConfig",
        "SchedulingPolicy",
        "ServerConfig",
    ),
    "octavo.core.beam_search": ("BeamSearchParams",),
    "octavo.core.sampling_params": ("SamplingParams",),
    "octavo.core.structured_outputs": ("StructuredOutputsParams",),
    "octavo.errors": ("OctavoError", "UserError"),
    "octavo.llm": ("LLM",),
    "octavo.outputs": ("CompletionOutput", "Logprob", "RequestOutput"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # late: it walks the installed packages

        value: Any = version("octavo")
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'octavo' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
