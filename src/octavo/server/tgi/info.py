"""GET /info: what Text Generation Inference tells of a server and its limits."""

from typing import Any

from fastapi import APIRouter

from octavo.server.health import octavo_version
from octavo.server.serving import Serving
from octavo.server.tgi.validation import MAX_BEST_OF, MAX_STOP_SEQUENCES


def info_routes(serving: Serving) -> APIRouter:
    """The route, bound to `serving`."""
    router = APIRouter()

    @router.get("/info")
    async def info() -> dict[str, Any]:
        """Text Generation Inference's: the model and the limits of requests."""
        model = serving.model()
        ready = model.ready
        return {
            "model_id": model.names[0],
            "model_sha": None,
            "model_dtype": ready.dtype,
            "model_device_type": "cpu",
            "model_pipeline_tag": "text-generation",
            "max_concurrent_requests": ready.max_num_seqs,
            "max_best_of": MAX_BEST_OF,
            "max_stop_sequences": MAX_STOP_SEQUENCES,
            "max_input_tokens": ready.max_model_len - 1,
            "max_total_tokens": ready.max_model_len,
            "max_batch_total_tokens": ready.num_blocks * ready.block_size,
            "validation_workers": serving.num_text_threads,
            "max_client_batch_size": serving.config.max_prompts_per_request,
            "router": "octavo",
            "version": octavo_version(),
            "sha": None,
            "docker_label": None,
        }

    return router
