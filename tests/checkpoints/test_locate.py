from pathlib import Path

import pytest

from octavo.checkpoints.locate import is_local, locate
from octavo.checkpoints.named_models import NAMED_MODELS
from octavo.errors import CheckpointError, ConfigError, DownloadError


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def test_paths_are_taken_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "model.gguf").touch()
    assert locate(str(tmp_path / "folder")) == tmp_path / "folder"
    assert locate("model.gguf") == Path("model.gguf")
    assert is_local("./folder")


def test_a_name_beats_a_folder_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "smollm2").mkdir()
    with pytest.raises(DownloadError, match="octavo pull smollm2"):
        locate("smollm2", download=False)
    assert not is_local("smollm2")
    assert locate("./smollm2") == Path("smollm2")


def test_a_folder_that_looks_like_a_hub_id(tmp_path: Path) -> None:
    (tmp_path / "org/name").mkdir(parents=True)
    assert locate("org/name") == Path("org/name")


@pytest.mark.parametrize(
    "model",
    [
        "./absent",
        "../absent",
        "/absent/model",
        "~/absent",
        "absent.gguf",
        "dir/absent.gguf",
        "",
        "a b/c",
        "a/b/c",
    ],
)
def test_what_cannot_be_a_hub_id_does_not_exist(model: str) -> None:
    with pytest.raises(CheckpointError, match="there is no model"):
        locate(model)


def test_a_misspelt_name_gets_a_hint() -> None:
    with pytest.raises(CheckpointError, match=r"Did you mean smollm2\?"):
        locate("smolllm2")


@pytest.mark.parametrize("model", ["smollm2", "here.gguf"])
def test_only_hub_ids_have_revisions(model: str) -> None:
    Path("here.gguf").touch()
    with pytest.raises(ConfigError, match=rf"revision is for hub ids .* {model} is none"):
        locate(model, revision="v2", download=False)


def test_every_named_model_is_whole() -> None:
    for name, model in NAMED_MODELS.items():
        assert model.name == name
        assert len(model.sha256) == 64
        assert model.num_bytes > 0
        assert all("==" in part.requirement for part in model.parts)
