"""Draw what the windows job has written as one picture, `flights.svg`.

    python examples/flights/draw.py [OUT]

One diagram for each kind of window, from its output alone: pandas only sums up and sorts here.
"""

import sys
from pathlib import Path

import pandas as pd
from check import read_json_lines
from prepare import OUT, archive
from svg import FAINT, LEFT, RIGHT, WIDTH, Panel, across, bar, line, picture, shade, text

AIRPORTS = {"EWR": "#2563eb", "JFK": "#d97706", "LGA": "#059669"}
REDS = (255, 247, 236), (153, 0, 13)
BLUES = (165, 180, 252), (30, 27, 120)
LATE_MAX = 0.6
"""Share of late flights from which on a week is as dark as it gets."""
DEPARTURES_A_DAY_MAX = 3
AIRLINES_SHOWN = 12
AIRCRAFT_SHOWN = 24
NEW_YORK = "America/New_York"
YEAR = pd.Timestamp("2013-01-01", tz="UTC"), pd.Timestamp("2014-01-01", tz="UTC")
DAY = pd.Timedelta(days=1)


def of_year(moment):
    """0 at the beginning of the year, 1 at its end."""
    return (moment - YEAR[0]) / (YEAR[1] - YEAR[0])


def add_months(panel):
    for month in pd.date_range(*YEAR, freq="MS", inclusive="left"):
        x = across(of_year(month))
        panel.add(line([(x, 0), (x, panel.height)]))
        panel.mark(of_year(month), f" {month:%b}")


def hours_of_day(departures):
    """A line an airport: the mean number of departures of each hour of the day."""
    hour = departures["hour"].dt.tz_convert(NEW_YORK).dt.hour
    sums = departures.groupby(["airport", hour])["departures"].sum().unstack(fill_value=0)
    means = sums / ((YEAR[1] - YEAR[0]) / DAY)
    top = 5 * (means.to_numpy().max() // 5 + 1)
    panel = Panel(
        "Departures in an hour of the day",
        "fixed windows of an hour, mean of all days, in New York's time",
        230,
    )

    def y(mean):
        return panel.height * (1 - mean / top)

    for value in range(0, int(top) + 1, 5):
        panel.add(line([(LEFT, y(value)), (WIDTH - RIGHT, y(value))]))
        panel.add(text(LEFT - 8, y(value) + 4, str(value), FAINT, anchor="end"))
    for each in range(0, 24, 2):
        panel.mark((each + 0.5) / 24, f"{each}:00", anchor="middle")
    for row, (airport, colour) in enumerate(AIRPORTS.items(), 1):
        points = [(across((at + 0.5) / 24), y(mean)) for at, mean in means.loc[airport].items()]
        panel.add(line(points, colour, width=3))
        panel.add(text(LEFT + 12, 20 * row, airport, colour, size=15, weight=600))
    return panel


def late_weeks(weeks):
    """A strip an airline: a shade a day, for the seven days that begin with it."""
    order = weeks.groupby("airline")["flights"].sum().nlargest(AIRLINES_SHOWN).index
    names = pd.read_csv(archive().parent / "airlines.csv").set_index("carrier")["name"]
    panel = Panel(
        "Flights that were 15 minutes late or more",
        "sliding windows of 7 days, one begins each day; darkest where "
        f"{LATE_MAX:.0%} of an airline's flights or more were late",
        22 * len(order),
    )
    for row, airline in enumerate(order):
        panel.add(text(LEFT - 8, 22 * row + 14, short(names[airline]), anchor="end"))
        mine = weeks[(weeks["airline"] == airline) & weeks["day"].between(*YEAR, inclusive="left")]
        for each in mine.itertuples():
            colour = shade(*REDS, each.share / LATE_MAX)
            label = f"7 days from {each.day:%d %b}: {each.late} of {each.flights} late"
            begin = of_year(each.day)
            panel.add(bar(begin, begin + 1 / 365, 22 * row, 19, colour, f"{airline}, {label}"))
    add_months(panel)
    return panel


def short(name):
    """Without what companies have behind their names."""
    return " ".join(word for word in name.split() if word not in ("Inc.", "Co.", "Corporation"))


def long_stays(stays):
    """A row an aircraft, with a bar from the first to the last departure of each stay."""
    order = stays.groupby("aircraft")["departures"].sum().nlargest(AIRCRAFT_SHOWN).index
    panel = Panel(
        "Stays of the aircraft that departed most often",
        "sessions: each lasts as long as the aircraft departs from New York at least every other "
        f"day; darkest with {DEPARTURES_A_DAY_MAX} departures a day",
        16 * len(order),
    )
    add_months(panel)
    for row, aircraft in enumerate(order):
        panel.add(text(LEFT - 8, 16 * row + 11, aircraft, anchor="end", size=12))
        for each in stays[stays["aircraft"] == aircraft].itertuples():
            a_day = each.departures / ((each.last - each.first) / DAY + 1)
            label = f"{each.first:%d %b} to {each.last:%d %b}: {each.departures} departures"
            colour = shade(*BLUES, a_day / DEPARTURES_A_DAY_MAX)
            place = of_year(each.first), of_year(each.last), 16 * row, 12
            panel.add(bar(*place, colour, f"{aircraft}, {label}"))
    return panel


def read(folder, times):
    """What an output of the job has written; the same window twice counts once."""
    segments, _ = read_json_lines(folder)
    frame = pd.DataFrame(segments).drop_duplicates()
    for column in times:
        frame[column] = pd.to_datetime(frame[column])
    return frame


def main(arguments):
    out = Path(arguments[0]) if arguments else OUT
    panels = [
        hours_of_day(read(out / "departures", ["hour"])),
        late_weeks(read(out / "late-share", ["day"])),
        long_stays(read(out / "stays", ["first", "last"])),
    ]
    path = out / "flights.svg"
    path.write_text(picture(panels), encoding="utf-8")
    print(f"drew {path}: open it in a browser")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
