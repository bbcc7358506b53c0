"""Chat templates: a model's Jinja template, rendered where it can do no harm.

Owns: the sandbox. A template is code from whoever made the model file (CASES D28): it sees plain JSON data
and a few pure functions, cannot reach Python's internals, and whatever it raises becomes one clear error.
What ordinary templates expect is there as `transformers` has it: trim_blocks, lstrip_blocks, break and
continue, raise_exception, strftime_now, an unescaped tojson, {% generation %}.
Must not know: tokens, files.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox
import jinja2.utils
from jinja2.exceptions import SecurityError

from pagurid.errors import InvalidRequest, ModelLoadError

__all__ = ["ChatTemplate", "plain_messages"]

_PROBE = [{"role": "user", "content": "Hello"}]


class ChatTemplate:
    """The templates of one model by name (`default`, `tool_use`) and the special tokens they may spell."""

    def __init__(self, sources: Mapping[str, str], special_tokens: Mapping[str, str], *, file: str) -> None:
        environment = _environment()
        self._special_tokens = dict(special_tokens)
        self._templates: dict[str, jinja2.Template] = {}
        for name, source in sources.items():
            try:
                self._templates[name] = environment.from_string(source)
            except jinja2.TemplateSyntaxError as error:
                raise ModelLoadError(
                    f"{file}: chat template {name!r}, line {error.lineno}: {error.message}"
                ) from None
        self._refuse_intruders(file)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> str:
        """The text of a conversation. InvalidRequest if the messages do not suit the template."""
        try:
            return self._render(
                plain_messages(messages),
                add_generation_prompt=add_generation_prompt,
                tools=_plain(list(tools)) if tools else None,
                **_plain(variables),
            )
        except SecurityError as error:
            raise InvalidRequest(f"the model's chat template is not safe and was stopped: {error}") from None
        except InvalidRequest:
            raise
        except jinja2.TemplateError as error:
            raise InvalidRequest(
                f"the model's chat template refuses these messages: {error}", param="messages"
            ) from None
        except Exception as error:  # a template can raise anything: it is foreign code
            raise InvalidRequest(
                f"the model's chat template fails on these messages: {type(error).__name__}: {error}",
                param="messages",
            ) from None

    def _render(
        self, messages: list[dict[str, Any]], *, tools: list[Any] | None = None, **variables: Any
    ) -> str:
        name = "tool_use" if tools and "tool_use" in self._templates else "default"
        if name not in self._templates:
            name = next(iter(self._templates))
        context = {**self._special_tokens, "documents": None, **variables}
        return self._templates[name].render(messages=messages, tools=tools, **context)

    def _refuse_intruders(self, file: str) -> None:
        """Finds at load what the sandbox stops later anyway. Other failures may be the probe's."""
        try:
            self._render(_PROBE, add_generation_prompt=True)
        except SecurityError as error:
            raise ModelLoadError(f"{file}: the chat template is not safe and was stopped: {error}") from None
        except Exception:
            return


def plain_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Fresh, plain copies with text for content; InvalidRequest names the message at fault.

    Parts `{"type": "text", "text": …}` are joined by newlines. Fields that are null are left out.
    """
    if not messages:
        raise InvalidRequest("messages must hold at least one message, got none", param="messages")
    plain: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if not isinstance(message, Mapping):
            raise InvalidRequest(f"{where} must be an object, got {type(message).__name__}", param="messages")
        fields = {key: _plain(value) for key, value in message.items() if value is not None}
        if not isinstance(fields.get("role"), str):
            raise InvalidRequest(
                f"{where}.role must be a string, got {fields.get('role')!r}", param="messages"
            )
        if "content" in fields:
            fields["content"] = _text_of(fields["content"], f"{where}.content")
        elif not fields.get("tool_calls"):
            raise InvalidRequest(f"{where}.content is missing", param="messages")
        plain.append(fields)
    return plain


def _text_of(content: Any, where: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise InvalidRequest(
            f"{where} must be a string or a list of text parts, got {type(content).__name__}",
            param="messages",
        )
    texts: list[str] = []
    for index, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        text = part.get("text") if isinstance(part, dict) else None
        if kind != "text" or not isinstance(text, str):
            raise InvalidRequest(
                f'{where}[{index}] must be {{"type": "text", "text": …}}, got type {kind!r}: '
                "this model takes text only",
                param="messages",
            )
        texts.append(text)
    return "\n".join(texts)


def _plain(value: Any) -> Any:
    """Only JSON types go in: an object with methods would be a way out of the sandbox."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    for kind in (str, bool, int, float):
        if isinstance(value, kind):
            return kind(value)
    raise InvalidRequest(f"a chat template takes JSON values only, got {type(value).__name__}")


class _GenerationTag(jinja2.ext.Extension):
    """`{% generation %} … {% endgeneration %}` marks an answer for training; here it is what it encloses."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares it so)

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Namespace(jinja2.utils.Namespace):
    """`namespace()` that takes no name which Python itself would look up on it."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, rest = args[0], args[1:]
        attributes = dict(*rest, **kwargs)
        for name in attributes:
            _refuse_private(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_private(name)
        super().__setitem__(name, value)


def _refuse_private(name: Any) -> None:
    if not isinstance(name, str) or name.startswith("_"):
        raise SecurityError(f"a namespace cannot have an attribute {name!r}")


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(str(message))


def _strftime_now(format: str) -> str:
    return datetime.datetime.now().strftime(format)


def _new_dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _environment() -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals.update(
        raise_exception=_raise_exception, strftime_now=_strftime_now, dict=_new_dict, namespace=_Namespace
    )
    return environment
