"""All jobs, from nothing to checked results and a picture: `make demo`.

Prepares the data set, runs the jobs with four worker processes and a log in a folder, and
checks what was written against pandas. Then Spark runs two of the files from end to end (it can
run all of them), and what it wrote is checked in the same way. Kill workers while jobs run
(`kill -9`): it stays right.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ON_SPARK = HERE / "out" / "on-spark"
"""Where paths of the jobs count from when Spark runs them, with the same data."""
LOG = ".onyx/log"
"""Where the log of all jobs is left, for `make console`."""
PROCESSES = 4
JVM = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""A JVM that lives for seconds costs less without its second compiler."""
COMMAND = ["-m", "onyx.cli", "run", "--keep", LOG]
RUN = [*COMMAND, "--processes", str(PROCESSES)]
RUN_TOGETHER = [*COMMAND, "--processes", "1"]
"""One process: it has the work of all tasks of a way, or one JVM for window and stage."""
RUN_ON_SPARK = [*COMMAND, "--engine", "spark"]
STEPS = (
    ("Preparing 336,776 flights", ["prepare.py"]),
    ("Ten years of them in columns", [*RUN_TOGETHER, "decade.yaml"]),
    ("Checking against pandas", ["check_decade.py"]),
    ("Routing those of one year", [*RUN, "job.yaml"]),
    ("Checking against pandas", ["check.py"]),
    ("Windows over them", [*RUN, "windows.yaml"]),
    ("Checking all windows against pandas", ["check_windows.py"]),
    ("Drawing", ["draw.py"]),
    ("Outliers, with Spark in the middle", [*RUN_TOGETHER, "outliers.yaml"]),
    ("Checking them against pandas", ["check_outliers.py"]),
    ("The routes, all on Spark", [*RUN_ON_SPARK, "job.yaml"]),
    ("Checking them", ["check.py", str(ON_SPARK / "out")]),
    ("The windows, all on Spark", [*RUN_ON_SPARK, "windows.yaml"]),
    ("Checking them", ["check_windows.py", str(ON_SPARK / "out")]),
)


def main() -> int:
    shutil.rmtree(HERE / LOG, ignore_errors=True)
    for title, command in STEPS:
        print(f"\n== {title}: {' '.join(command)}", flush=True)
        variables = JVM | os.environ
        if "--engine" in command:
            ON_SPARK.mkdir(parents=True, exist_ok=True)
            if not (ON_SPARK / "data").exists():
                (ON_SPARK / "data").symlink_to(HERE / "data")
            variables["ONYX_DATA_DIR"] = str(ON_SPARK)
        done = subprocess.run([sys.executable, *command], cwd=HERE, env=variables, check=False)
        code = done.returncode
        if code != 0:
            print(f"the demo stops here: {title.lower()} ended with exit code {code}")
            return code
    print("\n`make console` shows these jobs in a browser")
    return 0


if __name__ == "__main__":
    sys.exit(main())
