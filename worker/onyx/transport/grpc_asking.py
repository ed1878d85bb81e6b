"""Asks a group for the state of a window: the other side of `grpc_state_queries`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import grpc

from onyx.errors import OnyxError, SegmentError, Unavailable, UserError
from onyx.requests.tokens import metadata_of
from onyx.settings import TransportSettings
from onyx.tls.files import CertificateFiles
from onyx.transport import state_queries
from onyx.transport.grpc_options import channel_options
from onyx.transport.grpc_state_queries import METHOD, SERVICE
from onyx.transport.grpc_tls import open_channel, why_not
from onyx.transport.state_queries import StateAnswer, StateQuery

Code = grpc.StatusCode
AGAIN = (
    Code.UNAVAILABLE,
    Code.CANCELLED,
    Code.DEADLINE_EXCEEDED,
    Code.RESOURCE_EXHAUSTED,
    Code.ABORTED,
)
"""After these the same question may succeed."""


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
