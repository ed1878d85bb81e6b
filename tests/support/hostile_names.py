"""Names that lead out of a folder, or that some file system or server takes for something else."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

KNOWN: Sequence[str] = (
    "", ".", "..", "../..", "../../../../victim", "/", "/etc", "//", "a/b", "a/../b", "a/", "/a",
    "a//b", "..a", "a..", ".a", "a.", "-rf", "a-", "_a", "~", "~root", "$HOME", "a\\..\\b", "C:\\a",
    "a\0b", "\0", "a\n", "\r", "\x7f", "\x85", "\u202e", "\ud800", "\uffff", "a b", " ", "*", "?",
    "[a]", "%2e%2e%2f", "a:b", "a@b", "\u00e9", "e\u0301", "\uff0e\uff0e\uff0f", "\u2025",
    "a" * 129, "a" * 3_000, "\u00e9" * 100,
)  # fmt: skip
"""Each of another kind; none is a name by our rule."""

_PIECES = ("..", ".", "/", "\\", "a", "victim", "job", "\0", "\n", "~", "%2f", "\u2215", " ", "")

hostile_names = (
    st.sampled_from(KNOWN)
    | st.lists(st.sampled_from(_PIECES), max_size=8).map("".join)
    | st.text(max_size=12)
)
"""Also texts that happen to be names."""
