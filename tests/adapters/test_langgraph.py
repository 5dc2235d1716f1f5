"""The LangGraph adapter as far as it goes without LangChain; `tests/hosts/test_langgraph.py` has the real libraries."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest

import jev_engine_adapters.langgraph as package
from jev_engine import ContextEngine
from jev_engine.errors import AdapterError, ConfigError, TranscriptError
from jev_engine.host import Adapter
from jev_engine.ledger import Ledger, LedgerEntry
from jev_engine.plugins import load_plugins
from jev_engine_adapters.langgraph.packing import pack, unpack
from jev_engine_adapters.langgraph.settings import with_settings
from jev_engine_adapters.langgraph.state import PassMark, ThreadState, merge_states

HAS_LANGCHAIN = importlib.util.find_spec("langchain") is not None
without_langchain = pytest.mark.skipif(HAS_LANGCHAIN, reason="LangChain is installed here")

# Shapes of keys, references and texts, ordinary and not: repeated units, removed ones, half characters, stand-ins.
ENTRIES = [
    LedgerEntry("0" * 32, "truncate", "jx-" + "a" * 16, f"head\n[out: jx-{'a' * 16}]", 900),
    LedgerEntry("1" * 32, "truncate", "jx-" + "b" * 16, f"head\n[out: jx-{'b' * 16}]", 900),
    LedgerEntry("1" * 32 + ".1", "truncate", "jx-" + "c" * 16, "[repeated]", 30),
    LedgerEntry("2" * 32, "remove", "jx-" + "d" * 16, "", 1),
    LedgerEntry("3" * 32, "truncate", "jx-" + "e" * 16, "half \ud83d and \0 sign", 7),
    LedgerEntry("odd key", "truncate", "another reference", "text", 7),
]


def test_importing_the_adapter_imports_neither_of_the_two():
    """Looking for the right adapter must not cost seconds, nor fail where LangChain is not installed."""
    script = (
        "import sys; from jev_engine.plugins import load_plugins; p = load_plugins(entry_points=False); "
        "a = p.adapter('langgraph'); p.adapter('langgraph-delete'); a.sniff([object()]); "
        "print(sorted(n for n in sys.modules if n.partition('.')[0] in ('langchain', 'langchain_core', 'langgraph')))"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_both_names_are_adapters_and_say_what_they_can():
    """Calls stay unless deleting is asked for by name; the host sends the originals again each time."""
    plugins = load_plugins(entry_points=False)
    plain, deleting = plugins.adapter("langgraph"), plugins.adapter("langgraph-delete")

    assert isinstance(plain, Adapter)
    assert (plain.can_delete, deleting.can_delete) == (False, True)
    assert (plain.edit_persists, plain.is_read_only, plain.copies_in_call_row) == (False, False, False)


@pytest.mark.parametrize("rows", [[], [{"role": "user", "content": "Hi."}], [None, 3, "text"], [object()]])
def test_what_is_no_message_of_langchain_is_not_taken_for_one(rows):
    """Without importing anything."""
    assert not package.adapter.sniff(rows)


@without_langchain
def test_without_langchain_each_name_says_what_to_install():
    """Every public name, and reading."""
    for name in set(package.__all__) - {"LangGraphAdapter", "adapter", "merge_states", "compacted_view",
                                        "BaseStoreOriginals", "CompactedMessages", "acompact_messages",
                                        "compact_messages"}:  # fmt: skip
        with pytest.raises(ImportError, match=r"pip install 'jev-engine\[langgraph\]'"):
            getattr(package, name)
    with pytest.raises(AdapterError, match=r"pip install 'jev-engine\[langgraph\]'"):
        package.adapter.read([object()])
    with pytest.raises(AttributeError, match="no_such_name"):
        package.no_such_name  # noqa: B018


def test_public_names_are_listed():
    """For completion and for documentation."""
    assert set(package.__all__) <= set(dir(package))
    assert sorted(package._HOMES) == [name for name in package.__all__ if name not in ("LangGraphAdapter", "adapter")]


def test_a_packed_ledger_comes_back_as_it_was():
    """Ordinary and odd entries; in ASCII; in the same bytes whatever order they came in."""
    ledger = Ledger.of(ENTRIES)
    packed = pack({"ledger": ledger, "passes": [[1, "x"]]})

    assert unpack(packed) == {"ledger": ledger, "passes": [[1, "x"]]}
    assert packed.isascii()
    assert packed == pack({"ledger": Ledger.of(reversed(ENTRIES)), "passes": [[1, "x"]]})
    assert json.loads(json.dumps(packed)) == packed


DAMAGES = {
    "cut": lambda packed: packed[:-5],
    "changed": lambda packed: "!" + packed[1:],
    "longer": lambda packed: packed + "00000",
    "empty": lambda _: "",
    "no text": lambda _: 3,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_state_is_named_and_never_wins(damage):
    """Whatever a checkpoint brings back: a clear error, and in a merge the readable side stays."""
    good = ThreadState(Ledger.of(ENTRIES), frozenset({"d1"}), (PassMark(1, "committed", 5, 1.0, "m"),)).to_json()
    bad = {**good, "packed": damage(good["packed"])}

    with pytest.raises(TranscriptError, match="not a state"):
        ThreadState.from_json(bad)
    assert merge_states(good, bad) == good
    assert merge_states(bad, good) == good


def test_a_state_of_a_later_version_is_named():
    """So that an older version leaves it alone."""
    with pytest.raises(TranscriptError, match="version 2 is not 1"):
        ThreadState.from_json({"version": 2})


def test_a_number_of_tokens_is_a_share_of_the_window():
    """Aim and force move out of its way; the window then is the one it was said for."""
    engine = ContextEngine()

    low = with_settings(engine, trigger=("tokens", 20_000)).config
    high = with_settings(engine, trigger=("fraction", 0.99)).config

    assert (low.trigger_share, low.target_share) == (0.1, 0.1)
    assert (high.trigger_share, high.force_share) == (0.99, 0.99)
    assert "window_tokens" in low.model_fields_set
    assert "window_tokens" not in high.model_fields_set
    assert with_settings(engine) is engine


def test_settings_out_of_range_are_named():
    """The argument as the user wrote it."""
    for given in ({"trigger": ("fraction", 1.5)}, {"trigger": ("tokens", True)}, {"keep": ("messages",)}):
        with pytest.raises(ConfigError) as caught:
            with_settings(ContextEngine(), **given)
        assert caught.value.setting == next(iter(given))
