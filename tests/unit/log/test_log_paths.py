"""Names in ZooKeeper: entries by number, documents and folders that cannot be confused."""

import pytest

from onyx.errors import SettingsError, UserError
from onyx.ids import Position
from onyx.log.paths import Paths, document_name, entry_position

PATHS = Paths("t")


@pytest.mark.parametrize("position", [0, 7, 2_147_483_647])
def test_the_position_of_an_entry_is_in_its_name(position):
    assert entry_position(PATHS.entry(Position(position))) == position


@pytest.mark.parametrize("name", ["entry-1", "entry--000000001", "x", "entry-00000000001", ""])
def test_other_nodes_are_no_entries(name):
    assert entry_position(name) is None


def test_a_document_and_a_folder_of_the_same_name_are_different_nodes():
    assert PATHS.document("a/b") == "/onyx/t/documents/+a/=b"
    assert PATHS.folder("a/b") == "/onyx/t/documents/+a/+b"
    assert document_name("=b") == "b"
    assert document_name("+b") is None


@pytest.mark.parametrize(
    "path", ["", "/a", "a/", "a//b", "a/\x00", "a/\ud800", "a/../b", ".", "a/b\n"]
)
def test_a_path_that_leads_elsewhere_or_that_zookeeper_would_refuse_is_refused(path):
    with pytest.raises(UserError):
        PATHS.document(path)


@pytest.mark.parametrize("tenancy", ["", "a/b", ".", "..", "a\n"])
def test_a_tenancy_that_cannot_be_a_name_is_refused(tenancy):
    with pytest.raises(SettingsError, match="tenancy_id"):
        Paths(tenancy)
