"""Whether a folder is a model, told by the names in it."""

from pathlib import Path

from octavo.errors import CheckpointError


def check_model_folder(folder: Path) -> None:
    """Raise CheckpointError, with what is there instead, for a folder without a config.json."""
    if (folder / "config.json").exists():
        return
    ggufs = sorted(path.name for path in folder.glob("*.gguf"))
    if ggufs:
        which = "that path" if len(ggufs) == 1 else "the path of one of them"
        found = f"it holds {', '.join(ggufs)}: give {which}, e.g. {folder / ggufs[0]}"
    else:
        found = "it holds neither" if any(folder.iterdir()) else "it is empty"
    raise CheckpointError(
        f"{folder}: a model is a GGUF file or a folder with a config.json; {found}"
    )
