"""Hub ids, through the real client, against a hub on this machine."""

import os
import subprocess
import sys
import time
from pathlib import Path

from support.fake_hub import fake_hub

FOLDER = {
    "config.json": b"{}",
    "model.safetensors": b"weights",
    "tokenizer.json": b"{}",
    "chat_template.jinja": b"{{ messages }}",
    "README.md": b"not needed",
    "pytorch_model.bin": b"not needed",
    "onnx/model.safetensors": b"not needed",
}
GGUFS = {
    "toy.Q4_K_M.gguf": b"GGUF-q4",
    "toy.Q8_0.gguf": b"GGUF-q8",
    "README.md": b"about",
}
SCRIPT = """
import sys
from octavo.checkpoints.locate import locate
from octavo.errors import OctavoError
try:
    print(locate(sys.argv[1], download=sys.argv[2] == "download"))
except OctavoError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


def locate_in_child(
    endpoint: str, home: Path, model: str, *, download: bool = True
) -> subprocess.CompletedProcess[str]:
    """The hub's client reads its settings when it is imported: hence a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, model, "download" if download else "local"],
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("HF_")},
            "PYTHONPATH": os.pathsep.join(sys.path),
            "HF_ENDPOINT": endpoint,
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_XET": "1",
        },
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_folder_brings_what_a_model_needs_and_no_more(tmp_path: Path) -> None:
    with fake_hub("org/toy", FOLDER) as endpoint:
        result = locate_in_child(endpoint, tmp_path, "org/toy")
    assert result.returncode == 0, result.stderr
    folder = Path(result.stdout.strip())
    names = sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))
    assert names == ["chat_template.jinja", "config.json", "model.safetensors", "tokenizer.json"]
    # What was fetched once is found without the hub.
    offline = locate_in_child("http://127.0.0.1:1", tmp_path, "org/toy", download=False)
    assert offline.stdout == result.stdout, offline.stderr


def test_one_gguf_file_by_name_or_by_label(tmp_path: Path) -> None:
    with fake_hub("org/toy-GGUF", GGUFS) as endpoint:
        by_name = locate_in_child(endpoint, tmp_path, "org/toy-GGUF:toy.Q8_0.gguf")
        by_label = locate_in_child(endpoint, tmp_path, "org/toy-GGUF:q8_0")
        assert Path(by_name.stdout.strip()).read_bytes() == b"GGUF-q8", by_name.stderr
        assert by_label.stdout == by_name.stdout

        without = locate_in_child("http://127.0.0.1:1", tmp_path, "org/toy-GGUF:q8_0")
        assert without.stdout == by_name.stdout, without.stderr

        vague = locate_in_child(endpoint, tmp_path, "org/toy-GGUF:Q")
        assert "it fits toy.Q4_K_M.gguf, toy.Q8_0.gguf" in vague.stderr
        unnamed = locate_in_child(endpoint, tmp_path, "org/toy-GGUF")
        assert "org/toy-GGUF:FILE, where FILE is toy.Q4_K_M.gguf, toy.Q8_0.gguf" in unnamed.stderr


def test_what_the_hub_does_not_have_is_a_download_error(tmp_path: Path) -> None:
    with fake_hub("org/toy", FOLDER) as endpoint:
        for model in ("org/absent", "org/toy:absent.gguf", "org/absent:Q8_0"):
            result = locate_in_child(endpoint, tmp_path, model)
            assert result.returncode == 1
            assert result.stderr.splitlines()[-1].startswith("DownloadError: could not fetch org/")


def test_without_a_network_it_says_so_once_and_soon(tmp_path: Path) -> None:
    for model in ("org/toy", "org/toy:Q8_0", "org/toy:toy.gguf"):
        started = time.monotonic()
        unreachable = locate_in_child("http://127.0.0.1:1", tmp_path, model)
        (line,) = unreachable.stderr.splitlines()
        assert line.startswith("DownloadError: could not fetch org/toy from the hub")
        assert time.monotonic() - started < 10  # about a second; the client's retries take 23
