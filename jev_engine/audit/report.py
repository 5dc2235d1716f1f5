"""A trail as one page of HTML: nothing is loaded from anywhere, and nothing of a session becomes markup.

The page's own style and script are allowed by their hashes; anything else a browser refuses.
"""

from __future__ import annotations

import base64
import json
from hashlib import sha256
from importlib import resources
from typing import Any

from jev_engine import events
from jev_engine.audit.records import PassTold, PinnedUnit, TrailRead
from jev_engine.audit.stats import regrets, stats_of

__all__ = ["page_of"]

WORDS = {"keep": "kept", "truncate": "shortened", "remove": "removed", "pinned": "pinned"}

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
            "label": row.label,
            "tool": row.tool,
            "action": row.action,
            "who": _who(told, row),
            "raw": getattr(row, "raw_result", None),
            "p": getattr(row, "p_result", None),
            "price": getattr(row, "price", None),
            "chars": row.chars,
            "after": getattr(row, "chars_after", row.chars),
            "back": isinstance(row, events.Unit) and row.reference in missed,
            "reason": row.reason,
        }
        for index, told in enumerate(passes)
        for row in told.rows
    ]
    return {
        "words": WORDS,
        "doubt": trail.doubt,
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


def _who(told: PassTold, row: events.Unit | PinnedUnit) -> str:
    """On whose answer."""
    if isinstance(row, PinnedUnit):
        return "a rule" if row.reference is None else "an earlier pass"
    judge = told.rules[row.number].judge or "a judge"
    return {"judge": judge, "local": "local", "judge+local": f"local, {judge}"}.get(row.by or "", "nobody")


def _pass(told: PassTold) -> dict[str, Any]:
    asked = told.asked
    place = f" at {asked.endpoint}" if asked and asked.endpoint else ""
    return {
        "id": told.id,
        "session": told.session,
        "at": told.when,
        "outcome": told.outcome,
        "judge": f"{asked.judge}{place}" if asked else "local judge",
        "calls": told.started.calls if told.started else 0,
        "out": len(told.out),
        "freed": getattr(told.end, "freed_tokens", 0),
    }


def _facts(stats: dict[str, Any]) -> list[tuple[str, str]]:
    unsure = (
        [] if stats["is_calibrated"] else [("Of them uncalibrated", f"{stats['expected_misses_uncalibrated']:.2f}")]
    )
    return [
        ("Passes", f"{stats['passes']:,}"),
        ("Sessions", f"{stats['sessions']:,}"),
        ("Units out", f"{stats['units_out']:,}"),
        ("Tokens freed", f"{stats['freed_tokens']:,}"),
        ("Misses expected", f"{stats['expected_misses']:.2f}"),
        *unsure,
        ("Misses seen", f"{stats['observed_misses']:,}"),
        ("Requests sent", f"{stats['judge_requests']:,}"),
    ]
