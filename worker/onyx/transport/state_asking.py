"""Asks a group about a state, or what it measures: the half of `grpc_state_queries` that clients
have. It needs no batches, so whoever only asks has neither pyarrow nor NumPy in his memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import grpc

from onyx.base.seams import SystemClock
from onyx.errors import OnyxError, SegmentError, Unavailable, UserError
from onyx.requests.tokens import ClientToken, metadata_of
from onyx.settings import Settings, TransportSettings
from onyx.tls.files import GROUPS, CertificateFiles
from onyx.transport import state_queries
from onyx.transport.grpc_channel import channel_options, open_channel, why_not
from onyx.transport.state_queries import StateAnswer, StateQuery

SERVICE, METHOD = "onyx.wire.v1.State", "Query"
Code = grpc.StatusCode
AGAIN = (
    Code.UNAVAILABLE,
    Code.CANCELLED,
    Code.DEADLINE_EXCEEDED,
    Code.RESOURCE_EXHAUSTED,
    Code.ABORTED,
)
"""After these the same question may succeed."""


def asking(
    settings: Settings, token: Callable[[], str] | None = None
) -> Callable[[str, StateQuery, float], StateAnswer]:
    """A function that asks the group at an address, within so many seconds, with the certificates
    that settings name; raises like `ask`.

    Args:
        token: gives the token that is shown to workers; None: the one that settings name.

    Raises:
        SettingsError: the certificates that settings name are not good.
    """
    files = CertificateFiles.named_by(settings.tls, GROUPS, serves=False)
    shown = token or ClientToken(settings.client, SystemClock())

    def dial(address: str, query: StateQuery, timeout_s: float) -> StateAnswer:
        return ask(address, query, settings.transport, files, timeout_s, shown())

    return dial


def ask(
    address: str,
    query: StateQuery,
    settings: TransportSettings,
    certificates: CertificateFiles | None,
    timeout_s: float,
    token: str = "",
) -> StateAnswer:
    """Ask the group at an address; blocks.

    Raises:
        UserError: asking again is no use: the question is wrong, or the other side does not take
            our token or certificates or is of another version.
        Unavailable: it cannot be reached, or cannot answer now.
    """
    with open_channel(address, channel_options(settings), certificates) as channel:
        call: Callable[..., Iterator[bytes]] = channel.unary_stream(f"/{SERVICE}/{METHOD}")
        try:
            return state_queries.from_pieces(
                call(
                    state_queries.encode_query(query),
                    timeout=timeout_s,
                    metadata=metadata_of(token),
                )
            )
        except grpc.RpcError as error:
            raise _failure(error, address, query, certificates) from error
        except SegmentError as error:
            raise UserError(f"the worker at {address} answered in another language: {error}") from (
                error
            )


def _failure(
    error: grpc.RpcError, address: str, query: StateQuery, certificates: CertificateFiles | None
) -> OnyxError:
    assert isinstance(error, grpc.Call)
    code, details = error.code(), error.details()
    where = f"the worker at {address}"
    if code is Code.FAILED_PRECONDITION:
        return UserError(str(details))
    if code is Code.UNIMPLEMENTED:
        return UserError(f"{where} answers no questions: run the same version of Onyx everywhere")
    if code in (Code.UNAUTHENTICATED, Code.PERMISSION_DENIED):
        return UserError(f"{where} refuses to answer: {details}")
    if code in AGAIN:
        problem = why_not(address, certificates) if code is Code.UNAVAILABLE else None
        if problem is not None:
            return UserError(f"{where} cannot be asked: {problem}")
        return Unavailable(f"{where} (group {query.group}) does not answer: {details}")
    return UserError(f"{where} does not answer: {code.name}: {details}")
