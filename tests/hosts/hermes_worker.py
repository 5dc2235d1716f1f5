"""Runs scenarios in one process of a real Hermes and writes what became of each as a line of JSON.

python hermes_worker.py HOME RESULTS MODULE
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import hermes_names  # found in the folder above
from hermes_lab import Lab


def main() -> None:
    home, out, module = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    wanted = sys.argv[4:]
    lab = Lab(home)
    loaded = importlib.import_module(module)
    for name in wanted or (hermes_names.FAULTS if module == "hermes_faults" else hermes_names.SCENARIOS):
        scenario = getattr(loaded, name)
        lab.settings()
        lab.events.clear()
        started = time.perf_counter()
        fault = None
        try:
            scenario(lab)
        except BaseException:  # noqa: BLE001  # whatever it is, the others are still tried
            fault = traceback.format_exc()
        line = {"name": scenario.__name__, "fault": fault, "seconds": time.perf_counter() - started}
        with out.open("a") as file:
            file.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
