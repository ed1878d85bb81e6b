"""`python -m onyx.cli`: the same as `onyx`, for child processes that must find this interpreter."""

from onyx.cli import main

main()
