"""JSON from a client → typed structs, or `InvalidRequest` that names the field.

Owns: the one place where a decoder's error becomes ours. Unpaired surrogates, NaN and numbers out of range
are refused here, so nothing unprintable gets further.
Must not know: transports, the engine.
"""

from __future__ import annotations

import json
import re
from typing import TypeVar

import msgspec

from pagurid.errors import InvalidRequest

__all__ = ["UnpairedSurrogate", "decode_json"]

T = TypeVar("T")


class UnpairedSurrogate(InvalidRequest):
    """Well-formed JSON whose text no encoder can write again: half of a UTF-16 pair."""


_PATH = re.compile(r" - at (?:`key` in )?`\$\.?([^`]*)`$")


def decode_json(data: bytes | str, kind: type[T]) -> T:
    """Decodes strictly. Raises InvalidRequest; `param` is the field's path, such as `sampling.n`."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        text = str(error)
        found = _PATH.search(text)
        param = found.group(1) if found and found.group(1) else None
        what = text[: found.start()] if found else text
        where = f"{param}: " if param else ""
        raise InvalidRequest(f"{where}{what[0].lower()}{what[1:]}", param=param) from None
    except (msgspec.DecodeError, UnicodeError) as error:
        if _has_unpaired_surrogate(data):
            message = "expected whole characters, got an unpaired surrogate, \\ud800 to \\udfff"
            raise UnpairedSurrogate(message) from None
        raise InvalidRequest(f"expected valid JSON: {error}") from None
    except RecursionError:
        raise InvalidRequest("expected valid JSON: nested too deeply") from None


def _has_unpaired_surrogate(data: bytes | str) -> bool:
    """The standard decoder lets halves of pairs through, so what nobody can encode has one."""
    try:
        json.dumps(json.loads(data), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False
