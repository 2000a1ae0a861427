"""What keys and values depend on besides tokens, as bytes: equal fingerprints, equal bits."""

from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path

import numpy as np

from octavo.config import Backend
from octavo.models.model import Model
from octavo.models.weights import Weight
from octavo.resolve import ResolvedConfig


def fingerprint(model: Model, resolved: ResolvedConfig, instruction_set: str) -> bytes:
    """For the life of one process: the model is known by its path."""
    return _joined(str(model.path), *_settings(model, resolved, instruction_set))


def lasting_fingerprint(model: Model, resolved: ResolvedConfig, instruction_set: str) -> bytes:
    """For pages that are read by another process: the model is known by its weights, the kernels by their code.

    Reads all weights, about a second for a gigabyte and core.
    """
    parts = _settings(model, resolved, instruction_set)
    with ThreadPoolExecutor(resolved.num_threads) as threads:
        digests = threads.map(_digest, (model.weights[name] for name in sorted(model.weights)))
    weights = blake2b(b"".join(digests)).hexdigest()
    return _joined(weights, _code(resolved.backend), str(resolved.block_size), *parts)


def _settings(model: Model, resolved: ResolvedConfig, instruction_set: str) -> tuple[str, ...]:
    return (
        repr(model.spec),
        resolved.backend.value,
        resolved.dtype,
        resolved.kv_cache_dtype,
        instruction_set,
    )


def _joined(*parts: str) -> bytes:
    return "\0".join(parts).encode("utf-8", "surrogateescape")


def _digest(weight: Weight) -> bytes:
    """Of a weight's name, form and numbers."""
    form = f"{weight.name} {weight.quant.name} {weight.shape} {weight.offset}"
    hashed = blake2b(form.encode())
    hashed.update(np.ascontiguousarray(weight.data).data)
    return hashed.digest()


def _code(backend: Backend) -> str:
    """What computes: a build of the kernels, or a version of numpy."""
    if backend is Backend.REFERENCE:
        return f"numpy {np.__version__}"
    from octavo import _C  # here, as the runners

    return blake2b(Path(_C.__file__).read_bytes()).hexdigest()
