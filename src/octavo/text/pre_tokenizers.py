"""How byte-level BPE vocabularies cut text into words before merging: the kinds that GGUF files name.

A GGUF stores the name only (`tokenizer.ggml.pre`); the patterns are those of the `tokenizer.json` that
each family was published with.
"""

from dataclasses import dataclass

from tokenizers import Regex, pre_tokenizers
from tokenizers.pre_tokenizers import PreTokenizer

from octavo.errors import CheckpointError

DEFAULT_KIND = "default"


@dataclass(frozen=True, slots=True)
class PreTokenizerKind:
    """One way to cut text, and what comes with it."""

    patterns: tuple[str, ...]
    """Applied one after the other; what a pattern matches, and what lies between, become words."""
    ignore_merges: bool = False
    """A word that is itself a token is taken whole."""
    adds_bos: bool = False
    """Whether a prompt begins with BOS when the file has no `add_bos_token`."""

    def build(self) -> PreTokenizer:
        """The pre-tokenizer, which also maps bytes to the printable alphabet of such vocabularies."""
        splits = [pre_tokenizers.Split(Regex(p), behavior="isolated") for p in self.patterns]
        to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([*splits, to_bytes])


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_PUNCTUATION_AND_SPACE = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_PUNCTUATION_AND_SPACE}"
_QWEN2 = rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_PUNCTUATION_AND_SPACE}"
_QWEN35 = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = r"[^\r\n\p{L}\p{N}]?"
_SLASHED = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_TEKKEN = rf"{_CASED}{_UPPER}*{_LOWER}+|{_CASED}{_UPPER}+{_LOWER}*|\p{{N}}|{_SLASHED}"
_GPT4O = (
    rf"{_CASED}{_UPPER}*{_LOWER}+{_CONTRACTION}?|{_CASED}{_UPPER}+{_LOWER}*{_CONTRACTION}?"
    rf"|\p{{N}}{{1,3}}|{_SLASHED}"
)
_DEEPSEEK3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_DEFAULT_KIND = PreTokenizerKind((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"))
_GPT2_KIND = PreTokenizerKind((_GPT2,))
_DIGITS_KIND = PreTokenizerKind((r"\p{N}", _GPT2))
_LLAMA3_KIND = PreTokenizerKind((_LLAMA3,), ignore_merges=True, adds_bos=True)
_LLAMA3_MERGED_KIND = PreTokenizerKind((_LLAMA3,))
_QWEN2_KIND = PreTokenizerKind((_QWEN2,))
_GPT4O_KIND = PreTokenizerKind((_GPT4O,))

PRE_TOKENIZER_KINDS: dict[str, PreTokenizerKind] = {
    DEFAULT_KIND: _DEFAULT_KIND,
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "jais", "exaone4", "gigachat"), _GPT2_KIND),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"),
        _DIGITS_KIND,
    ),
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2"), _LLAMA3_KIND
    ),
    **dict.fromkeys(("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), _LLAMA3_MERGED_KIND),
    **dict.fromkeys(
        ("qwen2", "deepseek-r1-qwen", "megrez", "stablelm2", "hunyuan", "grok-2"), _QWEN2_KIND
    ),
    "qwen35": PreTokenizerKind((_QWEN35,)),
    "tekken": PreTokenizerKind((_TEKKEN,), ignore_merges=True, adds_bos=True),
    **dict.fromkeys(("gpt-4o", "llama4"), _GPT4O_KIND),
    "deepseek-coder": PreTokenizerKind(
        (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}")
    ),
    "deepseek-v3": PreTokenizerKind((r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", _DEEPSEEK3)),
}


def pre_tokenizer_kind(name: str) -> PreTokenizerKind:
    """The kind called `name` in `tokenizer.ggml.pre`. Raises CheckpointError for an unknown one.

    A wrong pattern would give wrong tokens without any sign, so nothing is guessed.
    """
    kind = PRE_TOKENIZER_KINDS.get(name)
    if kind is None:
        known = ", ".join(sorted(PRE_TOKENIZER_KINDS))
        raise CheckpointError(
            f"tokenizer.ggml.pre: unknown pre-tokenizer {name!r}; supported are {known}"
        )
    return kind
