import subprocess
import sys
import time

import pytest

from support.command import environment, octavo

COMMANDS = (
    "serve",
    "generate",
    "chat",
    "run-batch",
    "pull",
    "doctor",
    "plan",
    "bench",
    "eval",
    "simulate",
)


def test_help_lists_the_commands() -> None:
    result = octavo("--help")
    assert result.returncode == 0
    for command in COMMANDS:
        assert f"  {command} " in result.stdout


@pytest.mark.parametrize("command", [*COMMANDS, "bench throughput", "eval golden", "simulate run"])
def test_every_command_explains_itself(command: str) -> None:
    result = octavo(*command.split(), "--help")
    assert result.returncode == 0, result.stderr
    assert "Usage:" in result.stdout


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, octavo.cli.app\n"
        "heavy = {'numpy', 'torch', 'transformers', 'tokenizers', 'fastapi', 'pydantic', 'uvicorn', 'msgspec',"
        " 'zmq', 'jinja2', 'huggingface_hub', 'asyncio', 'rich.progress', 'octavo._C'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_help_is_quick() -> None:
    octavo("--help")  # compiles what was never imported
    times = []
    for _ in range(3):
        start = time.perf_counter()
        octavo("--help")
        times.append(time.perf_counter() - start)
    assert min(times) < 1.0  # 0.1 s on an idle machine; only a heavy import takes this long


def test_an_unknown_command_gets_the_nearest() -> None:
    result = octavo("server")
    assert result.returncode == 2
    assert "serve" in result.stderr


def test_the_version() -> None:
    result = octavo("--version")
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()[0].isdigit()
