"""How many squares are written below a folder, of how many numbers, and how many numbers are
missing though a later one of their partition is there:
`python squares_written.py FOLDER PARTITIONS`."""

import json
import sys
from pathlib import Path

folder, partitions = Path(sys.argv[1]), int(sys.argv[2])
rows = [
    json.loads(line) for path in folder.rglob("*.jsonl") for line in path.open() if line.strip()
]
assert all(row["square"] == row["n"] ** 2 for row in rows)
found = {row["n"] for row in rows}
ends = [max((n for n in found if n % partitions == each), default=-1) for each in range(partitions)]
whole = {n for each, end in enumerate(ends) for n in range(each, end + 1, partitions)}
print(len(rows), len(found), len(whole - found))
