"""A model in this process, for commands with one user."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

from octavo.cli.flags import Settings
from octavo.cli.pull import with_fetched_model
from octavo.cli.terminal import progress_bar
from octavo.core.sampling_params import SamplingParams
from octavo.engine.build import BuiltEngine, build_engine
from octavo.engine.messages import RequestEnd, Submit
from octavo.engine.named_errors import error_named
from octavo.engine.prompts import token_id_array
from octavo.engine.seeds import SeedSource
from octavo.errors import TemplateError
from octavo.offline.interrupts import DeferredInterrupt
from octavo.text.assets import TextAssets, load_text_assets
from octavo.text.output_text import OutputText, TextDelta


class LocalModel:
    """An engine and the text side of its model. One request at a time."""

    def __init__(self, built: BuiltEngine, assets: TextAssets, seed: int | None) -> None:
        self._engine = built.engine
        self._assets = assets
        self._seeds = SeedSource(seed)
        self._ids = count()
        self.name = built.model.name
        self.tokenizer = assets.tokenizer

    def sampling(
        self, settings: Settings, max_tokens: int, *, is_chat: bool = False
    ) -> SamplingParams:
        """What the flags say, else what the model's authors recommend. Raises InvalidParameterError."""
        defaults = self._assets.sampling_defaults
        if is_chat:
            defaults = settings.chat_defaults(defaults)
        return settings.sampling({**defaults, "max_tokens": max_tokens})

    def chat_prompt(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        """The token ids of a conversation whose next turn is the model's. Raises TemplateError."""
        if self._assets.chat_template is None:
            raise TemplateError(
                f"{self.name} has no chat template; give one with --chat-template, or use octavo generate without --chat"
            )
        text = self._assets.chat_template.render([*messages])
        return self.tokenizer.encode(text, add_special_tokens=False)

    def answer(
        self, prompt_token_ids: list[int], params: SamplingParams
    ) -> Iterator[tuple[TextDelta, list[int]]]:
        """New text and token ids, step by step; the last has a finish reason.

        Ctrl-C raises KeyboardInterrupt between two steps, never in one. Raises UserError for what can never
        run, RequestFailedError for what failed.
        """
        request_id = f"local-{next(self._ids)}"
        token_ids = token_id_array(prompt_token_ids).tobytes()
        self._engine.submit(Submit(request_id, token_ids, params, self._seeds.next(params.seed)))
        text = OutputText(self.tokenizer, params, prompt_token_ids)
        try:
            with DeferredInterrupt() as interrupt:
                while self._engine.has_work:
                    outputs = self._engine.step()
                    _raise_failure(outputs.ends)
                    for output in outputs.sequences:
                        delta = text.add(output.token_ids, output.finish_reason, output.stop_reason)
                        yield delta, output.token_ids[: delta.num_tokens]
                        if delta.finish_reason is not None:
                            return
                    interrupt.check()
        finally:
            self._engine.abort([request_id])


@contextmanager
def open_local(
    model: str, settings: Settings, chat_template: str | None = None
) -> Iterator[LocalModel]:
    """Fetch and load a model. Raises what building an engine raises."""
    config = with_fetched_model(settings.engine(model, max_num_seqs=1))
    with progress_bar() as progress:
        built = build_engine(config, progress=progress)
    try:
        yield LocalModel(built, load_text_assets(config.model, chat_template), config.seed)
    finally:
        built.engine.close()


def _raise_failure(ends: Sequence[RequestEnd]) -> None:
    for end in ends:
        if end.error is not None:
            raise error_named(end.error_type, end.error)
