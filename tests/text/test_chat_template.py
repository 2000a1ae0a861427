"""Chats to prompts: as Hugging Face renders them, and nothing lost without a word (R43, R55)."""

import json
import time
from pathlib import Path
from typing import Any

import jinja2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.checkpoints.named_models import NAMED_MODELS
from octavo.errors import (
    InvalidParameterError,
    TemplateError,
    UnsupportedParameterError,
)
from octavo.text.chat_template import ChatTemplate, load_chat_template
from octavo.text.gguf_tokenizer import gguf_tokenizer_parts
from octavo.text.template_environment import MAX_RENDERED_CHARS, MAX_SOURCE_CHARS
from octavo.text.tokenizer import Tokenizer
from support.chat_templates import ALTERNATES, DROPS_OTHERS, RAISES_ON_OTHERS, REFUSES_SYSTEM
from support.tiny_tokenizers import END, TURN, byte_level_metadata, byte_level_tokenizer

PRINTS_ANY_ROLE = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
TRIMS = PRINTS_ANY_ROLE.replace("m.content", "m.content | trim")
BLOCKS = """
{% for m in messages %}
    {% if m.role == 'user' %}
U: {{ m.content }}
    {% else %}
  {{ m.role }}: {{ m.content }}
    {% endif %}
{% endfor %}

end
"""
KNOWS_DEVELOPER = "{% for m in messages %}{% if m.role == 'developer' %}D:{{ m.content }}{% else %}{{ m.role }}:{{ m.content }}{% endif %}{% endfor %}"
PARTS_ONLY = "{% for m in messages %}[{{ m.role }}]{% for p in m['content'] %}{% if p['type'] == 'text' %}{{ p['text'] }}{% endif %}{% endfor %}{% endfor %}"
TOOLS = """
{%- if tools %}
    {%- for tool in tools %}
        {{- tool | tojson }}
        {{- '\\n' }}
    {%- endfor %}
{%- endif %}
{%- for m in messages %}
    {%- if m.tool_calls is defined %}
        {%- for call in m.tool_calls %}
            {%- if loop.index > 9 %}{% break %}{% endif %}
            {{- '<call>' ~ call.function.name ~ ' ' ~ (call.function.arguments | tojson(indent=2)) ~ '</call>' }}
        {%- endfor %}
    {%- else %}
        {%- generation %}{{ m.role ~ ': ' ~ m.content }}{% endgeneration %}
    {%- endif %}
{%- endfor %}
"""
MODEL_TEMPLATES = {
    "any": PRINTS_ANY_ROLE,
    "trims": TRIMS,
    "blocks": BLOCKS,
    "drops": DROPS_OTHERS,
    "raises": RAISES_ON_OTHERS,
    "no system": REFUSES_SYSTEM,
    "alternates": ALTERNATES,
    "developer": KNOWS_DEVELOPER,
    "parts": PARTS_ONLY,
}

USER = {"role": "user", "content": "Hi <b>you</b>  "}
ANSWER = {"role": "assistant", "content": " Yes"}
INSTRUCTION = "Answer in rhymes & “quotes”."


def template(source: str, **options: Any) -> ChatTemplate:
    return ChatTemplate(source, bos_token=TURN, eos_token=END, **options)


def message(role: str, content: object = INSTRUCTION) -> dict[str, Any]:
    return {"role": role, "content": content}


def test_the_model_s_own_template(smollm2: Tokenizer, smollm2_path: Path) -> None:
    loaded = load_chat_template(smollm2_path, None, smollm2)
    assert loaded is not None
    prompt = loaded.render([message("user", "Hi")])
    assert prompt == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = smollm2.encode(prompt, add_special_tokens=False)
    assert ids[:3] == [1, 9690, 198]
    assert ids.count(2) == 2
    # With an instruction of the developer the template does not add its own.
    assert loaded.render([message("developer"), USER]).startswith(
        f"<|im_start|>system\n{INSTRUCTION}"
    )


def test_a_base_model_has_none(gemma: Tokenizer, gemma_path: Path) -> None:
    assert load_chat_template(gemma_path, None, gemma) is None
    given_one = load_chat_template(gemma_path, PRINTS_ANY_ROLE, gemma)
    assert given_one is not None
    assert given_one.render([message("user", "x")]) == "<bos><user>x<eos><assistant>"


def test_named_models_say_whether_they_can_chat(
    smollm2: Tokenizer, smollm2_path: Path, gemma: Tokenizer, gemma_path: Path
) -> None:
    found = {
        "smollm2": load_chat_template(smollm2_path, None, smollm2) is not None,
        "gemma3-270m": load_chat_template(gemma_path, None, gemma) is not None,
    }
    assert found == {name: model.has_chat_template for name, model in NAMED_MODELS.items()}


def test_where_templates_come_from(tmp_path: Path) -> None:
    tokenizer = byte_level_tokenizer()
    file = tmp_path / "mine.jinja"
    file.write_text("file {{ messages[0].content }}", "utf-8")
    loaded = load_chat_template(tmp_path, str(file), tokenizer)
    assert loaded is not None
    assert loaded.render([message("user", "x")]) == "file x"
    with pytest.raises(TemplateError, match=r"missing\.jinja"):
        load_chat_template(tmp_path, str(tmp_path / "missing.jinja"), tokenizer)
    with pytest.raises(TemplateError, match="neither a template"):
        load_chat_template(tmp_path, "x" * 5000, tokenizer)
    assert load_chat_template(tmp_path, None, tokenizer) is None
    # A tokenizer without a template beside a model with one.
    (tmp_path / "chat_template.jinja").write_text("model", "utf-8")
    loaded = load_chat_template(tmp_path, None, tokenizer)
    assert loaded is not None
    assert loaded.render([USER]) == "model"


def test_named_templates() -> None:
    metadata = byte_level_metadata() | {
        "tokenizer.chat_template": "plain",
        "tokenizer.chat_templates": ["tool_use"],
        "tokenizer.chat_template.tool_use": "tools {{ tools | length }}",
    }
    tokenizer = Tokenizer(gguf_tokenizer_parts(metadata))
    loaded = load_chat_template(Path(), None, tokenizer)
    assert loaded is not None
    assert loaded.render([USER]) == "plain"
    assert loaded.render([USER], tools=[{"type": "function"}]) == "tools 1"


@pytest.mark.parametrize("name", MODEL_TEMPLATES)
def test_developer_instructions_arrive_or_are_refused(name: str) -> None:
    """R43."""
    chat = template(MODEL_TEMPLATES[name])
    if name == "no system":
        with pytest.raises(TemplateError, match=r"^System role not supported$"):
            chat.render([message("developer"), USER])
        return
    prompt = chat.render([message("developer"), USER])
    assert INSTRUCTION in prompt
    if name != "developer":
        assert prompt == chat.render([message("system"), USER])


@pytest.mark.parametrize("name", MODEL_TEMPLATES)
@pytest.mark.parametrize(
    "messages",
    [
        [message("system"), message("system", "Second one."), USER],
        [USER, ANSWER, message("system")],
        [message("foo"), USER],
        [USER, message("foo")],
    ],
)
def test_nothing_is_dropped_in_silence(name: str, messages: list[dict[str, Any]]) -> None:
    """R43: more systems, systems last, roles that nobody knows: in the prompt, or an error."""
    try:
        prompt = template(MODEL_TEMPLATES[name]).render(messages)
    except TemplateError as error:
        assert error.parameter == "messages"
        return
    for one in messages:
        assert one["content"].strip() in prompt


def test_left_out_messages_are_named() -> None:
    with pytest.raises(TemplateError, match=r"leaves out messages\[1\] \(role 'foo'\)"):
        template(DROPS_OTHERS).render([USER, message("foo")])
    # Reworked text is not left out.
    shouts = template("{% for m in messages %}{{ m.content | upper }}{% endfor %}")
    assert shouts.render([message("system", "be kind"), message("user", "x")]) == "BE KINDX"


@pytest.mark.parametrize("name", MODEL_TEMPLATES)
@pytest.mark.parametrize("kind", ["text", "input_text"])
def test_parts_render_like_a_string(name: str, kind: str) -> None:
    """R43 (llama.cpp 8367)."""
    chat = template(MODEL_TEMPLATES[name])
    for whole, parts in (("Hi", ["Hi"]), ("a\nb", ["a", "b"]), ("", [])):
        content = [{"type": kind, "text": part} for part in parts]
        assert chat.render([message("user", content)]) == chat.render([message("user", whole)])
    assert "Hi" in chat.render([message("user", "Hi")])


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "video", "file"])
def test_parts_that_are_not_text_are_refused(kind: str) -> None:
    content = [{"type": "text", "text": "x"}, {"type": kind, kind: {}}]
    with pytest.raises(
        UnsupportedParameterError, match=rf"messages\[1\].content\[1\].*{kind}"
    ) as error:
        template(PRINTS_ANY_ROLE).render([USER, message("user", content)])
    assert error.value.parameter == "messages"


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([], "must not be empty"),
        (["x"], r"messages\[0\] must be an object"),
        ([{"content": "x"}], r"messages\[0\].role"),
        ([{"role": "", "content": "x"}], r"messages\[0\].role"),
        ([{"role": 3, "content": "x"}], r"messages\[0\].role"),
        ([USER, {"role": "user"}], r"messages\[1\] must have a content"),
        ([{"role": "user", "content": 3}], r"messages\[0\].content"),
        ([{"role": "user", "content": [3]}], r"messages\[0\].content\[0\]"),
        ([{"role": "user", "content": [{"text": "x"}]}], r"messages\[0\].content\[0\]"),
        ([{"role": "user", "content": [{"type": "text"}]}], r"messages\[0\].content\[0\].text"),
        ([{"role": "assistant", "tool_calls": 3}], r"messages\[0\].tool_calls"),
        (
            [{"role": "assistant", "tool_calls": [{"function": {"arguments": "{"}}]}],
            r"messages\[0\].tool_calls\[0\].function.arguments",
        ),
    ],
)
def test_wrong_messages(messages: Any, problem: str) -> None:
    with pytest.raises(InvalidParameterError, match=problem) as error:
        template(PRINTS_ANY_ROLE).render(messages)
    assert error.value.parameter == "messages"


def test_null_fields_are_as_if_they_were_not_there() -> None:
    """Clients send every field of their classes."""
    nulls = {"tool_calls": None, "name": None, "refusal": None}
    chat = template(TOOLS)
    assert chat.render([{**ANSWER, **nulls}]) == chat.render([ANSWER])
    assert template(PRINTS_ANY_ROLE).render([{"role": "assistant", "content": None}, USER]) == (
        template(PRINTS_ANY_ROLE).render([message("assistant", ""), USER])
    )


def test_the_caller_s_messages_do_not_change() -> None:
    messages = [message("developer", [{"type": "text", "text": "x"}]), USER]
    before = json.dumps(messages)
    template(PRINTS_ANY_ROLE).render(messages)
    assert json.dumps(messages) == before
    with pytest.raises(TemplateError, match="SecurityError"):
        template("{{ messages.append(1) }}").render([USER])


def test_reasoning_has_one_name() -> None:
    chat = template("{% for m in messages %}{{ m.reasoning_content }}|{{ m.content }}{% endfor %}")
    for name in ("reasoning", "reasoning_content", "thinking"):
        assert chat.render([{**ANSWER, name: "because"}]) == "because| Yes"


def test_generation_prompt_and_open_ends() -> None:
    chat, trims = template(PRINTS_ANY_ROLE), template(TRIMS)
    assert chat.render([USER], add_generation_prompt=False).endswith(f"  {END}")
    assert chat.render([USER]).endswith("<assistant>")
    messages = [message("user", "Say it"), message("assistant", "The answer is ")]
    options: dict[str, Any] = {"add_generation_prompt": False, "continue_final_message": True}
    before = f"{TURN}<user>Say it{END}<assistant>The answer is"
    assert chat.render(messages, **options) == before + " "
    assert trims.render(messages, **options) == before
    parts = [messages[0], message("assistant", [{"type": "text", "text": "The answer is "}])]
    assert chat.render(parts, **options) == before + " "
    assert template(PARTS_ONLY).render(messages, **options).endswith("[assistant]The answer is ")
    with pytest.raises(InvalidParameterError, match="cannot both be true") as both:
        chat.render(messages, continue_final_message=True)
    assert both.value.parameter == "continue_final_message"
    with pytest.raises(TemplateError, match="continue_final_message"):
        template("{{ messages[0].content }}").render(messages, **options)


def test_bos_is_the_template_s_business() -> None:
    """R55: one BOS in a chat, from a template that prints it; encoding again as a text adds none."""
    tokenizer = Tokenizer(gguf_tokenizer_parts(byte_level_metadata(add_bos_token=True)))
    prompt = template(PRINTS_ANY_ROLE).render([message("user", "x")])
    ids = tokenizer.encode(prompt, add_special_tokens=False)
    assert ids.count(1) == 1
    assert tokenizer.encode(prompt) == ids
    without = template("{{ messages[0].content }}").render([message("user", "x")])
    assert tokenizer.encode(without, add_special_tokens=False).count(1) == 0


def test_template_variables() -> None:
    chat = template(
        "{{ enable_thinking }}|{{ documents | length }}|{{ unk_token }}|{{ pad_token is defined }}",
        other_special_tokens={"unk_token": "<unk>"},
    )
    prompt = chat.render([USER], documents=[{"text": "d"}], kwargs={"enable_thinking": False})
    assert prompt == "False|1|<unk>|False"
    unnamed = ChatTemplate("{{ bos_token }}x", bos_token=None, eos_token=None)
    assert unnamed.render([USER]) == "x"
    for name in ("messages", "tools", "add_generation_prompt"):
        with pytest.raises(InvalidParameterError, match=f"cannot set {name}") as error:
            chat.render([USER], kwargs={name: []})
        assert error.value.parameter == "chat_template_kwargs"


def test_strftime_now() -> None:
    assert template("{{ strftime_now('%Y') | int > 2000 }}").render([USER]) == "True"


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__class__.__base__.__subclasses__() }}",
        "{{ raise_exception.__globals__.os }}",
        "{{ cycler.__init__.__globals__.os }}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{% for i in range(1000000000) %}x{% endfor %}",
        "{{ 'x' * 1000000000 }}",
        "{{ 1000000000 * 'x' }}",
        "{{ [0] * 1000000000 }}",
        "{{ 10 ** 10000000 }}",
        "{% for i in range(99999) %}{{ 'x' * 99999 }}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ 1 / 0 }}",
        "{{ messages[0].nothing.at_all }}",
        "{{ undefined_function() }}",
        "{% include 'other' %}",
        "{{ messages[0] | tojson(indent=messages) }}",
    ],
)
def test_foreign_code_stays_in_its_sandbox(source: str) -> None:
    with pytest.raises(TemplateError):
        template(source).render([USER])


def test_bounds() -> None:
    with pytest.raises(TemplateError, match=f"at most {MAX_SOURCE_CHARS} characters"):
        template("x" * (MAX_SOURCE_CHARS + 1))
    long = template("{% for m in messages %}{{ m.content * 100000 }}{% endfor %}")
    assert len(long.render([message("user", "x" * 100)])) == 10_000_000
    with pytest.raises(TemplateError, match=f"exceeds {MAX_RENDERED_CHARS}"):
        long.render([message("user", "x" * 100)] * 2)


@pytest.mark.parametrize(
    "source", ["{% for %}", "{{ x", "{% unknown %}", "{{ x | nofilter }}", "{{" * 999]
)
def test_sources_that_do_not_compile(source: str) -> None:
    with pytest.raises(TemplateError, match="cannot be compiled") as error:
        template(source)
    assert error.value.parameter == "chat_template"


def test_errors_carry_the_template_s_words() -> None:
    with pytest.raises(TemplateError, match=r"^Only system, .* roles are supported, not foo$"):
        template(RAISES_ON_OTHERS).render([message("foo")])
    with pytest.raises(TemplateError, match=r"^Roles must alternate"):
        template(ALTERNATES).render([USER, USER])


roles = st.sampled_from(["system", "user", "assistant"])
chats = st.lists(
    st.builds(message, roles, st.text(st.sampled_from("ab \n<>&'\"é日🎉{}%"), max_size=12)),
    min_size=1,
    max_size=4,
)
TOOL = {"type": "function", "function": {"name": "f<>&", "parameters": {"é": "日"}}}
CALL = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"x": "<é>"}}}]}


@pytest.fixture(scope="module")
def transformers_tokenizer() -> Any:
    transformers = pytest.importorskip("transformers")
    backend = gguf_tokenizer_parts(byte_level_metadata()).backend
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token=TURN, eos_token=END
    )


@pytest.mark.parametrize("name", [*MODEL_TEMPLATES, "tools"])
@given(chat=chats, generation=st.booleans(), final=st.booleans(), tools=st.booleans())
@settings(deadline=None, max_examples=60)
def test_equals_transformers(
    transformers_tokenizer: Any,
    name: str,
    chat: list[dict[str, Any]],
    generation: bool,
    final: bool,
    tools: bool,
) -> None:
    """Every prompt, character by character; where one refuses, so does the other, or a message is lost."""
    source = {**MODEL_TEMPLATES, "tools": TOOLS}[name]
    if name == "parts":
        theirs_chat = [{**m, "content": [{"type": "text", "text": m["content"]}]} for m in chat]
    elif name == "tools":
        theirs_chat = chat = [*chat, CALL]
        final = False
    else:
        theirs_chat = chat
    options: dict[str, Any] = {
        "add_generation_prompt": generation and not final,
        "continue_final_message": final,
        "tools": [TOOL] if tools else None,
    }
    try:
        expected = transformers_tokenizer.apply_chat_template(
            theirs_chat, chat_template=source, tokenize=False, **options
        )
    except (jinja2.TemplateError, ValueError) as error:
        expected = error
    try:
        assert template(source).render(chat, **options) == expected
    except TemplateError as refused:
        left_out = "leaves out" in str(refused)
        assert left_out or isinstance(expected, Exception), refused


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% for a in range(99999)|map('string') %}{% for b in range(99999)|map('string') %}{% endfor %}{% endfor %}",
    ],
)
def test_a_template_may_not_run_for_ever(source: str) -> None:
    template = ChatTemplate(source, bos_token=None, eos_token=None)
    began = time.process_time()
    with pytest.raises(TemplateError, match="loops and calls exceed"):
        template.render([{"role": "user", "content": "x"}])
    assert time.process_time() - began < 20


def test_counting_changes_nothing_about_loops() -> None:
    source = (
        "{% for m in messages %}{{ loop.index }}{{ loop.last }}{{ m.content }}{% else %}none{% endfor %}"
        "{% for k, v in messages[0].items() %}{{ k }}={{ v }};{% endfor %}"
        "{% for m in messages|selectattr('role') %}{{ loop.length }}{{ loop.revindex }}{% endfor %}"
        "{% for x in [] %}{% else %}empty{% endfor %}{% for x in missing %}{% endfor %}"
    )
    template = ChatTemplate(source, bos_token=None, eos_token=None)
    assert (
        template.render([{"role": "user", "content": "x"}]) == "1Truexrole=user;content=x;11empty"
    )
