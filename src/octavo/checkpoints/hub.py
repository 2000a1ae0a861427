"""Models of the Hugging Face hub, fetched and kept by its own client (its cache, its token, its settings)."""

from pathlib import Path
from typing import NoReturn

from octavo.errors import DownloadError

FOLDER_FILES = (
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.*",
)
"""What a model folder is read from."""


def fetch_from_hub(
    repo_id: str, gguf: str | None, *, revision: str | None = None, download: bool = True
) -> Path:
    """A repository's folder (safetensors), or one GGUF file of it: `gguf` is its name or a label in it, like Q8_0.

    Without `download` only what the hub's cache holds is used. Raises DownloadError.
    """
    # Half a second of imports that a local model never needs.
    import huggingface_hub
    from huggingface_hub.errors import HFValidationError

    try:
        if gguf is not None:
            return _gguf_file(repo_id, gguf, revision, download=download)
        folder = Path(
            huggingface_hub.snapshot_download(
                repo_id,
                revision=revision,
                allow_patterns=list(FOLDER_FILES),
                ignore_patterns=["*/*"],  # other formats and older weights live in sub-folders
                local_files_only=not download,
            )
        )
        if not any(folder.glob("*.safetensors")):
            _no_weights(repo_id, revision, download=download)
        return folder
    except (HFValidationError, _http_error(), OSError, RuntimeError) as error:
        # RuntimeError: the client closes and offline mode says so with a subclass of it.
        raise DownloadError(
            f"could not fetch {repo_id} from the hub: {_first_line(error)}. Check the name, the network and, "
            "for a gated model, HF_TOKEN; or give the path of a local copy"
        ) from error


def fetch_config_from_hub(repo_id: str, *, revision: str | None = None) -> Path:
    """The folder with a repository's config.json, and nothing else that was not there. Raises DownloadError."""
    import huggingface_hub
    from huggingface_hub.errors import HFValidationError

    try:
        return Path(
            huggingface_hub.hf_hub_download(repo_id, "config.json", revision=revision)
        ).parent
    except (HFValidationError, _http_error(), OSError, RuntimeError) as error:
        raise DownloadError(
            f"could not fetch the config.json of {repo_id} from the hub: {_first_line(error)}. A repository of "
            "GGUF files has none: fetch the file (octavo pull), or give the model's sizes by flags"
        ) from error


def _gguf_file(repo_id: str, wanted: str, revision: str | None, *, download: bool) -> Path:
    from huggingface_hub import hf_hub_download

    names, download = _reachable_gguf_names(repo_id, revision, download=download)
    file_name = wanted
    if not wanted.lower().endswith(".gguf"):
        matching = [name for name in names if wanted.lower() in name.lower()]
        if len(matching) != 1:
            raise DownloadError(
                f"{repo_id}:{wanted} must mean exactly one GGUF file; it fits "
                f"{', '.join(matching) or 'none'} of: {', '.join(names) or 'no GGUF files'}"
            )
        file_name = matching[0]
    return Path(
        hf_hub_download(repo_id, file_name, revision=revision, local_files_only=not download)
    )


def _reachable_gguf_names(
    repo_id: str, revision: str | None, *, download: bool
) -> tuple[list[str], bool]:
    """The names, and whether the hub answered. Without a network what was fetched before serves."""
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return _gguf_names(repo_id, revision, download=download), download
    except _http_error() as error:
        if isinstance(error, HfHubHTTPError):  # an answer, if not a good one
            raise
        try:
            return _gguf_names(repo_id, revision, download=False), False
        except LocalEntryNotFoundError:
            raise error from None


def _http_error() -> type[Exception]:
    """What the hub's client raises, and what carries its requests."""
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]  # of the latter

    error: type[Exception] = HTTPError
    return error


def _gguf_names(repo_id: str, revision: str | None, *, download: bool) -> list[str]:
    from huggingface_hub import HfApi, snapshot_download

    if download:
        # Not list_repo_files: without a network that tries again for half a minute.
        files = HfApi().model_info(repo_id, revision=revision).siblings or []
        names = [file.rfilename for file in files]
    else:
        folder = Path(snapshot_download(repo_id, revision=revision, local_files_only=True))
        names = [str(path.relative_to(folder)) for path in folder.rglob("*")]
    return sorted(name for name in names if name.lower().endswith(".gguf"))


def _no_weights(repo_id: str, revision: str | None, *, download: bool) -> NoReturn:
    names = _gguf_names(repo_id, revision, download=download)
    if names:
        raise DownloadError(
            f"{repo_id} holds GGUF files; name one of them: {repo_id}:FILE, where FILE is {', '.join(names)}"
        )
    raise DownloadError(f"{repo_id} holds neither safetensors nor GGUF files")


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0].rstrip(".")
