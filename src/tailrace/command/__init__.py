"""The commands of `tailrace`, one module for each that is more than a few lines. Driver."""

import os

_INTERRUPTED = 130
"""The exit code of `stop_request.INTERRUPTED`, which is not imported yet."""


def main() -> int:
    """Run one command of the process's command line; return the exit code. Ctrl-C during the imports ends the process
    without a traceback."""
    try:
        from tailrace.command import cli
    except KeyboardInterrupt:
        # no thread or file is open yet
        os._exit(_INTERRUPTED)
    return cli.main()
