"""Version 1 of the wire protocol, generated from `proto/onyx/wire/v1/` by `make generate`."""
