"""Print the rows of all JSON Lines below a folder: `python rows.py FOLDER`."""

import sys
from pathlib import Path

for path in sorted(Path(sys.argv[1]).rglob("*.jsonl")):
    print(path.read_text(), end="")
