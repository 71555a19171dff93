"""pip-audit over this environment: fails when a known fault is found, says so when the advisories cannot be fetched."""

from __future__ import annotations

import json
import subprocess
import sys

command = [sys.executable, "-m", "pip_audit", "--skip-editable", "--format", "json", "--progress-spinner", "off"]
done = subprocess.run(command, capture_output=True, text=True)
try:
    packages = json.loads(done.stdout)["dependencies"]
except (ValueError, KeyError):
    reason = (done.stderr.strip().splitlines() or ["no answer"])[-1]
    print(f"audit: nothing was checked, the advisories could not be fetched: {reason}", file=sys.stderr)
    sys.exit(0)
checked = [package for package in packages if "skip_reason" not in package]
faults = [(package, fault) for package in checked for fault in package["vulns"]]
for package, fault in faults:
    mend = ", ".join(fault["fix_versions"]) or "no version yet"
    print(f"{package['name']} {package['version']}: {fault['id']}, mended in {mend}", file=sys.stderr)
print(f"audit: {len(checked)} of {len(packages)} packages checked, {len(faults)} known faults")
if not checked:
    print("audit: the advisory service knows none of them; is the network a closed one?", file=sys.stderr)
sys.exit(bool(faults))
