"""A38: planted secrets leave in no request: by field name, by form, in inputs, results and what a person wrote."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jev_engine import ContextEngine, EngineConfig
from jev_engine.judges.asked import AskedJudge
from jev_engine.plugins import load_plugins
from jev_engine.redact import is_plain, redact, redact_arguments
from jev_engine.testing import ScriptedAsker, call, history, result, user

# Put together at run time, so that no scanner takes this file for a leak. `S` is what must not get out.
S = "Zq8" + "vN3xW7kT1mB5rY9cJ2hF6dL4"
HEX = "9f86d081884c7d65" * 2
UPPER = "QX7ZK2MW9RT4VB8NCYHD"
B64 = "Zq8vN3xW7kT1mB5rY9cJ2hF6dL4pA0sG+uE/iO=="
JWT = "ey" + "JhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiJhYmNkZWYifQ." + "Zq8vN3xW7kT1mB5rY9cJ2hF6dL4"
PEM_LINES = [B64[:32] * 2 for _ in range(12)]
PEM = "-----BEGIN RSA " + "PRIVATE KEY-----\n" + "\n".join(PEM_LINES) + "\n-----END RSA " + "PRIVATE KEY-----"

SHAPES: dict[str, tuple[str, str]] = {
    # headers
    "bearer header": (f"Authorization: Bearer {S}", S),
    "basic header": (f"authorization: Basic {B64}", B64),
    "token header": (f"Authorization: token {S}", S),
    "digest header": (f'Authorization: Digest username="bob", response="{HEX}"', HEX),
    "api key header": (f"X-Api-Key: {S}", S),
    "auth token header": (f"X-Auth-Token: {S}", S),
    "cookie header": (f"Cookie: sid={S}; theme=dark", S),
    "set-cookie header": (f"Set-Cookie: session={S}; HttpOnly", S),
    "proxy header": (f"Proxy-Authorization: Basic {B64}", B64),
    "curl header": (f'curl -H "Authorization: Bearer {S}" https://example.org', S),
    "curl user": (f"curl https://bob:{S}@example.org/x", S),
    # addresses
    "password in URL": (f"postgres://app:{S}@db.example.org:5432/app", S),
    "redis URL": (f"redis://:{S}@cache.example.org/0", S),
    "token as user": (f"git clone https://{S}@example.org/a/b.git", S),
    "key in query": (f"https://example.org/v1?api_key={S}&page=2", S),
    "token in query": (f"https://example.org/v1?access_token={S}&page=2", S),
    "signed address": (f"https://b.example.org/f?se=2026&sig={S}%3D", S),
    "chat webhook": (f"https://hooks.slack.com/services/T00/B00/{S}", S),
    "game webhook": (f"https://discord.com/api/webhooks/123456/{S}", S),
    # environment
    "env password": (f"DB_PASSWORD={S}", S),
    "env secret": (f"export APP_SECRET_KEY='{S}'", S),
    "env token": (f"GITHUB_TOKEN={S}", S),
    "env api key": (f"OPENAI_API_KEY={S}\nHOME=/home/x", S),
    "env dump": (f"PATH=/bin\nREDIS_PASS={S}\nLANG=C", S),
    "env pwd": (f"MYSQL_PWD={S}", S),
    "docker env": (f"docker run -e POSTGRES_PASSWORD={S} postgres", S),
    "windows env": (f"$env:API_SECRET = '{S}'", S),
    # JSON
    "json": (json.dumps({"user": "bob", "password": S}), S),
    "json camel": (json.dumps({"dbPassword": S}), S),
    "json kebab": (json.dumps({"api-key": S}), S),
    "json nested": (json.dumps({"a": {"headers": {"Authorization": f"Bearer {S}"}}}), S),
    "json list": (json.dumps({"env": [{"name": "API_TOKEN", "value": S}]}), S),
    "json in json": (json.dumps({"body": json.dumps({"client_secret": S})}), S),
    "json passphrase": (json.dumps({"passphrase": S}), S),
    "json credentials": (json.dumps({"credentials": {"key": S}}), S),
    # YAML, TOML, INI, XML, code
    "yaml": (f"db:\n  password: {S}\n  port: 5432", S),
    "yaml quoted": (f'api_key: "{S}"', S),
    "toml": (f'secret_key = "{S}"', S),
    "ini": (f"[db]\npassword={S}", S),
    "xml": (f"<password>{S}</password>", S),
    "python": (f"client = Client(api_key='{S}')", S),
    "ruby hash": (f":password => '{S}'", S),
    "go": (f'clientSecret := "{S}"', S),
    "option": (f"mysql --password {S} -u root", S),
    "option with equals": (f"login --token={S}", S),
    "connection string": (f"Server=db;User Id=app;Password={S};Pooling=true", S),
    "storage account": (f"DefaultEndpointsProtocol=https;AccountKey={B64};Suffix=x", B64),
    # known forms without a name
    "private key": (PEM, PEM_LINES[3]),
    "end of a private key": ("\n".join([*PEM_LINES, "-----END " + "PRIVATE KEY-----"]), PEM_LINES[3]),
    "start of a private key": (PEM[: len(PEM) // 2], PEM_LINES[2]),
    "jwt": (f"it said {JWT} and went on", JWT),
    "model key": (f"using sk-proj-{S}{S} now", S),
    "payment key": (f"charge with sk_live_{S}", S),
    "cloud key id": (f"id AKIA{UPPER[:16]} was used", UPPER[:16]),
    "forge token": (f"ghp_{S}{S[:9]} works", S),
    "forge token, fine": (f"github_pat_{S}_{S}", S),
    "other forge token": (f"glpat-{S}", S),
    "chat token": (f"xoxb-1234-5678-{S}", S),
    "maps key": (f"AIza{S}{S[:8]}", S),
    "mail key": (f"SG.{S[:20]}.{S}{S}", S),
    "package token": (f"npm_{S}{S[:9]}", S),
    "hub token": (f"hf_{S}{S[:9]}", S),
    "bot token": ("12345678" + f"90:AA{S}{S[:7]}", S),
    "vault token": (f"hvs.{S}", S),
    "file key": (f"AGE-SECRET-KEY-1{UPPER}{UPPER}", UPPER),
    "long mixed run": (f"the value was {S}{S}", S),
}  # fmt: skip

# Stated in docs/what-leaves-the-machine.md: what has neither a telling name nor a form of its own.
MISSES = {
    "a password in prose": (f"my password is {S[:10]}", S[:10]),
    "hex without a name": (f"the value {HEX} was used", HEX),
    "a PIN in prose": ("the PIN was 482913", "482913"),
    "words as a passphrase": ("correct horse battery staple", "horse battery"),
    "a secret over two lines": ("password:\n\n\nhunter-two-hunter", "hunter-two-hunter"),
    "a name that tells nothing": (json.dumps({"value": S[:12]}), S[:12]),
}


SIGNS = st.text(alphabet="password=:\"'\\ token{}[]secret-_./@sk-eyJ\n€\ud800", max_size=300)


def test_there_are_sixty_shapes() -> None:
    assert len(SHAPES) >= 60


@pytest.mark.parametrize(("text", "secret"), SHAPES.values(), ids=SHAPES)
def test_a_secret_is_taken_out_of_a_text(text: str, secret: str) -> None:
    cleaned = redact(f"before it\n{text}\nafter it")

    assert secret not in cleaned
    assert cleaned.startswith("before it")
    assert cleaned.endswith("after it") or "PRIVATE KEY" in text
    assert not is_plain(text)


@given(SIGNS, st.sampled_from(list(SHAPES.values())), SIGNS)
def test_a_secret_is_taken_out_whatever_stands_before_and_behind_it(
    before: str, shape: tuple[str, str], behind: str
) -> None:
    text, secret = shape

    assert secret not in redact(f"{before}\n{text}\n{behind}")


@pytest.mark.parametrize(("text", "secret"), SHAPES.values(), ids=SHAPES)
def test_a_secret_is_taken_out_of_arguments(text: str, secret: str) -> None:
    for arguments in (json.dumps({"command": text, "timeout": 5}), text):
        assert secret not in redact_arguments(arguments)


@pytest.mark.parametrize(("text", "secret"), MISSES.values(), ids=MISSES)
def test_what_is_missed_is_known(text: str, secret: str) -> None:
    assert secret in redact(text)


@pytest.mark.parametrize(
    "config", [{}, {"privacy": "full"}, {"show_excerpts": False}, {"profile": "hermes-classic"}], ids=str
)
async def test_no_request_holds_a_planted_secret(config: dict[str, Any]) -> None:
    asker = ScriptedAsker(lambda *_: 0.1)
    judge = AskedJudge(asker)
    engine = ContextEngine(config=EngineConfig(**config), judge=judge)
    for text, secret in SHAPES.values():
        filler = "row of output\n" * 300
        messages = history(
            user(f"Go. {text}"),
            *(row for n in range(3) for row in (call("bash", command=text, n=n), result(f"{text}\n{filler}\n{text}"))),
            user(f"Also:\n{text}"),
            *(row for _ in range(3) for row in (call("bash", command="ls"), result("x"))),
        )
        await engine.compress(messages, force=True, dry_run=True, goal=f"Goal {text}", focus_topic=text)
        sent = json.dumps(asker.requests, ensure_ascii=False)
        asker.requests.clear()

        assert sent != "[]"
        assert secret not in sent
        assert json.dumps(secret)[1:-1] not in sent


async def test_a_secret_that_is_cut_in_half_does_not_show_its_half() -> None:
    asker = ScriptedAsker(lambda *_: 0.1)
    for width in range(240, 330, 7):
        filler = "row\n" * 2_000
        text = "x " * (width // 2) + f"token ghp_{S}{S[:9]} end"
        rows = history(
            user("Go."), *(row for _ in range(5) for row in (call("bash", command=text), result(text + filler + PEM)))
        )
        await ContextEngine(judge=AskedJudge(asker)).compress(rows, force=True, dry_run=True)

    sent = json.dumps(asker.requests)
    assert len(asker.requests) == 13
    assert S[:6] not in sent
    assert PEM_LINES[0][:20] not in sent


@pytest.mark.parametrize(
    "text",
    [
        "def token_count(tokens: list[str]) -> int: ...",
        '{"max_tokens": 4096, "path": "src/tokens/counter.py"}',
        "password: str = None",
        "secret: ${{ secrets.DEPLOY }}",
        "api_key=os.environ['KEY']",
        "commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
        "src/jev_engine/adapters/claude_code/messages_and_more_names.py",
        "tests/judges/test_planning.py::test_every_unit_is_asked_about_once_within_every_budget",
        "the monkey sat on the keyboard",
        "PWD=/home/me",
        "task-based guides are basic credentials of the trade",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text
    assert redact_arguments(text) == text


WORDS = ["password", "token", "secret", "=", ":", '"', "\\", " ", "Bearer ", "://", "@", "\n", "[redacted]", "a" * 9, S]


@given(SIGNS | st.lists(st.sampled_from(WORDS), max_size=20).map("".join))
def test_what_stands_around_a_secret_stays_as_it_is(text: str) -> None:
    """Nothing is lost, added or moved but for the masks; what is plain is not touched at all."""
    first, *others = redact(text).split("[redacted]")
    place = len(first)

    assert text.startswith(first)
    for part in others:
        assert part in text[place:]
        place = text.index(part, place) + len(part)
    assert text.endswith(others[-1] if others else first)
    if is_plain(text):
        assert redact(text) == text
        assert redact_arguments(text) == text


# Written out in the child: megabytes do not go over a command line.
HOSTILE = {
    "names": "'password=' * 100_000",
    "prose": "'password ' * 100_000",
    "dots": "'.-' * 400_000",
    "keys begin": "'-----BEGIN PRIVATE KEY-----' * 30_000",
    "keys end": "'-----END PRIVATE KEY-----\\n' * 30_000",
    "users": "'://a:' * 160_000",
    "tokens": "'eyJ' * 250_000",
    "same token": f"'sk-{S} ' * 30_000",
    "open quotes": "'token: \"' * 100_000",
    "backslashes": "'secret' + chr(92) * 800_000",
    "one run": "'x' * 800_000",
    "brackets": "'{\"password\":' * 60_000",
}
LIMIT_SECONDS = 60


@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_no_text_of_this_kind_stalls_it(text: str) -> None:
    """A megabyte of it takes seconds; the limit is one that only work growing faster than the text would hit."""
    child = f"from jev_engine.redact import redact_arguments; print(len(redact_arguments({text})))"
    done = subprocess.run(
        [sys.executable, "-c", child], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )

    assert done.returncode == 0, done.stderr[-2_000:]


async def test_a_redactor_of_a_plugin_runs_on_everything_shown() -> None:
    class Plugin:
        pass

    from jev_engine import hookimpl  # noqa: PLC0415  # beside the plugin that uses it

    @hookimpl
    def register_redactors(register: Any) -> None:
        register(lambda text: text.replace("Project Bluebird", "[project]"))

    plugin = Plugin()
    plugin.register_redactors = register_redactors
    plugins = load_plugins([plugin], entry_points=False)
    asker = ScriptedAsker(lambda *_: 0.1)
    text = "about Project Bluebird\n" * 40
    rows = history(user(text), *(row for _ in range(6) for row in (call("bash", command=text), result(text))))

    await ContextEngine(judge=AskedJudge(asker, redactors=plugins.redactors)).compress(rows, force=True, dry_run=True)

    assert plugins.broken == []
    assert "[project]" in str(asker.requests)
    assert "Bluebird" not in str(asker.requests)


@pytest.mark.parametrize(
    "broken", [lambda _text: 1 / 0, lambda _text: None, lambda _text: 7], ids=["raises", "none", "number"]
)
async def test_a_redactor_that_fails_lets_nothing_out(broken: Any) -> None:
    asker = ScriptedAsker(lambda *_: 0.1)
    rows = history(user("Go."), *(row for _ in range(6) for row in (call("bash", command="ls"), result("x" * 900))))

    done = await ContextEngine(judge=AskedJudge(asker, redactors=[broken])).compress(rows, force=True, dry_run=True)

    assert asker.requests == []
    assert "redaction failed" in done.stats.failures[0]
    assert done.outcome != "failed"
    assert {d.probability.source for d in done.decisions} == {"local"}
