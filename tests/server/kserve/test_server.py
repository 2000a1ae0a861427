"""What a KServe server says of itself: metadata, health, repository, statistics."""

import httpx


def test_metadata_names_server_model_and_tensors(http: httpx.Client) -> None:
    server = http.get("/v2").json()
    assert server["name"] == "octavo"
    assert "binary_tensor_data" in server["extensions"]
    model = http.get("/v2/models/tiny").json()
    assert (model["name"], model["versions"]) == ("tiny", ["1"])
    assert model["inputs"][0] == {"name": "text_input", "datatype": "BYTES", "shape": [1]}
    assert model["outputs"][0] == {"name": "text_output", "datatype": "BYTES", "shape": [-1]}
    assert http.get("/v2/models/tiny/versions/1").json() == model
    config = http.get("/v2/models/tiny/config").json()
    assert config["input"][1] == {
        "name": "stream",
        "data_type": "TYPE_BOOL",
        "dims": [1],
        "optional": True,
    }


def test_health(http: httpx.Client) -> None:
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/tiny/ready"):
        assert http.get(path).status_code == http.head(path).status_code == 200
    assert http.get("/v2/models/none/ready").status_code == 404


def test_the_repository_has_the_models_of_the_server(http: httpx.Client) -> None:
    ready = [
        {"name": name, "version": "1", "state": "READY", "reason": ""} for name in ("tiny", "alias")
    ]
    assert http.post("/v2/repository/index").json() == ready
    assert http.post("/v2/repository/index", json={"ready": True}).json() == ready
    assert http.post("/v2/repository/index", json={"ready": "yes"}).status_code == 400


def test_loading_what_is_loaded_and_nothing_else(http: httpx.Client) -> None:
    assert http.post("/v2/repository/models/tiny/load").status_code == 200
    assert http.post("/v2/repository/models/tiny/load", json={"parameters": {}}).status_code == 200
    other = http.post("/v2/repository/models/tiny/load", json={"parameters": {"config": "{}"}})
    assert (other.status_code, other.json()["error"][:6]) == (400, "config")
    assert http.post("/v2/repository/models/none/load").status_code == 404
    unload = http.post("/v2/repository/models/tiny/unload")
    assert unload.status_code == 400
    assert "the only model" in unload.json()["error"]
    assert http.post("/v2/models/tiny/generate", json={"text_input": "<unk>a<unk>"}).is_success


def test_statistics_count_what_was_done(http: httpx.Client) -> None:
    def count() -> tuple[int, int]:
        (stats,) = http.get("/v2/models/stats").json()["model_stats"]
        assert stats["inference_count"] == stats["inference_stats"]["success"]["count"]
        return stats["inference_count"], stats["inference_stats"]["success"]["ns"]

    before, before_ns = count()
    for _ in range(3):
        http.post("/v2/models/tiny/generate", json={"text_input": "<unk>a<unk>"})
    after, after_ns = count()
    assert after - before == 3
    assert after_ns > before_ns
    assert http.get("/v2/models/tiny/versions/1/stats").json()["model_stats"][0]["name"] == "tiny"
    assert http.get("/v2/models/none/stats").status_code == 404
