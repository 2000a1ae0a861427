"""Real vocabularies give the tokens that the golden files, transformers and SentencePiece give."""

import json
import random
import re
import threading
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2
from tokenizers import pre_tokenizers

from octavo.checkpoints.checkpoint import open_checkpoint
from octavo.text.gguf_tokenizer import TokenType
from octavo.text.tokenizer import Tokenizer
from support.tiny_tokenizers import (
    CORPUS,
    sentencepiece_model,
    sentencepiece_tokenizer,
)

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
GOLDEN_FILES = {
    "smollm2": GOLDEN / "smollm2-135m-instruct-q4_1.json",
    "gemma": GOLDEN / "gemma-3-270m-q4_k_m.json",
}

STRINGS = (
    "", " ", "  ", "\n", "\n\n\n", "\t\tx", "a", "a b", " a", "a ", "  a  b   c    d", "a\n b\n\n c\r\n",
    "Hello, world!", "HELLO hello HeLLo", "don't I'll we've they're she'd I'm it's", "DON'T I'LL",
    "x = [1, 22, 333, 4444]", "3.14159e-10", "1234567890", "١٢٣٤", "½ Ⅷ ²",
    "    def f(x):\n        return x ** 2\n", "foo_bar fooBar FooBar", "https://example.org/a?b=c&d=%20#e",
    "naïve café", "e\u0301 combining", "Straße ẞ", "日本語のテキスト", "中文，没有空格。", "한국어 텍스트",
    "Привет, мир", "שלום עולם", "مرحبا بالعالم", "ภาษาไทย", "हिन्दी", "👍", "👩‍🚀", "👨‍👩‍👧‍👦", "🇫🇷🇩🇪", "👍🏽",
    "\u200b zero width", "\u00a0no-break", "\ufeffbom", "\ufffd", "“quotes” – dash — em … dots", "a\x00b\x7f",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈", "ﬁ ligature", "ab" * 40, "z" * 50, "<|im_start|>user\nhi<|im_end|>",
    "<bos>x<eos>", "<start_of_turn>user", "<|endoftext|><|endoftext|>", "< |im_start| >", "<table><tr>",
)  # fmt: skip


def random_texts(tokenizer: Tokenizer, count: int) -> list[str]:
    """Texts of random tokens, of random characters of many scripts, and of a few troublesome ones."""
    draw = random.Random(1)
    blocks = (
        (1, 0x7F),
        (0x20, 0x24F),
        (0x370, 0x9FF),
        (0x3000, 0x9FFF),
        (0x1F300, 0x1FAFF),
        (0xAC00, 0xD7A3),
    )
    texts = []
    for _ in range(count // 3):
        ids = [draw.randrange(tokenizer.vocab_size) for _ in range(draw.randint(1, 12))]
        texts.append(tokenizer.decode(ids, skip_special_tokens=False))
        texts.append("".join(chr(draw.randint(*draw.choice(blocks))) for _ in range(30)))
        texts.append("".join(draw.choice("ab ab\n\t.\"'<>i 12") for _ in range(40)))
    return texts


@pytest.mark.parametrize("name", GOLDEN_FILES)
def test_equals_the_golden_files(name: str, request: pytest.FixtureRequest) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(name)
    golden = json.loads(GOLDEN_FILES[name].read_text("utf-8"))
    assert len(golden["tokenization"]) == 15
    for entry in golden["tokenization"]:
        assert tokenizer.encode(entry["text"]) == entry["ids"], entry["text"]
    for case in golden["cases"]:
        assert tokenizer.decode(case["greedy_token_ids"], False) == case["greedy_text"]


def compare(tokenizer: Tokenizer, theirs: Any, texts: list[str]) -> None:
    for text in texts:
        ids = theirs.encode(text)
        assert tokenizer.encode(text) == ids, text
        for skip in (True, False):
            assert tokenizer.decode(ids, skip) == theirs.decode(ids, skip_special_tokens=skip)


def from_transformers(path: Path) -> Any:
    from transformers import AutoTokenizer  # takes seconds: only the tests that need it pay

    return AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_smollm2_equals_transformers(smollm2: Tokenizer, smollm2_path: Path) -> None:
    """R55, with the pre-tokenizer of the model's own tokenizer.json.

    What transformers builds from the GGUF alone does not set digits apart, so that "  1" differs.
    """
    theirs = from_transformers(smollm2_path)
    theirs.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    assert len(STRINGS) >= 50
    compare(smollm2, theirs, [*STRINGS, *random_texts(smollm2, 3000)])


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_gemma_equals_transformers(gemma: Tokenizer, gemma_path: Path) -> None:
    """R55. Runs of more spaces than the longest token, 31, are cut as SentencePiece does; transformers merges
    them. And a text that begins with BOS has it once here, twice there.
    """
    texts = [*STRINGS, *random_texts(gemma, 20000)]
    texts = [text for text in texts if " " * 32 not in text and not text.startswith("<bos>")]
    compare(gemma, from_transformers(gemma_path), texts)


def test_gemma_equals_sentencepiece(gemma: Tokenizer, gemma_path: Path) -> None:
    theirs = _sentencepiece_of(open_checkpoint(gemma_path).metadata)
    # SentencePiece does not look for control tokens in text, and takes a mark for a space.
    texts = [
        text
        for text in [*STRINGS, "x" + " " * 70 + "y\n" + "\n" * 40, *random_texts(gemma, 6000)]
        if not re.search(r"<unused|<(pad|eos|bos|unk|mask|start_of_turn|end_of_turn)>|▁|\0", text)
    ]
    assert len(texts) > 3000
    for text in texts:
        assert gemma.encode(text, add_special_tokens=False) == theirs.encode(text), text


def _sentencepiece_of(metadata: Any) -> sentencepiece.SentencePieceProcessor:
    model = sentencepiece_model_pb2.ModelProto()
    model.trainer_spec.model_type = model.trainer_spec.BPE
    model.trainer_spec.byte_fallback = True
    for role, i in (("pad", 0), ("eos", 1), ("bos", 2), ("unk", 3)):
        setattr(model.trainer_spec, f"{role}_id", i)
        setattr(model.trainer_spec, f"{role}_piece", f"<{role}>")
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.add_dummy_prefix = False
    model.normalizer_spec.remove_extra_whitespaces = False
    for token, kind, score in zip(
        metadata["tokenizer.ggml.tokens"],
        metadata["tokenizer.ggml.token_type"].tolist(),
        metadata["tokenizer.ggml.scores"].tolist(),
        strict=True,
    ):
        is_user_defined = kind == TokenType.USER_DEFINED
        piece = token.replace(" ", "▁") if is_user_defined else token
        kind = TokenType.UNKNOWN if token == "<unk>" else kind
        model.pieces.add(piece=piece, score=score, type=kind)
    return sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())


texts = st.lists(
    st.sampled_from([*CORPUS, *" abét日한🎉", "  ", "\n", "’"]) | st.text(max_size=8)
).map("".join)


@pytest.mark.parametrize("add_dummy_prefix", [True, False])
@given(text=texts)
@settings(deadline=None, max_examples=300)
def test_trained_sentencepiece_model(add_dummy_prefix: bool, text: str) -> None:
    """With dummy prefix too, and texts that need bytes: tokens and text as SentencePiece gives them."""
    if "▁" in text or "\0" in text or re.search("</?s>|<unk>", text):
        return  # as above
    theirs = sentencepiece_model(add_dummy_prefix=add_dummy_prefix)
    ours = sentencepiece_tokenizer(add_dummy_prefix=add_dummy_prefix)
    ids = ours.encode(text, add_special_tokens=False)
    assert ids == theirs.encode(text)
    assert ours.decode(ids) == theirs.decode(ids) == text
    assert ours.encode(text) == [theirs.bos_id(), *ids]


def test_other_threads_go_on_while_a_long_text_is_encoded(smollm2: Tokenizer) -> None:
    text = "the cat sat on the mat " * 20_000
    done = threading.Event()

    def encode() -> None:
        smollm2.encode(text)
        done.set()

    thread = threading.Thread(target=encode)
    thread.start()
    num_turns = 0
    while not done.wait(0.001):
        num_turns += 1
    thread.join()
    assert num_turns >= 20  # it takes hundreds of milliseconds
