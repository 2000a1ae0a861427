"""`import octavo` costs nothing, and gives every public name when it is asked for."""

import os
import subprocess
import sys

import pytest

import octavo


def run(code: str) -> str:
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path))
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys, octavo; print([m for m in sys.modules if m.startswith(('octavo.', 'numpy', 'msgspec'))])"
    assert run(code) == "[]"


def test_every_public_name_exists() -> None:
    for name in octavo.__all__:
        if name != "__version__":  # needs an installed package
            assert getattr(octavo, name) is not None
    assert set(octavo.__all__) <= set(dir(octavo))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        octavo.nothing  # noqa: B018


def test_the_offline_interface_needs_no_server_and_no_torch() -> None:
    code = (
        "import sys; from octavo import LLM, SamplingParams;"
        "print(sorted({'fastapi', 'pydantic', 'zmq', 'torch', 'transformers', 'rich', 'asyncio'} & set(sys.modules)))"
    )
    assert run(code) == "[]"
