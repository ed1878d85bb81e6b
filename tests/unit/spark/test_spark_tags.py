import pytest

from onyx.settings import Settings
from onyx.spark.session import masters


@pytest.mark.parametrize(
    ("settings", "installed", "offered"),
    [
        (Settings(), True, ("spark",)),
        (Settings(), False, ()),
        (Settings(spark=False), True, ()),
        (Settings(tags=("gpu",)), True, ("gpu", "spark")),
        (Settings(tags=("spark", "gpu")), True, ("spark", "gpu")),
        (Settings(tags=("spark",), spark=False), False, ("spark",)),
    ],
)
def test_peers_offer_spark_where_it_can_run(settings, installed, offered, monkeypatch):
    monkeypatch.setattr(masters, "is_here", lambda name: installed)
    assert masters.tags_of(settings) == offered
