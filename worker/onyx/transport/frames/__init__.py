"""Frames: what links say to each other, as bytes.

Only this package knows the protobuf classes of streams: `packets` has the values, `encoder` and
`decoder` the bytes. gRPC is given raw bytes and not protobuf messages, so that a frame that cannot
be parsed is ours to answer (a typed error and a resend) and not an INTERNAL status from inside the
library.

A frame on the wire, all of it valid protobuf (`wire/v1/streams.proto`):

    header      Frame.first, Frame.received          or Frame.hello, alone
    packet ...  Frame.packets, each with its own tag and length
    checksum    Frame.checksum: one byte of tag, four for all bytes before (`packets`)

Invariant: the checksum is the last five bytes.
"""
