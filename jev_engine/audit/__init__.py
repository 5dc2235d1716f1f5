"""The trail: who removed what, on whose answer, and whether it was missed.

`delivery` brings events to sinks; `jsonl`, `otel` and `log` are sinks; `verify`, `records`, `explain`, `replay` and
`report` read a trail back.
"""

from __future__ import annotations
