"""Requests and answers of etcd's JSON gateway: bytes in base64, 64-bit numbers as text. Pure."""

import base64
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A key and its value, etcd's create and mod revisions, and the number of writes."""

    key: bytes
    value: bytes
    created: int
    mod: int
    version: int


@dataclass(frozen=True, slots=True)
class TxnResult:
    """The result of a transaction; `found` are the pairs of each read, in order."""

    succeeded: bool
    revision: int
    found: list[list[KeyValue]]


def end_of(prefix: bytes) -> bytes:
    """Return the first key after all with this prefix. The last byte of text is never 255."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def get(key: bytes) -> Json:
    return {"request_range": {"key": _b64(key)}}


def span(
    start: bytes, end: bytes, *, limit: int = 0, since: int = 0, keys_only: bool = False
) -> Json:
    """Read the keys from start to end that were written at etcd revision `since` or later."""
    limits = {"limit": str(limit), "min_mod_revision": str(since), "keys_only": keys_only}
    return {"request_range": {"key": _b64(start), "range_end": _b64(end), **limits}}


def as_of(question: Json, revision: int) -> Json:
    """Return the same read at an earlier revision."""
    return {"request_range": {**question["request_range"], "revision": str(revision)}}


def after(question: Json, key: bytes) -> Json:
    """Return the same read, starting after a key."""
    return {"request_range": {**question["request_range"], "key": _b64(key + b"\0")}}


def put(key: bytes, value: bytes, *, tell_old: bool = False) -> Json:
    """Write a key; with `tell_old` the previous pair is in the answer."""
    return {"request_put": {"key": _b64(key), "value": _b64(value), "prev_kv": tell_old}}


def delete(key: bytes) -> Json:
    return {"request_delete_range": {"key": _b64(key)}}


def delete_span(start: bytes, end: bytes) -> Json:
    return {"request_delete_range": {"key": _b64(start), "range_end": _b64(end)}}


def if_mod(key: bytes, mod: int, result: str = "EQUAL") -> Json:
    """Require the mod revision of a key (or LESS); 0 if it must be absent."""
    return {"key": _b64(key), "target": "MOD", "result": result, "mod_revision": str(mod)}


def if_empty(prefix: bytes) -> Json:
    """Require that no key has this prefix."""
    return {**if_mod(prefix, 0), "range_end": _b64(end_of(prefix))}


def answer_of(answer: Json) -> TxnResult:
    """Decode the answer to a transaction."""
    found = [
        pairs for response in answer.get("responses", ()) if (pairs := _pairs(response)) is not None
    ]
    return TxnResult(bool(answer.get("succeeded")), int(answer["header"]["revision"]), found)


def pairs_of(answer: Json) -> list[KeyValue]:
    """Decode the answer to a single read."""
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
