"""The lines that a query and its worker exchange."""

import msgspec

from onyx.spark.driver.request import (
    OutputResult,
    QueryFailure,
    QueryProgress,
    QueryReply,
    QueryRequest,
    TaskCounts,
    lines,
)


def test_a_line_is_told_apart_by_its_type():
    progress = QueryProgress(
        "running", {"read": TaskCounts(read=3)}, ui_url="http://127.0.0.1:4040"
    )
    reply = QueryReply(None, {"out": OutputResult(({"name": "part-1"},), ("/scratch/0",))})
    for each in (progress, reply, QueryReply(QueryFailure("no", by_user=True, task="t"))):
        assert lines.decode(msgspec.json.encode(each)) == each


def test_a_request_survives_json():
    request = QueryRequest(
        manifest={"apiVersion": "onyx.dev/v1beta1"}, job_id="j", modules=("m",), incarnation="i",
        attempt="a1", scratch="/scratch",
    )  # fmt: skip
    assert msgspec.json.decode(msgspec.json.encode(request), type=QueryRequest) == request
