"""Whether the windows below a folder have the sums of the squares below another one:
`python sums_agree.py SQUARES WINDOWS`."""

import collections
import json
import sys
from pathlib import Path


def rows(folder):
    for each in Path(folder).rglob("*.jsonl"):
        yield from (json.loads(line) for line in each.open() if line.strip())


sums = collections.Counter()
for row in rows(sys.argv[1]):
    sums[row["group"], row["n"] // 100 * 100] += row["square"]
found = [((row["group"], row["from"]), row["total"]) for row in rows(sys.argv[2])]
fired = sorted(found) == sorted(sums.items())
print("they agree" if fired else [sorted(found)[-20:], sorted(sums.items())[-20:]])
