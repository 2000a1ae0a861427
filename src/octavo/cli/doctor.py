"""`octavo doctor`: what this machine is, and whether Octavo runs on it."""

import os
import platform
import socket
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import typer

from octavo.checkpoints.named_models import NAMED_MODELS, cache_dir, cached_path
from octavo.cli.terminal import Output, OutputOption, print_json, print_table
from octavo.config import ServerConfig
from octavo.errors import PlatformError
from octavo.machine import (
    check_platform,
    gpu_devices,
    inspect_machine,
    transparent_huge_pages,
)
from octavo.resolve import GIB


def doctor(output: OutputOption = Output.TEXT) -> None:
    """Show the machine, its instruction set and memory, and the model formats; exit 1 if something is wrong."""
    problems: list[str] = []
    report = {
        "octavo": _version(problems),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()} {platform.release()}",
        **_machine(problems),
        **_instruction_set(problems),
        **_formats(),
        "port": _port(),
        "cache_dir": _cache_dir(problems),
        "models": {name: _where(name) for name in NAMED_MODELS},
        "problems": problems,
    }
    if output is Output.JSON:
        print_json(report)
    else:
        print_table(_for_people(report))
    if problems:
        raise typer.Exit(1)


def _version(problems: list[str]) -> str | None:
    try:
        return version("octavo")
    except PackageNotFoundError:
        problems.append("octavo is not installed in this environment; only its sources are found")
        return None


def _machine(problems: list[str]) -> dict[str, Any]:
    try:
        check_platform()
        machine = inspect_machine()
    except PlatformError as error:
        problems.append(str(error))
        return {}
    return {
        "cpu": machine.cpu_model,
        "num_cpus": machine.num_cpus,
        "num_cores": machine.num_cores,
        "cpu_quota": machine.cpu_quota,
        "num_threads": machine.num_threads,
        "memory_total_bytes": machine.memory_total,
        "memory_available_bytes": machine.memory_available,
        "transparent_huge_pages": transparent_huge_pages(),
        "gpus": gpu_devices(),
    }


def _instruction_set(problems: list[str]) -> dict[str, Any]:
    try:
        # Loads the compiled kernels: what is to be found out is whether they load.
        from octavo import _C
    except ImportError as error:
        problems.append(f"the compiled kernels do not load: {error}")
        return {"instruction_set": None}
    try:
        return {"instruction_set": _C.isa()}
    except ValueError as error:  # OCTAVO_ISA names one that this processor lacks
        problems.append(str(error))
        return {"instruction_set": None}


def _formats() -> dict[str, Any]:
    # numpy comes with these; no other command's --help should wait for it.
    from octavo.checkpoints.quants import QuantType
    from octavo.models.families import CONFIG_FAMILIES, GGUF_FAMILIES

    return {
        "formats": ["GGUF", "safetensors"],
        "gguf_types": [quant.name for quant in QuantType],
        "gguf_architectures": list(GGUF_FAMILIES),
        "safetensors_architectures": list(CONFIG_FAMILIES),
    }


def _port() -> str:
    """Whether a server would get the default address now. That one is taken is no fault of the machine."""
    server = ServerConfig()
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((server.host, server.port))
        except OSError as error:
            return f"{server.port} cannot be listened on ({error.strerror}); octavo serve --port 0 takes any"
    return f"{server.port} is free"


def _cache_dir(problems: list[str]) -> str:
    """Where models are kept; a problem if nothing can be written there."""
    folder = cache_dir()
    existing = next((path for path in (folder, *folder.parents) if path.exists()), folder)
    if not (existing.is_dir() and os.access(existing, os.W_OK)):
        problems.append(f"{folder}: cannot be written; set OCTAVO_CACHE to a folder that can")
    return str(folder)


def _where(name: str) -> str | None:
    path = cached_path(NAMED_MODELS[name])
    return None if path is None else str(path)


def _for_people(report: dict[str, Any]) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for name, value in report.items():
        if name.endswith("_bytes"):
            rows[name.removesuffix("_bytes")] = f"{value / GIB:.1f} GiB"
        elif name == "models":
            rows |= {f"model {model}": path or "not fetched" for model, path in value.items()}
        elif name == "problems":
            rows["problems"] = value
        else:
            rows[name] = value
    return {name.replace("_", " "): value for name, value in rows.items()}
