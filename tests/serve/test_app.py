"""The HTTP of the local process, asked as a server would ask it."""

from __future__ import annotations

import json

import anyio
import pytest
from serve.plugin_requests import conversation, request

from jev_engine.serve.activity import Activity
from jev_engine.serve.app import LARGEST_BODY_BYTES, make_app
from jev_engine.serve.desk import Desk
from jev_engine.serve.hooks import HookDesk
from jev_engine.settings import load_settings

pytestmark = pytest.mark.anyio
TOKEN = "t" * 43
ON_SOCKET, OVER_TCP = None, ("127.0.0.1", 50_000)


@pytest.fixture(scope="module")
def anyio_backend():
    """The server runs on asyncio."""
    return "asyncio"


@pytest.fixture
def heard():
    """Payloads of hooks that were taken in."""
    return []


@pytest.fixture
def activity():
    """Whether anybody needs the process."""
    return Activity()


@pytest.fixture
def app(tmp_path, heard, activity, monkeypatch):
    """The application, with a desk of its own."""
    monkeypatch.setenv("JEV_ENGINE_CONFIG", str(tmp_path / "none.toml"))
    desk = Desk(settings=lambda **given: load_settings(store=tmp_path / "o.sqlite3", **given))
    hooks = HookDesk(desk, work=lambda _, payload: heard.append(payload))
    made = make_app(token=TOKEN, port=47_180, activity=activity, desk=desk, hooks=hooks)
    made.desk, made.hooks = desk, hooks
    return made


async def ask(app, path, body=b"", *, client=ON_SOCKET, method="POST", parts=None, **headers):
    """Status and body of one request."""
    given = list(parts or [body])
    sent = []
    length = str(sum(map(len, given)))
    named = {
        "host": "127.0.0.1:47180",
        "content-length": length,
        **{k.replace("_", "-"): v for k, v in headers.items()},
    }
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "client": client, "server": None,
        "headers": [(name.encode(), value.encode()) for name, value in named.items()],
    }  # fmt: skip

    async def receive():
        if not given:
            await anyio.sleep(3_600)
        part = given.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(given)}

    async def send(message):
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], json.loads(b"".join(message.get("body", b"") for message in sent[1:]))


async def test_a_pass_over_the_socket_needs_no_token(app):
    """The file's mode is the lock."""
    status, answer = await ask(app, "/plugin/compact", json.dumps(request(conversation(12))).encode())

    assert status == 200
    assert answer["act"] == "replace"


@pytest.mark.parametrize("body", [b"", b"{{{", b"[]", b"[" * 100_000, b"\xff"])
async def test_a_body_that_is_no_object_is_refused(app, body):
    """With the reason, and nothing fails."""
    status, answer = await ask(app, "/plugin/compact", body)

    assert status == 400
    assert "cannot be read" in answer["error"]


async def test_half_a_character_comes_through(app):
    """JSON may hold what UTF-8 cannot."""
    messages = conversation(8)
    messages[0]["text"] += " \ud83d"

    status, _ = await ask(app, "/plugin/compact", json.dumps(request(messages)).encode())

    assert status == 200


async def test_a_body_that_is_too_large_is_refused_before_and_while_it_is_read(app):
    """Whether it says so or not."""
    said, _ = await ask(app, "/plugin/compact", b"{}", content_length=str(LARGEST_BODY_BYTES + 1))
    odd, _ = await ask(app, "/plugin/compact", b"{}", content_length="many")
    unsaid, answer = await ask(
        app, "/plugin/compact", parts=[b"x" * (LARGEST_BODY_BYTES // 2 + 1)] * 2, content_length="2"
    )

    assert (said, odd, unsaid) == (413, 413, 400)
    assert "too large" in answer["error"]


async def test_a_fault_of_ours_is_an_answer(activity):
    """The plugin reads it as any other fault."""

    def broken(**_):
        raise RuntimeError("nobody has thought of this")

    app = make_app(token=TOKEN, port=47_180, activity=activity, desk=Desk(settings=broken))
    status, answer = await ask(app, "/plugin/status", b'{"session_id": "s"}')

    assert status == 500
    assert "nobody has thought of this" in answer["error"]


@pytest.mark.parametrize("body", [b'{"hook_event_name": "PreToolUse"}', b"{{{", b"[]"])
async def test_a_hook_is_always_answered_with_nothing(app, heard, body):
    """An odd one is no reason to complain."""
    assert await ask(app, "/hooks", body) == (200, {})
    app.hooks.wait()

    assert len(heard) == body.startswith(b'{"')


async def test_over_tcp_hooks_want_the_token(app):
    """As everything does."""
    assert (await ask(app, "/hooks", b"{}", client=OVER_TCP))[0] == 401
    assert (await ask(app, "/hooks", b"{}", client=OVER_TCP, authorization=f"Bearer {TOKEN}"))[0] == 200
    assert (await ask(app, "/hooks", b"{}", client=OVER_TCP, authorization=TOKEN, origin="null"))[0] == 403
    assert (await ask(app, "/quit", b"{}", client=OVER_TCP, host="127.0.0.1:1"))[0] == 403


async def test_a_large_pass_does_not_hold_up_a_small_one(app, activity):
    """Each is worked on in a thread of its own."""
    large = json.dumps(request(conversation(1_500), session="large")).encode()
    small = json.dumps(request(conversation(8), session="small")).encode()
    order = []

    async def work(name, body):
        await ask(app, "/plugin/compact", body)
        order.append(name)

    async with anyio.create_task_group() as group:
        group.start_soon(work, "large", large)
        with anyio.fail_after(5):
            while activity.in_flight == 0:
                await anyio.lowlevel.checkpoint()
        group.start_soon(work, "small", small)

    assert order == ["small", "large"]


async def test_a_probe_is_no_sign_that_anybody_needs_the_process(app, activity):
    """Everything else is, while it lasts."""
    activity._last -= 100
    await ask(app, "/health", method="GET")
    idle = activity.idle_seconds()

    await ask(app, "/plugin/status", json.dumps(request([])).encode())

    assert idle > 99
    assert activity.idle_seconds() < 99
    assert activity.in_flight == 0
