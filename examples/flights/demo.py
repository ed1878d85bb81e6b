"""The main job, from nothing to a checked result: `make demo`.

Prepares the data set, runs the job with four worker processes and an embedded ZooKeeper, and checks
what was written against pandas. Kill workers while it runs (`kill -9`): the counts stay right.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PROCESSES = 4
STEPS = (
    ("Preparing 336,776 flights", ["prepare.py"]),
    ("Running the job", ["-m", "onyx.cli", "run", "job.yaml", "--processes", str(PROCESSES)]),
    ("Checking against pandas", ["check.py"]),
)


def main() -> int:
    for title, command in STEPS:
        print(f"\n== {title}: {' '.join(command)}", flush=True)
        code = subprocess.run([sys.executable, *command], cwd=HERE, check=False).returncode
        if code != 0:
            print(f"the demo stops here: {title.lower()} ended with exit code {code}")
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
