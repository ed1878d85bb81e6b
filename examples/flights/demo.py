"""Both jobs, from nothing to checked results and a picture: `make demo`.

Prepares the data set, runs the jobs with four worker processes and an embedded ZooKeeper, and
checks what was written against pandas. Kill workers while they run (`kill -9`): it stays right.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PROCESSES = 4
RUN = ["-m", "onyx.cli", "run", "--processes", str(PROCESSES)]
STEPS = (
    ("Preparing 336,776 flights", ["prepare.py"]),
    ("Routing them", [*RUN, "job.yaml"]),
    ("Checking against pandas", ["check.py"]),
    ("Windows over them", [*RUN, "windows.yaml"]),
    ("Checking all windows against pandas", ["check_windows.py"]),
    ("Drawing", ["draw.py"]),
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
