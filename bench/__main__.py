"""`python -m bench [NAME…]`: runs the named measurements, or all, each in a process of its own, and prints one table.

Exits 1 when a budget is missed or a measurement fails.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench import Row, table, within


def names() -> list[str]:
    return sorted(p.stem for p in Path(__file__).parent.glob("[!_]*.py") if "def run(" in p.read_text())


def measure(name: str) -> list[Row]:
    """The rows of bench/<name>.py, measured in a fresh process so that none disturbs another's memory figures."""
    code = f"import json; from bench.{name} import run; print(json.dumps(run()))"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=1800)
    if done.returncode:
        raise RuntimeError(f"bench/{name}.py ended with {done.returncode}; its errors are printed above")
    return [tuple(row) for row in json.loads(done.stdout.splitlines()[-1])]


def main(wanted: list[str]) -> int:
    unknown = sorted(set(wanted) - set(names()))
    if unknown:
        print(f"no measurement called {', '.join(unknown)}; there are {', '.join(names())}", file=sys.stderr)
        return 2
    rows: list[Row] = []
    failed = False
    for name in wanted or names():
        print(f"measuring {name} …", file=sys.stderr)
        try:
            rows += [(f"{name}: {what}", value, unit, budget) for what, value, unit, budget in measure(name)]
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(error, file=sys.stderr)
            failed = True
    print(table(rows))
    return int(failed or any(within(value, budget) is False for _, value, _, budget in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
