"""Input `http`: the input `requests`, whose clients come over HTTP and may need a token.

HTTP is served by every worker (`onyx.front`). To the engine both inputs are the same.
"""

from __future__ import annotations

import os

from onyx.plugins.options import option_error
from onyx.plugins.protocol import PluginContext
from onyx.plugins.requests.input import RequestsInput
from onyx.plugins.requests.options import HttpInputOptions
from onyx.plugins.requests.tokens import Tokens


def http_input(context: PluginContext, options: HttpInputOptions) -> RequestsInput:
    """The input of one task.

    Raises:
        UserError: there is no token where the options say that there is one.
    """
    tokens = Tokens(options, context.data_dir, context.clock, os.environ)
    if tokens.wanted and not tokens.known():
        if options.token_env is not None:
            what = f"names variable {options.token_env!r}, which is not set on this worker"
            raise option_error(context, "tokenEnv", what)
        what = f"names {options.token_file!r}, which cannot be read or holds no token"
        raise option_error(context, "tokenFile", what)
    return RequestsInput(context, options)
