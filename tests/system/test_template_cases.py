"""Instructions and roles that templates do not expect, over HTTP (known failure R43): in the prompt, or a 400 that says why."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.chat_templates import ALTERNATES, DROPS_OTHERS, RAISES_ON_OTHERS, REFUSES_SYSTEM
from support.scripted_engine import MODULE as SCRIPTED
from support.server_process import RunningServer, running_server, tiny_config

TEMPLATES = {
    "drops": DROPS_OTHERS,
    "raises": RAISES_ON_OTHERS,
    "no system": REFUSES_SYSTEM,
    "alternates": ALTERNATES,
}
INSTRUCTION = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Hi"}
DEVELOPER = INSTRUCTION | {"role": "developer"}
MESSAGES: dict[str, list[dict[str, Any]]] = {
    "developer": [DEVELOPER, USER],
    "system": [INSTRUCTION, USER],
    "two systems": [INSTRUCTION, {"role": "system", "content": "Rhyme."}, USER],
    "system last": [USER, INSTRUCTION],
    "foo": [INSTRUCTION | {"role": "foo"}, USER],
}
SAYS = {
    ("raises", "foo"): "Only system, user and assistant roles are supported, not foo",
    ("no system", "developer"): "System role not supported",
    ("no system", "system"): "System role not supported",
    ("no system", "two systems"): "System role not supported",
    ("alternates", "two systems"): "Roles must alternate user/assistant/user/assistant/...",
    ("alternates", "foo"): "Roles must alternate user/assistant/user/assistant/...",
    ("drops", "foo"): "leaves out messages[0] (role 'foo')",
}
"""What the refusal says: the template's own words, or what it would leave out."""


@pytest.fixture(scope="module")
def server(merged_model: Path) -> Iterator[RunningServer]:
    """It takes templates from requests."""
    with running_server(
        tiny_config(merged_model), engine_module=SCRIPTED, trust_request_chat_template=True
    ) as running:
        yield running


@pytest.fixture
def http(server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=30) as client:
        yield client
    server.wait_idle()


def ask(http: httpx.Client, template: str, messages: list[Any], **fields: Any) -> httpx.Response:
    body = {"messages": messages, "chat_template": TEMPLATES[template], "max_tokens": 1, **fields}
    return http.post("/v1/chat/completions", json=body)


def prompt_of(http: httpx.Client, answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    tokens = answer.json()["prompt_token_ids"]
    prompt: str = http.post("/detokenize", json={"tokens": tokens}).json()["prompt"]
    return prompt


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("case", MESSAGES)
def test_r43_an_instruction_is_in_the_prompt_or_refused(
    http: httpx.Client, template: str, case: str
) -> None:
    messages = MESSAGES[case]
    answer = ask(http, template, messages, return_token_ids=True)
    streamed = ask(http, template, messages, stream=True)
    says = SAYS.get((template, case))
    if says is None:
        prompt = prompt_of(http, answer)
        assert all(message["content"] in prompt for message in messages)
        assert streamed.status_code == 200
        return
    for refused in (answer, streamed):
        assert refused.status_code == 400
        assert refused.headers["content-type"] == "application/json"
        assert says in refused.json()["error"]["message"]


@pytest.mark.parametrize("template", TEMPLATES)
def test_r43_a_list_of_parts_is_the_prompt_of_a_string(http: httpx.Client, template: str) -> None:
    def prompt(content: Any) -> str:
        messages = [{"role": "user", "content": content}]
        return prompt_of(http, ask(http, template, messages, return_token_ids=True))

    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert prompt(parts) == prompt("a\nb")
    assert prompt(parts[:1]) == prompt("a")


def test_r43_developer_and_system_are_one(http: httpx.Client) -> None:
    for template in ("drops", "raises", "alternates"):
        prompts = {
            prompt_of(http, ask(http, template, MESSAGES[case], return_token_ids=True))
            for case in ("developer", "system")
        }
        assert len(prompts) == 1
