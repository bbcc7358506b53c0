"""Close codes of pagurid.v1."""

from enum import IntEnum

__all__ = ["CloseCode"]


class CloseCode(IntEnum):
    """Why a socket ends. Clients come back by themselves on 1001, 1005, 1006, 1011 to 1013, 4440 and 4441."""

    NORMAL = 1000
    GOING_AWAY = 1001
    BINARY_FRAME = 1003
    BAD_UTF8 = 1007
    FRAME_TOO_LARGE = 1009
    INTERNAL = 1011
    OVERLOADED = 1013
    MALFORMED = 4400
    UNAUTHORIZED = 4401
    FORBIDDEN = 4403
    PROTOCOL_VERSION = 4406
    HELLO_TOO_LATE = 4408
    SECOND_HELLO = 4409
    MESSAGE_RATE = 4429
    HEARTBEAT_MISSED = 4440
    SLOW_CONSUMER = 4441
