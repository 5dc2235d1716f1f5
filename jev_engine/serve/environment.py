"""The environment the shared process is started with: what it needs of the user's, nothing of one project's.

Whoever starts it first starts it for all sessions of the user, and hosts pass on variables that a project sets.
"""

from __future__ import annotations

from collections.abc import Mapping

from jev_engine.judges.endpoints import PRESETS, endpoint_for
from jev_engine.serve.places import FOLDER_VARIABLE
from jev_engine.settings import CONFIG_VARIABLE

__all__ = ["known_environment", "leaves_settings_out"]

KNOWN = frozenset({
    "HOME", "LOGNAME", "USER", "PATH", "LANG", "LANGUAGE", "TMPDIR", "TZ", "CLAUDE_CONFIG_DIR",
    FOLDER_VARIABLE, "JEV_ENGINE_PORT",
    # Keys of judges: of the presets, and of any other address.
    *(each.key_variable for each in PRESETS.values()), endpoint_for("http://127.0.0.1").key_variable,
    # How this user's programs reach the network at all.
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR",
    # What an interpreter outside its usual place needs.
    "PYTHONHOME", "PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FRAMEWORK_PATH",
})  # fmt: skip
KNOWN_BEGINNINGS = ("LC_", "XDG_")


def known_environment(given: Mapping[str, str]) -> dict[str, str]:
    """The variables that go with the process."""
    kept = {name: value for name, value in given.items() if name.upper() in KNOWN or name.startswith(KNOWN_BEGINNINGS)}
    if CONFIG_VARIABLE in given and not leaves_settings_out(given):
        kept[CONFIG_VARIABLE] = given[CONFIG_VARIABLE]
    return kept


def leaves_settings_out(given: Mapping[str, str]) -> bool:
    """Whether another settings file is named, for a process that is everybody's.

    It counts with a runtime folder of its own only: then no other session asks that process.
    """
    return bool(given.get(CONFIG_VARIABLE)) and not given.get(FOLDER_VARIABLE)
