"""From what the user calls a model to a file or folder on this machine."""

import difflib
import re
from pathlib import Path

from octavo.checkpoints.model_download import pull
from octavo.checkpoints.named_models import NAMED_MODELS, cached_path
from octavo.errors import CheckpointError, ConfigError, DownloadError
from octavo.progress import Progress, silent

HUB_ID = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?::(?P<gguf>[^:]+))?")
FILE_SUFFIXES = (".gguf", ".safetensors", ".json")


def locate(
    model: str,
    *,
    revision: str | None = None,
    download: bool = True,
    accept_license: bool = False,
    progress: Progress = silent,
) -> Path:
    """The GGUF file or model folder that `model` means, fetched if it is not here and `download` allows.

    A name of the table (`smollm2`; a folder of that name is `./smollm2`), a path, a hub id (`org/name`),
    or a GGUF file of a hub id (`org/name:file.gguf`, `org/name:Q8_0`).
    Raises CheckpointError for what does not exist, DownloadError for what could not be fetched, ConfigError for a
    revision of what has none.
    """
    check_revision(model, revision)
    if named := NAMED_MODELS.get(model):
        if path := cached_path(named):
            return path
        if not download:
            raise DownloadError(f"{model} is not in the cache; fetch it with: octavo pull {model}")
        return pull(named, accept_license=accept_license, progress=progress)
    if _is_path(model):
        return Path(model).expanduser()
    hub_id = HUB_ID.fullmatch(model)
    if hub_id is None or _is_written_as_path(model, hub_id["gguf"]):
        raise CheckpointError(_nothing_called(model))
    # Only a hub id needs the hub's client.
    from octavo.checkpoints.hub import fetch_from_hub

    return fetch_from_hub(hub_id["repo"], hub_id["gguf"], revision=revision, download=download)


def check_revision(model: str, revision: str | None) -> None:
    """Raise ConfigError for a revision of anything but a hub id: it would have no effect."""
    if revision is not None and (model in NAMED_MODELS or _is_path(model)):
        raise ConfigError(
            f"revision is for hub ids (org/name), and {model} is none; given: {revision}"
        )


def is_local(model: str) -> bool:
    """Whether `locate` finds the model without any download."""
    named = NAMED_MODELS.get(model)
    return cached_path(named) is not None if named else _is_path(model)


def _is_path(model: str) -> bool:
    """Whether there is such a file or folder; an empty path would be the current folder."""
    return bool(model) and Path(model).expanduser().exists()


def _is_written_as_path(model: str, gguf: str | None) -> bool:
    return model.startswith(("/", "./", "../", "~")) or (
        gguf is None and model.endswith(FILE_SUFFIXES)
    )


def _nothing_called(model: str) -> str:
    known = ", ".join(NAMED_MODELS)
    near = difflib.get_close_matches(model, NAMED_MODELS, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return (
        f"there is no model {model!r}: not a file or folder, not one of the names {known}, "
        f"and not a hub id like org/name.{hint}"
    )
