r"""Taking secrets out of a text before anybody outside is shown it: by the name of a field, and by their own form.

Over-careful by intent: a judge reads the gist of a call and does without hashes and keys. What is missed is stated in
`docs/what-leaves-the-machine.md` and tested. Work grows linearly with the text: needles are found with `in`, patterns
run at the places found, and every repetition in them is bounded.

>>> redact('curl -H "Authorization: Bearer abc123def456" https://bob:hunter2@example.org/')
'curl -H "Authorization: [redacted]" https://bob:[redacted]@example.org/'
>>> redact_arguments('{"env": {"dbPassword": "hunter2", "region": "eu"}}')
'{"env":{"dbPassword":"[redacted]","region":"eu"}}'
"""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["MASK", "redact", "redact_arguments"]

MASK = "[redacted]"
_MASK = MASK.encode()

# Parts of names whose value is secret, in lower case without separators. `token` is not among them: counts of tokens
# are everywhere, so it has a rule of its own.
_SECRET_PARTS = tuple(
    "password passwd passphrase secret apikey accesskey privatekey signingkey encryptionkey sharedkey accountkey "
    "credential authorization cookie connectionstring otpcode onetimepassword clientkey mfacode licensekey "
    "masterkey authkey storagekey subscriptionkey webhookurl".split()
)
_SECRET_NAMES = frozenset("auth pwd pass pw otp pin cvv cvc dsn totp bearer sas passwords".split())
# What a text is searched for, in lower case as it is written: first the short word, then the names that hold it.
_FIELD_NEEDLES: dict[bytes, tuple[bytes, ...]] = {
    word.encode(): tuple(name.encode() for name in names.split())
    for word, names in {
        "pass": "passw passphrase _pass pass= --pass",
        "key": "apikey api_key api-key accesskey access_key access-key privatekey private_key private-key signing_key "
        "signingkey encryption_key encryptionkey sharedkey shared_key accountkey account_key auth_key authkey "
        "client_key master_key masterkey storage_key subscription-key license_key",
        "secret": "secret",
        "token": "token",
        "credential": "credential",
        "authorization": "authorization",
        "cookie": "cookie",
        "connection": "connectionstring connection_string",
        "pwd": "pwd",
        "webhook": "webhook_url",
    }.items()
}
# The rest of a name, its closing quote, the sign between name and value (escaped quotes: JSON inside JSON).
_TO_VALUE = re.compile(
    rb"[\w.-]{0,40}(?:\\{0,3}[\"'`]|\])?[ \t]{0,8}(?:=>|:=|[:=]|>|[ \t](?=[^\s=:]))[ \t]{0,8}"
    rb"(?:[|>][+-]?[ \t]{0,4}\r?\n[ \t]{1,12})?"
)
_QUOTED = re.compile(rb"(\\{0,3}[\"'`])((?:(?!\1)[^\r\n]){1,4096})")
# Pairs in a list, as environments and headers are often written: {"name": "API_TOKEN", "value": "…"}.
_PAIR = re.compile(rb"[\w.-]{0,40}\\{0,3}[\"'][ \t]{0,4},\s{0,8}\\{0,3}[\"']value\\{0,3}[\"'][ \t]{0,4}:[ \t]{0,4}")
_NESTED = re.compile(rb"[{\[]\s{0,8}\\{0,3}[\"'][^{}\[\]]{1,4096}[}\]]?")
_BARE = re.compile(rb"[^\s\"'`,;&<>|\\)}\]]{1,4096}")
_SCHEME = re.compile(rb"(?i)(?:bearer|basic|token|digest|negotiate|apikey)[ \t]{1,4}[^\s\"'\\,;]{3,4096}")
_DIGEST = re.compile(rb"(?i)digest[ \t][^\r\n]{1,4096}")
_REST_OF_LINE = re.compile(rb"[^\r\n\"'\\]{1,4096}")
# Values that are no secret: numbers of a count, types, references to a place the secret is kept in, what is masked.
_HARMLESS = re.compile(
    rb"(?i)(?:\d{1,3}(?!\d)|true\b|false\b|none\b|null\b|str\b|string\b|int\b|bytes\b|optional\b|\$|\{\{|%\(|<|\*{3}|"
    rb"os\.|process\.env|getenv|env\[|\[redacted\]|self\.|/[\w.]+/|field\(|required\b|input\b|function\b|=)"
)
# `token` counts as a secret's name unless it counts tokens.
_TOKEN_COUNT = re.compile(rb"(?i)tokens?(?:s|iz|_?count|_?limit|_?id\b|_?type|_?budget|_?usage|\()")
# Characters before a secret's name in which the dash of an option is looked for.
LONGEST_OPTION = 40
_NOT_A_NAME = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")

# Secrets known by how they begin. They stand alone: signs before them are none of a name.
_SHAPES = tuple(
    re.compile(pattern.encode())
    for pattern in (
        r"eyJ[\w-]{8,4096}\.[\w-]{4,8192}(?:\.[\w-]{0,4096})?",
        r"sk-[\w-]{16,256}",
        r"sk_(?:live|test)_\w{8,256}",
        r"rk_(?:live|test)_\w{8,256}",
        r"pk_live_\w{8,256}",
        r"whsec_[\w-]{8,256}",
        r"AKIA[A-Z0-9]{12,20}",
        r"ASIA[A-Z0-9]{12,20}",
        r"ghp_\w{16,255}",
        r"gho_\w{16,255}",
        r"ghu_\w{16,255}",
        r"ghs_\w{16,255}",
        r"ghr_\w{16,255}",
        r"github_pat_\w{16,255}",
        r"glpat-[\w.-]{12,255}",
        r"gldt-[\w-]{12,255}",
        r"xox[abeprs]-[\w-]{8,255}",
        r"xapp-[\w-]{8,255}",
        r"AIza[\w-]{30,64}",
        r"ya29\.[\w-]{16,1024}",
        r"GOCSPX-[\w-]{16,64}",
        r"SG\.[\w-]{12,64}\.[\w-]{12,128}",
        r"npm_[A-Za-z0-9]{24,64}",
        r"pypi-[\w-]{32,512}",
        r"hf_[A-Za-z0-9]{20,64}",
        r"gsk_[A-Za-z0-9]{20,128}",
        r"r8_[A-Za-z0-9]{20,64}",
        r"dckr_pat_[\w-]{16,64}",
        r"dop_v1_[a-f0-9]{32,128}",
        r"shpat_[a-fA-F0-9]{16,64}",
        r"lin_api_\w{16,64}",
        r"hvs\.[\w-]{16,256}",
        r"AGE-SECRET-KEY-1[A-Z0-9]{20,80}",
    )
)
_BY_START: dict[bytes, list[re.Pattern[bytes]]] = {}
for _shape in _SHAPES:
    for _start in b"xoxa xoxb xoxe xoxp xoxr xoxs".split() if b"xox" in _shape.pattern else [_shape.pattern]:
        _BY_START.setdefault(_start[:3].replace(b"\\", b"."), []).append(_shape)
# All signs a shape is made of; every shape is longer than its start and a few signs.
_WORD_SIGNS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-."
_TO_WORDS = bytes(sign if sign in _WORD_SIGNS else 32 for sign in range(256))
_SHAPE_SIGNS = 14
# Addresses that are keys.
_ADDRESSES = (
    re.compile(rb"(?i)hooks\.slack\.com/(?:services|workflows)/[\w/]{8,255}"),
    re.compile(rb"(?i)discord(?:app)?\.com/api/webhooks/[\w/-]{8,255}"),
    re.compile(rb"(?i)[?&;](?:sig|signature|x-amz-signature|x-goog-signature|key|code)=([^\s&\"'\\]{12,1024})"),
)  # fmt: skip
# Schemes of authorization, wherever they stand. `Basic` is a word too: base64 has a capital behind a small letter.
_BEARER = (
    (b"bearer ", re.compile(rb"(?i)bearer [\w.~+/=-]{8,4096}")),
    (b"basic ", re.compile(rb"(?i:basic) (?=[A-Za-z0-9+/]{0,64}[a-z0-9][A-Z])[A-Za-z0-9+/]{12,1024}={0,2}")),
)
_KEY_BEGINS = re.compile(rb"(?i)-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_BOT_TOKEN = re.compile(rb"(?<![\w:])\d{8,10}:AA[\w-]{30,40}")
_IN_URL = re.compile(rb"://([^\s/@:\"']{0,128}):([^\s/@\"']{1,512})@")
_URL_TOKEN = re.compile(rb"://([^\s/@:\"']{16,512})@")
_END_OF_KEY = re.compile(rb"(?i)-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")

_DENSE_SIGNS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=_-"
_TO_X = bytes(ord("x") if sign in _DENSE_SIGNS else 32 for sign in range(256))
# A run that long with all three classes of signs is no word, path or hash: keys of 24 bytes in base64 have 32 signs.
_RUN_SIGNS = 32
_RUN = b"x" * _RUN_SIGNS
# Between slashes, dashes and underscores a key has a part this long, and words hardly have.
_PART_SIGNS = 20
_TO_PART = bytes(
    ord("x") if chr(sign).isascii() and (chr(sign).isalnum() or sign in b"+=") else 32 for sign in range(256)
)
_PART = b"x" * _PART_SIGNS
_RUN_DIGITS = 3


def redact(text: str) -> str:
    """The text with secrets replaced by `[redacted]`."""
    raw = text.encode("utf-8", "surrogatepass")
    # Lower case of ASCII only: places in it are places in the text.
    lower = raw.lower()
    found: list[tuple[int, int]] = []
    if any(map(lower.__contains__, _FIELD_NEEDLES)):
        for word, needles in _FIELD_NEEDLES.items():
            if word in lower:
                for needle in needles:
                    _by_name(raw, lower, needle, found)
    for needle, shape in _BEARER:
        if needle in lower:
            _by_form(raw, lower, needle, shape, found)
    at = 0
    for word in _long_words(raw):
        if word[:3] in _BY_START:
            # Words come in the order of the text, so each search goes on where the last one ended.
            at = raw.find(word, at) + len(word)
            _by_start(word, at - len(word), found)
    if b"-----begin " in lower:
        _private_keys(raw, found)
    if b"://" in raw:
        found.extend(match.span(2) for match in _IN_URL.finditer(raw))
        found.extend(match.span(1) for match in _URL_TOKEN.finditer(raw))
        for address in _ADDRESSES:
            found.extend(match.span(match.lastindex or 0) for match in address.finditer(raw))
    if b":AA" in raw:
        found.extend(match.span() for match in _BOT_TOKEN.finditer(raw))
    if b"-----end " in lower:
        _cut_off_key(raw, found)
    if _PART in raw.translate(_TO_PART):
        _dense_runs(raw, raw.translate(_TO_X), found)
    return _masked(raw, found).decode("utf-8", "surrogatepass") if found else text


def is_plain(text: str) -> bool:
    """Whether `redact` and `redact_arguments` surely change nothing, for many short texts joined by line breaks."""
    raw = text.encode("utf-8", "surrogatepass")
    lower = raw.lower()
    return not (
        any(map(lower.__contains__, _PLAIN_NEEDLES))
        or b"-----" in raw
        or _PART in raw.translate(_TO_PART)
        or not _BY_START.keys().isdisjoint([word[:3] for word in _long_words(raw)])
    )


def redact_arguments(text: str) -> str:
    """The arguments of a call: by field where they are JSON, whatever is nested in them, and as any text."""
    if text[:1] in "{[" and any(map(text.lower().__contains__, _ARGUMENT_NEEDLES)):
        try:
            value = json.loads(text)
            cleaned = _clean_value(value)
        except (ValueError, RecursionError):
            return redact(text)
        if cleaned != value:
            text = json.dumps(cleaned, ensure_ascii=False, separators=(",", ":"))
    return redact(text)


# What a secret name in JSON has in it; short names end with the quote.
_ARGUMENT_NEEDLES = tuple(
    'pass secret key" credential authorization cookie token connection pwd pin" otp" auth" dsn" pw" sas" mfa cvv cvc'
    " bearer webhook".split()
)
_PLAIN_NEEDLES = tuple({*_FIELD_NEEDLES, *(needle.encode() for needle in _ARGUMENT_NEEDLES), b"basic ", b"://", b":aa"})


def is_secret_name(name: str) -> bool:
    """Whether a field of this name holds a secret, in any spelling: `dbPassword`, `X-Api-Key`, `AUTH_TOKEN`."""
    plain = name.lower().replace("_", "").replace("-", "").replace(".", "").replace(" ", "")
    if plain in _SECRET_NAMES or any(part in plain for part in _SECRET_PARTS):
        return True
    return plain.endswith(("token", "pass", "pwd", "pin", "otp")) and not plain.endswith(("spin", "compass", "bypass"))


def _clean_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: MASK if is_secret_name(name) and _may_hide(item) else _clean_value(item)
            for name, item in value.items()
        }
    if isinstance(value, list):
        # Environments and headers as lists of pairs: {"name": "DB_PASSWORD", "value": "…"}.
        return [_clean_pair(item) for item in value]
    return value


def _clean_pair(item: Any) -> Any:
    if isinstance(item, dict):
        name = item.get("name", item.get("key", item.get("Name", item.get("Key"))))
        if isinstance(name, str) and is_secret_name(name):
            return {field: MASK if field.lower() == "value" else _clean_value(inner) for field, inner in item.items()}
    return _clean_value(item)


def _may_hide(value: Any) -> bool:
    return value is not None and not isinstance(value, bool) and value not in ("", [], {})


def _by_name(raw: bytes, lower: bytes, needle: bytes, found: list[tuple[int, int]]) -> None:
    """Values behind a telling name: quoted, bare, or the rest of a header line."""
    at = lower.find(needle)
    while at >= 0:
        end = at + len(needle)
        gap = None if _is_other_word(raw, needle, at) else _PAIR.match(raw, end) or _TO_VALUE.match(raw, at)
        if gap is not None:
            value = _value_at(raw, gap.end(), is_header=needle in (b"authorization", b"cookie"))
            if value is not None and _HARMLESS.match(raw, value[0]) is None and _is_said(raw, gap):
                found.append(value)
                end = max(end, value[1])
        at = lower.find(needle, end)


def _is_other_word(raw: bytes, needle: bytes, at: int) -> bool:
    return needle == b"token" and _TOKEN_COUNT.match(raw, at) is not None


def _is_said(raw: bytes, gap: re.Match[bytes]) -> bool:
    """Name and value with only a blank between them are prose, unless a dash makes them an option: `--password x`."""
    between = gap.group()
    if between.rstrip(b" \t")[-1:] in (b"=", b":", b">") or b"\n" in between:
        return True
    word = raw[max(0, gap.start() - LONGEST_OPTION) : gap.start()].split(b" ")[-1].lstrip(b"\"'")
    return word[:1] == b"-"


def _value_at(raw: bytes, at: int, *, is_header: bool) -> tuple[int, int] | None:
    quoted = _QUOTED.match(raw, at)
    if quoted is not None:
        return quoted.span(2)
    scheme = _DIGEST.match(raw, at) or _NESTED.match(raw, at) or _SCHEME.match(raw, at)
    if scheme is not None:
        return scheme.span()
    match = (_REST_OF_LINE if is_header else _BARE).match(raw, at)
    return match.span() if match is not None else None


def _by_form(raw: bytes, lower: bytes, needle: bytes, shape: re.Pattern[bytes], found: list[tuple[int, int]]) -> None:
    at = lower.find(needle)
    while at >= 0:
        # Inside a word it is another word: `task-…` is no `sk-…`.
        is_start = at == 0 or raw[at - 1] not in _NOT_A_NAME
        match = shape.match(raw, at) if is_start else None
        if match is not None:
            found.append(match.span())
        at = lower.find(needle, match.end() if match is not None else at + len(needle))


def _long_words(raw: bytes) -> list[bytes]:
    """All words long enough for a shape: splitting once is faster than looking for each beginning."""
    return [word for word in raw.translate(_TO_WORDS).split() if len(word) >= _SHAPE_SIGNS]


def _by_start(word: bytes, at: int, found: list[tuple[int, int]]) -> None:
    for shape in _BY_START[word[:3]]:
        match = shape.match(word)
        if match is not None:
            found.append((at, at + match.end()))
            return


def _private_keys(raw: bytes, found: list[tuple[int, int]]) -> None:
    """From the first line of a private key to its last, or to the end of the text."""
    begin = _KEY_BEGINS.search(raw)
    while begin is not None:
        end = _END_OF_KEY.search(raw, begin.end())
        stop = end.end() if end is not None else len(raw)
        found.append((begin.start(), stop))
        begin = _KEY_BEGINS.search(raw, stop)


def _cut_off_key(raw: bytes, found: list[tuple[int, int]]) -> None:
    """The end of a private key whose beginning was cut away: all lines above that look like one."""
    for match in _END_OF_KEY.finditer(raw):
        start = match.start()
        while start > 0:
            line = raw.rfind(b"\n", 0, start - 1) + 1
            if not raw[line:start].strip() or raw[line:start].strip().translate(None, _DENSE_SIGNS):
                break
            start = line
        if start < match.start():
            found.append((start, match.end()))


def _dense_runs(raw: bytes, dense: bytes, found: list[tuple[int, int]]) -> None:
    start = dense.find(_RUN)
    while start >= 0:
        end = dense.find(b" ", start)
        end = len(dense) if end < 0 else end
        run = raw[start:end]
        digits = len(run) - len(run.translate(None, b"0123456789"))
        longest = max(map(len, re.split(rb"[/_-]", run)))
        mixed = digits >= _RUN_DIGITS and run.lower() != run and run.upper() != run
        if mixed and longest >= _PART_SIGNS:
            found.append((start, end))
        start = dense.find(_RUN, end)


def _masked(raw: bytes, found: list[tuple[int, int]]) -> bytes:
    pieces = []
    at = 0
    for start, end in sorted(found):
        if end <= at:
            continue
        if start >= at:
            pieces += [raw[at:start], _MASK]
        at = end
    pieces.append(raw[at:])
    return b"".join(pieces)
