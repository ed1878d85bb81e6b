"""Locations for files: a folder, or a prefix in an object store. Which of them is decided here
alone.

    interface   what every location can do: create once, read, list, replace, remove, new files
    folder      a folder that all workers see
    s3          objects whose keys begin alike
    memory      the twin of both, for tests and the simulator
    opening     a path or URL as a location
    fenced_log  logs of chunks: one writer each, until whoever takes over ends it

What files mean is said by those who use a location, once for all media. A further medium is a
module here with a row in `opening`, and passes the contract tests.
"""
