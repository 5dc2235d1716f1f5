"""A trail as one page of HTML: nothing is loaded from anywhere, and nothing of a session becomes markup.

The page's own style and script are allowed by their hashes; anything else a browser refuses.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from hashlib import sha256
from importlib import resources
from typing import Any

from jev_engine.audit.records import PassTold, TrailRead
from jev_engine.audit.stats import regrets, stats_of

__all__ = ["page_of"]

WORDS = {"keep": "kept", "truncate": "shortened", "remove": "removed"}

# What could end the element that holds the data, or a line of the script, is written as its escape.
UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def page_of(trail: TrailRead) -> str:
    """The page, whole."""
    css, js = _part("page.css"), _part("page.js")
    csp = f"default-src 'none'; script-src '{_hash(js)}'; style-src '{_hash(css)}'; base-uri 'none'; form-action 'none'"
    page = _part("page.html")
    # In this order: nothing that came in before is looked at again.
    for name, text in (("csp", csp), ("css", css), ("js", js), ("data", _safe(_data(trail)))):
        head, tail = page.split(f"{{{name}}}", 1)
        page = head + text + tail
    return page


def _part(name: str) -> str:
    return (resources.files("jev_engine.audit") / "page" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}"


def _safe(data: dict[str, Any]) -> str:
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return "".join([UNSAFE.get(sign, sign) for sign in text])


def _data(trail: TrailRead) -> dict[str, Any]:
    passes = list(trail.passes.values())
    missed = {back.reference for back in trail.look_backs() if back.reference}
    units = [
        {
            "pass": index,
            "label": unit.label,
            "tool": unit.tool,
            "action": unit.action,
            "p": unit.p_result,
            "price": unit.price,
            "chars": unit.chars,
            "after": unit.chars_after,
            "back": unit.reference in missed,
            "reason": unit.reason,
        }
        for index, told in enumerate(passes)
        for unit in told.units.values()
    ]
    return {
        "words": WORDS,
        "facts": _facts(stats_of(trail)),
        "passes": [_pass(told) for told in passes],
        "units": units,
        "tools": sorted({str(unit["tool"]) for unit in units}),
        "regrets": [
            {
                "tool": regret.tool,
                "out": regret.out,
                "backs": regret.looked_back,
                "stayed": regret.control_calls,
                "again": regret.control_looked_back,
                "rate": regret.rate,
            }
            for regret in regrets(trail)
        ],
    }


def _pass(told: PassTold) -> dict[str, Any]:
    at = dt.datetime.fromtimestamp(told.at, tz=dt.UTC)
    return {
        "id": told.id,
        "at": at.isoformat(sep=" ", timespec="seconds").removesuffix("+00:00"),
        "outcome": told.outcome,
        "calls": told.started.calls if told.started else 0,
        "out": len(told.out),
        "freed": getattr(told.end, "freed_tokens", 0),
    }


def _facts(stats: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("Passes", f"{stats['passes']:,}"),
        ("Sessions", f"{stats['sessions']:,}"),
        ("Units out", f"{stats['units_out']:,}"),
        ("Tokens freed", f"{stats['freed_tokens']:,}"),
        ("Misses expected", f"{stats['expected_misses']:.2f}"),
        ("Misses seen", f"{stats['observed_misses']:,}"),
    ]
