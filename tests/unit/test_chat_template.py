"""Chat templates: the same text as transformers, and nothing but text."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Any

import pytest

from default_model import default_model_file
from pagurid.errors import InvalidRequest, ModelLoadError
from pagurid.tokenizer.chat_template import ChatTemplate
from pagurid.tokenizer.directory import tokenizer_from_directory
from pagurid.weights import load_model
from pagurid.weights.gguf_file import GgufFile
from tiny_models import make_tiny_model

SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
CONVERSATION = [
    {"role": "system", "content": "You are a crab.\n"},
    {"role": "user", "content": "  What <b>is</b> \"2 + 2\"? 'é' 日本 "},
    {"role": "assistant", "content": "4"},
    {"role": "user", "content": "And {{ 3 }} {% raw %}?"},
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "wave",
            "description": "Wäves <hard>",
            "parameters": {"type": "object", "properties": {"times": {"type": "integer"}}},
        },
    }
]
LLAMA2 = """{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = false %}
{%- endif %}
{%- for message in messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {%- if loop.index0 == 0 and system_message %}
        {%- set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}
    {%- else %}
        {%- set content = message['content'] %}
    {%- endif %}
    {%- if message['role'] == 'user' %}
        {{- bos_token + '[INST] ' + content.strip() + ' [/INST]' }}
    {%- else %}
        {{- ' ' + content.strip() + ' ' + eos_token }}
    {%- endif %}
{%- endfor %}
"""
LOOPS = """{% set ns = namespace(count=0, last='none') %}
  {% for message in messages %}
    {% if message.role == 'system' %}{% continue %}{% endif %}
    {% set ns.count = ns.count + 1 %}
    {% set ns.last = message.role %}
{{ loop.index }}:{{ message.content | trim | upper }}
    {% if ns.count >= 2 %}{% break %}{% endif %}
  {% endfor %}
{{ ns.count }} {{ ns.last }} {{ messages | map(attribute='role') | list | tojson }}
{{ dict(a=1, b='ü') | tojson(indent=2) }}
{{ undefined_name }}{{ 'yes' if undefined_name is not defined }}{{ messages[-1].content.split(' ')[0] }}
"""
TOOL_TEMPLATE = """{% if tools %}{% for tool in tools %}{{ tool | tojson }}
{{ tool.function.name ~ ': ' ~ tool.function.description }}
{% for key, value in tool.function.parameters.properties.items() %}{{ key }}={{ value.type }}
{% endfor %}{% endfor %}{% else %}no tools
{% endif %}{% for m in messages %}{% generation %}{{ m.role }}|{{ m.content }}{% endgeneration %}
{% endfor %}{% if add_generation_prompt %}>{% endif %}{{ enable_thinking | default(true) }}"""
TEMPLATES = {"llama2": LLAMA2, "loops": LOOPS, "tools": TOOL_TEMPLATE}


def template(source: str) -> ChatTemplate:
    return ChatTemplate({"default": source}, SPECIAL_TOKENS, file="test")


def by_transformers(source: str, messages: list[dict[str, Any]], **variables: Any) -> str:
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    rendered, _ = utils.render_jinja_template([messages], chat_template=source, **variables, **SPECIAL_TOKENS)
    text: str = rendered[0]
    return text


@pytest.mark.parametrize("add_generation_prompt", [True, False])
@pytest.mark.parametrize("name", TEMPLATES)
def test_ordinary_templates_render_as_in_transformers(name: str, add_generation_prompt: bool) -> None:
    """Whitespace control, loops, break and continue, namespaces, filters, tojson, {% generation %}, tools."""
    source = TEMPLATES[name]
    for tools in (None, TOOLS):
        ours = template(source).render(CONVERSATION, add_generation_prompt=add_generation_prompt, tools=tools)
        theirs = by_transformers(
            source, CONVERSATION, add_generation_prompt=add_generation_prompt, tools=tools
        )
        assert ours == theirs


@pytest.fixture(scope="module")
def smollm2_template() -> str:
    source: str = GgufFile(default_model_file()).metadata["tokenizer.chat_template"]
    return source


@pytest.mark.parametrize("count", [1, 2, 4])
def test_default_model_renders_as_in_transformers(smollm2_template: str, count: int) -> None:
    """SmolLM2's own template, with and without a system message."""
    for messages in (CONVERSATION[:count], CONVERSATION[1 : count + 1]):
        for add_generation_prompt in (True, False):
            ours = template(smollm2_template).render(messages, add_generation_prompt=add_generation_prompt)
            assert ours == by_transformers(
                smollm2_template, messages, add_generation_prompt=add_generation_prompt
            )


def test_date_is_todays_in_the_given_format() -> None:
    """strftime_now: templates put the date into the system message."""
    text = template("{{ strftime_now('%Y') }} {{ strftime_now('%d %b %Y') | length }}").render(CONVERSATION)
    year, length = text.split()
    assert int(year) >= 2025
    assert length == "11"


def test_variables_reach_the_template() -> None:
    """Such as `enable_thinking`; what is not given is undefined there."""
    source = "{{ enable_thinking | default('unset') }}"
    assert template(source).render(CONVERSATION) == "unset"
    assert template(source).render(CONVERSATION, enable_thinking=False) == "False"


def intruders(marker: Path) -> dict[str, str]:
    """Templates that would run Python: each walks from a helper or a value to the interpreter's internals."""
    write = f"open({str(marker)!r}, 'w').write('x')"
    touch = f"touch {marker}"
    return {
        "cycler": f"{{{{ cycler.__init__.__globals__.os.popen({touch!r}).read() }}}}",
        "lipsum": f"{{{{ lipsum.__globals__['os'].system({touch!r}) }}}}",
        "string_subclasses": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "raise_exception": f"{{{{ raise_exception.__globals__['__builtins__']['eval']({write!r}) }}}}",
        "strftime_now": f"{{{{ strftime_now.__globals__.__builtins__.eval({write!r}) }}}}",
        "tojson_filter": f"{{{{ self._TemplateReference__context.environment.filters.tojson.__globals__"
        f"['__builtins__']['exec']({write!r}) }}}}",
        "attr_filter": f"{{{{ (lipsum | attr('__globals__'))['os'].system({touch!r}) }}}}",
        "map_attribute": "{{ ['x'] | map(attribute='__class__') | first | attr('__mro__') }}{{ ''.mro() }}",
        "format": "{{ '{0.__class__.__mro__}'.format(messages) }}",
        "format_map": "{{ '{m.__class__.__init__.__globals__}'.format_map({'m': namespace}) }}",
        "namespace": f"{{{{ namespace.__init__.__globals__['os'].system({touch!r}) }}}}",
        "namespace_attribute": "{% set ns = namespace(__class__='x') %}{{ ns }}",
        "namespace_set": "{% set ns = namespace() %}{% set ns.__html__ = lipsum %}{{ ns }}",
        "change_messages": "{% set _ = messages.append(1) %}{{ messages }}",
        "change_message": "{% set _ = messages[0].update({'role': 'system'}) %}{{ messages }}",
        "dict_class": "{{ dict.__globals__.os }}",
    }


@pytest.mark.parametrize("name", sorted(intruders(Path())))
def test_template_cannot_run_python(name: str, tmp_path: Path) -> None:
    """D28: a clear error at load or at the request, and no marker file."""
    marker = tmp_path / "marker"
    source = intruders(marker)[name]
    with pytest.raises((ModelLoadError, InvalidRequest)) as caught:
        print(template(source).render(CONVERSATION))
    assert "template" in str(caught.value)
    assert not marker.exists()


def test_intruder_is_refused_where_models_are_loaded(tmp_path: Path) -> None:
    """D28: every place that a template comes from: the config, the .jinja file, GGUF metadata."""
    marker = tmp_path / "marker"
    source = intruders(marker)["cycler"]
    directory = make_tiny_model(tmp_path / "tiny")
    (directory / "chat_template.jinja").write_text(source)
    with pytest.raises(ModelLoadError, match="chat template is not safe"):
        load_model(directory)
    assert not marker.exists()


def test_intruder_that_waits_for_its_message(tmp_path: Path) -> None:
    """D28: one that behaves at load is stopped at the request; later requests work."""
    marker = tmp_path / "marker"
    source = "{% if messages[0].content == 'now' %}" + intruders(marker)["lipsum"] + "{% endif %}fine"
    chat = template(source)
    with pytest.raises(InvalidRequest, match="not safe and was stopped"):
        chat.render([{"role": "user", "content": "now"}])
    assert not marker.exists()
    assert chat.render([{"role": "user", "content": "later"}]) == "fine"


def test_syntax_error_is_a_load_error() -> None:
    """The file, the template and the line are named."""
    with pytest.raises(ModelLoadError, match=r"test: chat template 'default', line 2: .*endfor"):
        template("{% for m in messages %}\n{% endif %}")


def test_refusal_of_the_template() -> None:
    """raise_exception: the template's own words reach the client as 400."""
    with pytest.raises(InvalidRequest, match="refuses these messages: Roles must alternate") as caught:
        template(LLAMA2).render([{"role": "assistant", "content": "4"}])
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    "source",
    [
        "{{ 1 // 0 }}",
        "{{ messages[0]['content'] + 1 }}",
        "{{ nothing.at.all }}",
        "{{ range(10000000) | list }}",
    ],
)
def test_failure_of_the_template(source: str) -> None:
    """Whatever a template raises is the request's error, not the server's."""
    with pytest.raises(InvalidRequest, match="chat template"):
        template(source).render(CONVERSATION)


def test_text_parts_are_joined() -> None:
    """Content may be a list of text parts."""
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    text = template("{{ messages[0].content }}").render([{"role": "user", "content": parts}])
    assert text == "one\ntwo"


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([], "at least one message, got none"),
        (["hi"], "messages[0] must be an object, got str"),
        ([{"content": "hi"}], "messages[0].role must be a string, got None"),
        ([{"role": 3, "content": "hi"}], "messages[0].role must be a string, got 3"),
        ([{"role": "user"}], "messages[0].content is missing"),
        ([{"role": "user", "content": None}], "messages[0].content is missing"),
        (
            [{"role": "user", "content": 3}],
            "messages[0].content must be a string or a list of text parts, got int",
        ),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}],
            'messages[0].content[0] must be {"type": "text", "text": …}, got type \'image_url\'',
        ),
        ([{"role": "user", "content": ["hi"]}], "messages[0].content[0] must be"),
    ],
)
def test_messages_that_are_none(messages: Any, expected: str) -> None:
    """D14 and beyond: the message and the field at fault are named."""
    with pytest.raises(InvalidRequest) as caught:
        template("{{ messages }}").render(messages)
    assert expected in str(caught.value)


def test_null_fields_are_left_out() -> None:
    """OpenAI clients send back `"content": null` beside tool calls; templates cannot add that to text."""
    calls = [{"type": "function", "function": {"name": "wave", "arguments": "{}"}}]
    message = {"role": "assistant", "content": None, "refusal": None, "tool_calls": calls}
    source = "{{ 'content' in messages[0] }} {{ messages[0].tool_calls[0].function.name }}"
    assert template(source).render([message]) == "False wave"


def test_only_plain_data_goes_in() -> None:
    """An object with methods would be a way out of the sandbox; the caller's messages are not touched."""

    class Role(enum.StrEnum):
        USER = "user"

    messages = [{"role": Role.USER, "content": "hi", "parts": (1, 2)}]
    text = template("{{ messages[0].role.name is defined }} {{ messages[0].parts }}").render(messages)
    assert text == "False [1, 2]"
    assert messages[0]["role"] is Role.USER
    with pytest.raises(InvalidRequest, match="JSON values only, got PosixPath"):
        template("").render([{"role": "user", "content": "hi", "path": Path("/")}])


def test_model_without_a_template(tmp_path: Path) -> None:
    """A clear 400 that says what to use instead."""
    directory = make_tiny_model(tmp_path / "tiny")
    (directory / "tokenizer_config.json").unlink()
    tokenizer = tokenizer_from_directory(directory, vocab_size=512)
    assert not tokenizer.has_chat_template
    with pytest.raises(InvalidRequest, match="no chat template; use the completions API"):
        tokenizer.render_chat(CONVERSATION)


def test_templates_of_a_directory(tmp_path: Path) -> None:
    """The .jinja file wins over the config; named ones lie in their own folder."""
    directory = make_tiny_model(tmp_path / "tiny")
    (directory / "chat_template.jinja").write_text("from the file")
    (directory / "additional_chat_templates").mkdir()
    (directory / "additional_chat_templates" / "tool_use.jinja").write_text("with tools")
    tokenizer = tokenizer_from_directory(directory, vocab_size=512)
    assert tokenizer.render_chat(CONVERSATION) == "from the file"
    assert tokenizer.render_chat(CONVERSATION, tools=TOOLS) == "with tools"
