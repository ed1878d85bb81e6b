"""Which code runs a job: what is said when its peers run different code, or other code than the job
began with.

Workers announce a hash of their code with their peers (`code_hash`). The worker that gets a job
first notes the hash beside the log. Both are compared only among peers with the same tags: workers
with other tags are another pool, which may have modules of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from onyx.base.structs import UNREADABLE

CODE = "code"
"""What the hash is called among what a peer announces. A worker without modules announces none."""
NO_CODE = "none"
_CHARACTERS_MAX = 8
_BEGAN = msgspec.json.Decoder(dict[str, str])


def shown(announced: object) -> str:
    """The hash that a peer has announced; `NO_CODE` if none. Others may announce anything."""
    text = announced if isinstance(announced, str) else ""
    return text[:_CHARACTERS_MAX] if text.isascii() and text.isalnum() else NO_CODE


def pool(tags: Iterable[str]) -> str:
    """Stands for all peers with these tags."""
    return ",".join(sorted(tags))


def by_pool(peers: Iterable[tuple[Iterable[str], object]]) -> dict[str, Counter[str]]:
    """How many peers run which code, of each pool.

    Args:
        peers: the tags of each, and what it announced as `CODE`.
    """
    found: dict[str, Counter[str]] = {}
    for tags, announced in peers:
        found.setdefault(pool(tags), Counter())[shown(announced)] += 1
    return found


def total(pools: Mapping[str, Counter[str]]) -> dict[str, int]:
    """How many peers run which code, the most first; empty when nobody has modules."""
    counts = sum(pools.values(), Counter[str]())
    ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    return dict(ordered) if counts.keys() - {NO_CODE} else {}


def began_with(noted: bytes | None) -> dict[str, str]:
    """With which code a job began, by pool; nothing if nobody has noted it so that it can be
    read."""
    try:
        return {} if noted is None else _BEGAN.decode(noted)
    except UNREADABLE:
        return {}


def warning(pools: Mapping[str, Counter[str]], began: Mapping[str, str]) -> str:
    """What to say of the code of a job's peers; empty when all is as it began.

    Args:
        began: with which code the job began, by pool.
    """
    found = []
    for name in sorted(pools):
        who = f"its peers with tags {name}" if name and len(pools) > 1 else "its peers"
        found.append(_of_pool(who, total({name: pools[name]}), began.get(name)))
    return "; ".join(filter(None, found))


def _of_pool(who: str, counts: Mapping[str, int], began: str | None) -> str:
    runs = ", ".join(_runs(peers, code) for code, peers in counts.items())
    if len(counts) > 1:
        since = f", with {began} it began" if began else ""
        return f"{who} run different code: {runs}{since}; restart the workers with the wrong one"
    if counts and began is not None and began not in counts:
        return (
            f"{who} run other code than it began with: {runs}, with {began} it began; what they "
            "make may differ from what was made before"
        )
    return ""


def _runs(peers: int, code: str) -> str:
    if code == NO_CODE:
        return f"{peers} {'has' if peers == 1 else 'have'} no modules"
    return f"{peers} {'runs' if peers == 1 else 'run'} {code}"
