"""The pieces of etcd's requests and answers, as its JSON gateway has them: bytes in base64, 64-bit
numbers as text. Called by etcd*.py; pure.
"""

import base64
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A key, its value, and etcd's revisions of its first and its last writing, and how many there
    were.
    """

    key: bytes
    value: bytes
    created: int
    mod: int
    version: int


@dataclass(frozen=True, slots=True)
class TxnResult:
    """What a transaction brought: were its conditions met, etcd's revision then, and the pairs of
    each of its questions, in order.
    """

    succeeded: bool
    revision: int
    found: list[list[KeyValue]]


def end_of(prefix: bytes) -> bytes:
    """The first key behind all that begin so. The last byte of text is never 255."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def get(key: bytes) -> Json:
    return {"request_range": {"key": _b64(key)}}


def span(
    start: bytes, end: bytes, *, limit: int = 0, since: int = 0, keys_only: bool = False
) -> Json:
    """A question: the keys from start to end, those that were written at etcd's revision `since` or
    later.
    """
    limits = {"limit": str(limit), "min_mod_revision": str(since), "keys_only": keys_only}
    return {"request_range": {"key": _b64(start), "range_end": _b64(end), **limits}}


def as_of(question: Json, revision: int) -> Json:
    """The same question about the past."""
    return {"request_range": {**question["request_range"], "revision": str(revision)}}


def after(question: Json, key: bytes) -> Json:
    """The same question, from behind a key on."""
    return {"request_range": {**question["request_range"], "key": _b64(key + b"\0")}}


def put(key: bytes, value: bytes, *, tell_old: bool = False) -> Json:
    """An act; with `tell_old`, the pair of before is an answer too."""
    return {"request_put": {"key": _b64(key), "value": _b64(value), "prev_kv": tell_old}}


def delete(key: bytes) -> Json:
    """An act: away with one key."""
    return {"request_delete_range": {"key": _b64(key)}}


def delete_span(start: bytes, end: bytes) -> Json:
    """An act: away with all keys from start to end."""
    return {"request_delete_range": {"key": _b64(start), "range_end": _b64(end)}}


def if_mod(key: bytes, mod: int, result: str = "EQUAL") -> Json:
    """A condition: the last writing of a key was at this revision of etcd's (or LESS); 0 = it is
    absent.
    """
    return {"key": _b64(key), "target": "MOD", "result": result, "mod_revision": str(mod)}


def if_empty(prefix: bytes) -> Json:
    """A condition: no key begins so."""
    return {**if_mod(prefix, 0), "range_end": _b64(end_of(prefix))}


def answer_of(answer: Json) -> TxnResult:
    """The answer to a transaction."""
    found = [
        pairs for response in answer.get("responses", ()) if (pairs := _pairs(response)) is not None
    ]
    return TxnResult(bool(answer.get("succeeded")), int(answer["header"]["revision"]), found)


def pairs_of(answer: Json) -> list[KeyValue]:
    """The answer to a question that was asked alone."""
    return [_pair(kv) for kv in answer.get("kvs", ())]


def _pairs(response: Json) -> list[KeyValue] | None:
    if "response_range" in response:
        return pairs_of(response["response_range"])
    old = response.get("response_put", {}).get("prev_kv")
    return None if old is None else [_pair(old)]


def _pair(kv: Json) -> KeyValue:
    value = base64.b64decode(kv.get("value", ""))
    return KeyValue(
        base64.b64decode(kv["key"]),
        value,
        int(kv["create_revision"]),
        int(kv["mod_revision"]),
        int(kv["version"]),
    )


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
