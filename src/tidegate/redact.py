"""Secrets: which values must not be seen, and what masks them. Nothing else has a list of words.

Two ways, and every log line, answer, page, bundle and message goes through one of them or both:

*By rule* (`mask_value`, `mask_text`, `secret_texts`). A value is masked as a whole if its key is
*delicate* (`DELICATE`: password, token, sas ...), or if its key is *free* (spark.*, hadoop, fs.*,
headers, properties: `FREE`), unless key or value are known to be harmless (numbers, sizes, class
names, the master ...). Of an http address under such a key only scheme and host are shown, because
the path of a webhook is its password. Of any other text those parts are masked that are secrets by
their form (`_FORMS`): user parts and parameters of addresses, `Bearer ...`, `password=...`, keys in
PEM.

*By registration* (`register_secrets`, `redact`). A process that knows secrets registers them. From
then on the log formatter passes every line through `redact`, and `redact_stderr` covers uncaught
tracebacks.
"""

import base64
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TextIO, cast
from urllib.parse import quote, quote_plus, unquote, unquote_plus

MASK = "******"
SECRET_CHARS_MIN = 4  # shorter texts occur everywhere and are not secrets
SECRETS_MAX = 4_000  # only the newest are kept, because each of them slows down every log line
# values of options that are named like secrets but hold a switch
NOT_SECRET = frozenset({"true", "false", "null", "none"})

_secrets: tuple[str, ...] = ()
Spans = list[tuple[int, int]]
UNNAMED_CHARS_MIN = 8
_PLAIN_WORD = re.compile(r"[a-z_]+|[A-Z_]+")

_WORDS = (
    r"pass|pwd|secret|token|credential|auth(?!or(?!i[sz]))|cookie|signature|signing|jaas|keytab"
    r"|bearer|webhook"
    r"|(?:access|private|account|api|secret|shared|master|encrypt(?:ion)?|storage|service|client"
    r"|consumer|license|ssh|kms|keystore).?key"
    r"|(?<![a-z])(?:sas|sig|dsn|psk|jwt|otp|hmac)(?![a-z])|connection.?string"
)
DELICATE = re.compile(_WORDS, re.IGNORECASE)
FREE = re.compile(
    r"^(?:spark|hadoop|hive|yarn|dfs|fs|fsspec|s3|s3a|gs|oss|obs|cos|azure|abfs|adl|wasb)[._]"
    r"|hadoop|header|propert|\.options?(?:\.|$)",
    re.IGNORECASE,
)
_HARMLESS_KEYS = re.compile(
    r"""^(?:spark\.)?(?:hadoop\.)?(?:
      master | app\.(?:name|id) | submit\.deployMode | local\.dir | scheduler\.(?:mode|pool)
    | serializer
    | jars(?:\.\w+)* | files | archives | pyspark\.(?:driver\.)?python | eventLog\.dir | log\.level
    | (?:driver|executor)\.(?:host|bindAddress|port|extraClassPath|extraLibraryPath|memory|cores)
    | sql\.(?:session\.timeZone|warehouse\.dir|extensions|defaultCatalog|sources\.\w+
      |parquet\.[\w.]+|catalog\.[^.]+(?:\.(?:type|uri|warehouse|\w+-impl))?)
    | yarn\.queue | kubernetes\.(?:namespace|container\.image)
    | eventLog\.compression\.codec | io\.compression\.codec
    | fs\.defaultFS | fs\.s3a\.(?:endpoint|endpoint\.region|aws\.credentials\.provider)
    | s3\.(?:bucket|region|endpoint)
    | fs\.[\w.]+\.impl | storage\.type | namespace
    )$""",
    re.IGNORECASE | re.VERBOSE,
)
_HARMLESS_VALUES = re.compile(
    r"""(?:
      [+-]?\d{1,20}(?:\.\d{1,20})?\s*(?:[kmgtpe]?i?b?|[num]?s|sec|min|h|d|%)
    | true|false|yes|no|on|off|none|null|default|auto|utc|gmt|fair|fifo|client|cluster|static
    | dynamic|ansi|legacy|corrected|strict|permissive|exception|error|warn|info|debug|kryo|java
    | zstd|snappy|lz4
    | gzip|uncompressed
    | parquet|orc|csv|json|avro|iceberg|delta|hive|in-memory|rest|glue|nessie|jdbc
    | local(?:\[[\d*,\s]+\])?
    | /(?:[\w.-]{1,24}/?){1,12}
    | (?-i:[a-z][a-z0-9-]{0,62}(?:\.[a-z0-9-]{1,62}){0,8}:\d{1,5})
    | (?-i:[a-z][a-z0-9_]{0,30}(?:\.[a-z][a-z0-9_]{0,30}){1,10}\.[A-Z][A-Za-z0-9$]{1,80})
      (?:,(?-i:[a-z][a-z0-9_.]{0,99}\.[A-Z][A-Za-z0-9$]{1,80}))*
    )""",
    re.IGNORECASE | re.VERBOSE | re.ASCII,
)
_WITHOUT_TEXT = frozenset({int, float, bool, type(None)})
_FLAGS = frozenset({"true", "false"})  # also under a delicate key: spark.authenticate = true
PACKED_KEY = "packed-secret"
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*:\S*", re.IGNORECASE)
_HTTP = re.compile(r"(?P<before>https?://(?:(?P<secret>[^/?#@\s]*)@)?[^/?#@\s]*/?)", re.IGNORECASE)
_JVM = re.compile(r"-D(?P<name>[^=\s]+)=(?P<value>\"[^\"]*\"|'[^']*'|\S+)")
# All of them are bounded: what others say may be long, and made to take long.
_USER_PART = re.compile(
    r"://[^:/@?#\s]{0,200}:(?!\d{1,5}(?:[/?#;,\s]|$))(?P<secret>[^\s\"'<>]{1,500})@"
)
_ORACLE = re.compile(
    r"[Jj][Dd][Bb][Cc]:[Oo]racle:[a-z0-9]{1,20}:[^:/@\s]{1,200}/(?P<secret>[^@\s]{1,500})@"
)
_PARAMETER = re.compile(r"[?&;,](?P<name>[^=&;,?\s]{0,200})=(?P<secret>[^&;,\s\"'<>]+)")
_FORMS = (
    _USER_PART,
    _ORACLE,
    re.compile(r"[Tt][Tt][Pp][Ss]?://(?P<secret>[^\s\"'<>/?#@:]{1,500})@"),
    re.compile(
        r"[Tt][Tt][Pp][Ss]?://(?=[^\s\"'<>]{0,500}(?:[Hh]ook|/bot))"
        r"[^\s\"'<>/?#]{1,300}/(?P<secret>[^\s\"'<>]+)"
    ),
    re.compile(
        r"(?:[Bb]earer|BEARER|[Bb]asic|BASIC|Negotiate|SharedKey|Digest)\s{1,9}"
        r"(?=\S{0,500}[\d._=+/~-])(?P<secret>[\w.~+/=:-]{6,})"
    ),
    re.compile(
        r"(?P<secret>eyJ[\w-]{8,4000}\.[\w-]{1,4000}\.[\w-]+|gh[pousr]_\w{20,}"
        r"|xox[abprs]-[\w-]{10,}|tg_[0-9a-f]{12}_[\w-]{20,})"
    ),
    re.compile(
        r"-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----(?P<secret>.{1,20000}?)(?:-----END|\Z)", re.DOTALL
    ),
    re.compile(
        rf"(?<!un)(?:{_WORDS})[\w.-]{{0,100}}(?:\\?[\"'])?\s{{0,9}}(?:=>|[:=])\s{{0,9}}"
        r"(?:(?P<q>\\?[\"'])(?P<quoted>.{0,4000}?)(?P=q)|(?P<secret>[^\s\"',;&})\]\\]+))",
        re.IGNORECASE,
    ),
)
# What every one of them needs; most texts have none of it, and need not be searched eight times.
_HINT = re.compile(
    r"[@=:]|eyJ|gh[pousr]_|xox|tg_|[Bb]earer|BEARER|[Bb]asic|BASIC|Negotiate|SharedKey"
    r"|Digest|-----BEGIN"
)


@lru_cache(maxsize=4096)
def _is_delicate(key: str) -> bool:
    return DELICATE.search(key) is not None


@lru_cache(maxsize=4096)
def _is_free(key: str) -> bool:
    return FREE.search(key) is not None


@lru_cache(maxsize=4096)
def _is_harmless(key: str) -> bool:
    return _HARMLESS_KEYS.match(key) is not None


def mask_value(key: str, value: Any, *, free: bool = False) -> Any:
    """The value without what must not be seen, however deep; `free` where its block has keys that
    nobody knows.
    """
    free = free or _is_free(key)
    if isinstance(value, Mapping):
        if set(value) == {PACKED_KEY}:
            return MASK
        return {
            str(inner): MASK if _is_delicate(key) else mask_value(str(inner), each, free=free)
            for inner, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [mask_value(key, each, free=free) for each in value]
    if isinstance(value, str):
        return _spliced(value, _spans(key, value, free))
    hidden = _is_delicate(key) and isinstance(value, int | float) and not isinstance(value, bool)
    return MASK if hidden else value


def mask_text(text: str) -> str:
    """A free text (a line of a log, a message, an address) without the parts that are secrets by
    their form.
    """
    return _spliced(text, _form_spans(text))


def is_delicate_line(text: str) -> bool:
    """Whether a line of a job file may hold a secret, so that no message repeats it."""
    return bool(DELICATE.search(text) or FREE.search(text.strip()) or _form_spans(text))


def address_secrets(address: str) -> list[str]:
    """The passwords that an address holds: before its host, or among its parameters."""
    return [address[start:end] for start, end in _address_spans(address)]


def mask_address(address: str) -> str:
    """An address without its secrets, for messages."""
    return _spliced(address, _address_spans(address))


def secret_texts(options: Mapping[str, Any], *, free: bool = False) -> frozenset[str]:
    """Every text in these options that must not be seen, packed or not, however deep: for masking
    it in what others say.
    """
    return frozenset(
        text
        for key, value in options.items()
        if type(value)
        not in _WITHOUT_TEXT  # most values, and every job that is submitted passes here
        for text in _texts(key, value, free)
        if text
    )


def _texts(key: str, value: Any, free: bool) -> Iterator[str]:
    free = free or _is_free(key)
    if isinstance(value, str):
        spans = _spans(key, value, free)
        unnamed = spans == [(0, len(value))] and not _is_delicate(key)
        if not (
            unnamed and (len(value) < UNNAMED_CHARS_MIN or _PLAIN_WORD.fullmatch(value))
        ):  # else it is masked, but any line may have this word
            yield from _written(value, spans)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(key, each, free)
    elif isinstance(value, Mapping):
        inner = unpack(value)
        if isinstance(inner, str):
            yield from (
                _written(inner, _address_spans(inner)) if holds_secret(inner) else (inner,)
            )  # or its connector calls it secret
        elif isinstance(inner, Mapping):
            for name, each in inner.items():
                yield from _texts(
                    key if _is_delicate(key) else str(name), each, free or inner is not value
                )
        elif isinstance(inner, list | tuple):
            yield from _texts(key, inner, free)


def _written(text: str, spans: Spans) -> Iterator[str]:
    """What is hidden of a text: as it is written, and as it is meant."""
    for start, end in spans:
        found = text[start:end]
        yield from (found, unquote(found), unquote_plus(found))


def _spans(key: str, text: str, free: bool) -> Spans:
    """Which parts of a value must not be seen."""
    if not text or text.lower() in _FLAGS:
        return []
    if _is_delicate(key) and not _is_harmless(key):
        return [(0, len(text))]
    if not free or _is_harmless(key) or _HARMLESS_VALUES.fullmatch(text):
        return _form_spans(text)
    if "-D" in text or text.startswith("-X"):
        return _merged(_jvm_spans(text) + _form_spans(text))
    if (http := _HTTP.match(text)) is not None:
        user = [http.span("secret")] if http["secret"] else []
        return user + ([(http.end(), len(text))] if http.end() < len(text) else [])
    if _ADDRESS.fullmatch(text) and "://" in text:
        return _form_spans(text)
    return [(0, len(text))]


def _jvm_spans(text: str) -> Spans:
    found = []
    for option in _JVM.finditer(text):
        start = option.start("value")
        found += [
            (start + a, start + b) for a, b in _spans(option["name"], option["value"], free=True)
        ]
    return found


def _address_spans(text: str) -> Spans:
    if (
        "@" not in text and "=" not in text
    ):  # most texts: there is none in what these expressions look for
        return []
    found = [
        match.span("secret")
        for pattern in (_USER_PART, _ORACLE)
        for match in pattern.finditer(text)
    ]
    return _merged(found + _parameter_spans(text))


def _parameter_spans(text: str) -> Spans:
    return [
        match.span("secret")
        for match in _PARAMETER.finditer(text)
        if match["name"].lower() == "key" or DELICATE.search(match["name"])
    ]


def _form_spans(text: str) -> Spans:
    if _HINT.search(text) is None:
        return []
    found = _parameter_spans(text) if "=" in text else []
    for pattern in _FORMS:
        for match in pattern.finditer(text):
            name = (
                "quoted"
                if "quoted" in pattern.groupindex and match["quoted"] is not None
                else "secret"
            )
            if match[name].lower() not in (*_FLAGS, "null", "none", MASK):
                found.append(match.span(name))
    return _merged(found)


def _merged(spans: Spans) -> Spans:
    merged: Spans = []
    for start, end in sorted(span for span in spans if span[0] < span[1]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _spliced(text: str, spans: Spans) -> str:
    for start, end in reversed(spans):
        text = text[:start] + MASK + text[end:]
    return text


def holds_secret(value: Any) -> bool:
    """Only what looks like an address: a statement may have a word before an = too."""
    return (
        isinstance(value, str)
        and _ADDRESS.fullmatch(value) is not None
        and bool(address_secrets(value))
    )


def pack(value: Any) -> dict[str, str]:
    return {PACKED_KEY: base64.b64encode(json.dumps(value).encode()).decode("ascii")}


def unpack(value: Any) -> Any:
    if isinstance(value, Mapping) and set(value) == {PACKED_KEY}:
        return json.loads(base64.b64decode(value[PACKED_KEY]))
    return value


def register_secrets(secrets: Iterable[str]) -> None:
    """Mask these texts from now on, in every spelling.

    Thread-safe: other threads see all of the new secrets or none.
    """
    global _secrets
    new = [form for form in spellings(secrets) if form not in _secrets]
    if new:
        _secrets = (*new, *_secrets)[:SECRETS_MAX]


def spellings(secrets: Iterable[str]) -> list[str]:
    """Return every way to write these texts: plain, URL-quoted, in JSON, in a Python repr.

    The longest come first, because one may contain another.
    """
    found: set[str] = set()
    for text in secrets:
        if len(text) >= SECRET_CHARS_MIN and text.lower() not in NOT_SECRET:
            found |= {
                text,
                quote(text, safe=""),
                quote_plus(text),
                json.dumps(text)[1:-1],
                json.dumps(text, ensure_ascii=False)[1:-1],
                repr(text)[1:-1],
            }
    return sorted(found, key=lambda text: (-len(text), text))


def redact(text: str, also: Iterable[str] = ()) -> str:
    """Mask the registered secrets, and those in `also`."""
    for secret in (*spellings(also), *_secrets) if also else _secrets:
        text = text.replace(secret, MASK)
    return text


class RedactingStream:
    """Standard error without secrets, because uncaught tracebacks end there."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(redact(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def redact_stderr() -> None:
    """Mask secrets in everything this process writes to standard error from now on."""
    if not isinstance(sys.stderr, RedactingStream):
        sys.stderr = cast(TextIO, RedactingStream(sys.stderr))
