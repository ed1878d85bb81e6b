"""Workload a as a plain loop: the floor. `python plain.py FOLDER`"""

import sys
from pathlib import Path

import msgspec
from bench_tasks import even, inc


def main(folder):
    decode = msgspec.json.Decoder(dict).decode
    count = total = 0
    for path in sorted(Path(folder).glob("*.jsonl")):
        with open(path, "rb") as file:
            for line in file:
                segment = inc(decode(line))
                if even(segment):
                    count += 1
                    total += segment["n"]
    print("ANSWER", count, total)


if __name__ == "__main__":
    main(sys.argv[1])
