"""Input `http`: the input `requests`, whose clients come over HTTP and may need a token.

HTTP is served by every worker (`onyx.front`). To the engine both inputs are the same.
"""

from __future__ import annotations

import os

from onyx.plugins.options import option_error, variable_of
from onyx.plugins.protocol import PluginContext
from onyx.plugins.requests.input import RequestsInput
from onyx.plugins.requests.options import HttpInputOptions
from onyx.plugins.requests.tokens import tokens_of


def http_input(context: PluginContext, options: HttpInputOptions) -> RequestsInput:
    """The input of one task.

    Raises:
        UserError: there is no token where the options say that there is one, or jobs may not look
            there.
    """
    if options.token_env is not None:
        variable_of(context, "tokenEnv", options.token_env)
    if options.token_file is not None:
        context.located(options.token_file)
    tokens = tokens_of(options, context.rights, context.data_dir, context.clock, os.environ)
    if tokens.wanted and not tokens.known():
        what = f"names {options.token_file!r}, which cannot be read or holds no token"
        raise option_error(context, "tokenFile", what)
    return RequestsInput(context, options)
