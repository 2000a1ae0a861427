"""Asks a server through litellm and prints what came, in a process of its own: it keeps its connections for ever."""

import json
import os
import sys
from typing import Any


def main(url: str, model: str) -> None:
    """One JSON object on stdout: what each way of asking gave."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it looks for a newer one elsewhere
    import litellm

    def ask(provider: str, base: str, **options: Any) -> Any:
        return litellm.completion(
            model=f"{provider}/{model}",
            messages=[{"role": "user", "content": "hello"}],
            api_base=base,
            api_key="none",
            max_tokens=8,
            num_retries=0,
            **{"temperature": 0, **options},
        )

    whole = ask("openai", f"{url}/v1")
    chunks = ask("openai", f"{url}/v1", stream=True)
    try:
        refused = str(ask("openai", f"{url}/v1", temperature=-1))
    except litellm.BadRequestError as error:
        refused = type(error).__name__
    found = {
        "openai": whole.choices[0].message.content,
        "num_tokens": whole.usage.completion_tokens,
        "streamed": "".join(chunk.choices[0].delta.content or "" for chunk in chunks),
        "vllm": ask("hosted_vllm", f"{url}/v1").choices[0].message.content,
        "anthropic": ask("anthropic", url).choices[0].message.content,
        "refused": refused,
    }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
