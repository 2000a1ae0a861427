"""What a process must not load, whatever it could import. The layers themselves are checked by import-linter."""

import subprocess
import sys

import pytest

from support.command import environment

ML = ("torch", "transformers", "triton")
NUMERIC = ("numpy", *ML)
THIRD_PARTY = (
    *NUMERIC, "msgspec", "zmq", "pydantic", "fastapi", "tokenizers", "jinja2", "octavo._C",
)  # fmt: skip


def loaded(module: str, unwanted: tuple[str, ...]) -> str:
    code = f"import sys, {module}; print(sorted(set({unwanted!r}) & set(sys.modules)))"
    return subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.parametrize(
    "module",
    [
        "octavo.core.scheduler",
        "octavo.core.block_tables",
        "octavo.core.step",
        "octavo.config",
        "octavo.errors",
        "octavo.resolve",
        "octavo.machine",
    ],
)
def test_the_core_needs_the_standard_library_only(module: str) -> None:
    assert loaded(module, THIRD_PARTY) == "[]"


@pytest.mark.parametrize(
    "module",
    [
        "octavo.server.app",
        "octavo.server.serve",
        "octavo.engine.process",
        "octavo.engine.build",
        "octavo.cli.app",
        "octavo.cli.local",
        "octavo.llm",
        "octavo.backends.native.runner",
    ],
)
def test_nothing_loads_torch(module: str) -> None:
    assert loaded(module, ML) == "[]"


def test_starting_the_engine_process_waits_for_nothing_of_http() -> None:
    assert (
        loaded("octavo.server.serve", ("fastapi", "uvicorn", "pydantic", "starlette", "numpy"))
        == "[]"
    )


def test_the_engine_process_loads_nothing_of_http_and_text() -> None:
    """They would take a third of a second and 60 MB."""
    modules = "octavo.engine.process, octavo.engine.service, octavo.engine.build, octavo.backends.native.runner"
    unwanted = (
        "fastapi", "starlette", "uvicorn", "pydantic", "tokenizers", "jinja2", "typer",
        "prometheus_client", "huggingface_hub",
    )  # fmt: skip
    assert loaded(modules, unwanted) == "[]"


def test_the_command_line_loads_nothing_of_what_its_commands_do() -> None:
    assert (
        loaded("octavo.__main__", ("numpy", "fastapi", "uvicorn", "tokenizers", "jinja2")) == "[]"
    )


def test_the_core_reads_no_clock_and_no_files() -> None:
    """Modules of the standard library that would make a scheduler depend on more than its input."""
    modules = ("time", "random", "threading", "asyncio", "socket", "pathlib")
    before = loaded("sys", modules)
    assert loaded("octavo.core.scheduler", modules) == before
