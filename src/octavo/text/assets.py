"""What turns text into tokens and back for one model; it needs none of the weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from octavo.checkpoints.locate import locate
from octavo.config import ModelConfig
from octavo.models.model import load_generation_defaults
from octavo.text.chat_template import ChatTemplate, load_chat_template
from octavo.text.tokenizer import Tokenizer, load_tokenizer


@dataclass(frozen=True, slots=True)
class TextAssets:
    """The text side of a model."""

    tokenizer: Tokenizer
    chat_template: ChatTemplate | None
    sampling_defaults: Mapping[str, float | int]
    """From the model's generation config; a request's own values win."""
    end_token_ids: frozenset[int]
    """The model's own."""


def load_text_assets(model: ModelConfig, chat_template: str | None) -> TextAssets:
    """Read tokenizer, template and generation config. Raises CheckpointError, DownloadError, TemplateError."""
    path = locate(model.model, revision=model.revision)
    generation = load_generation_defaults(path)
    tokenizer = load_tokenizer(Path(model.tokenizer) if model.tokenizer else path)
    return TextAssets(
        tokenizer=tokenizer,
        chat_template=load_chat_template(path, chat_template, tokenizer),
        sampling_defaults=generation.sampling,
        end_token_ids=generation.end_token_ids,
    )
