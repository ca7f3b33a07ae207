"""Print a completion script for a shell; the comment on its first lines says where to put it.

bash: unhang completion bash > ~/.local/share/bash-completion/completions/unhang
zsh:  unhang completion zsh > "${fpath[1]}/_unhang"
tcsh: unhang completion tcsh > ~/.unhang.tcsh, and source that from ~/.tcshrc
"""

from __future__ import annotations

import argparse
import sys

SHELLS = ("bash", "zsh", "tcsh")

EXAMPLES = """unhang completion bash > ~/.local/share/bash-completion/completions/unhang
unhang completion zsh > "${fpath[1]}/_unhang\""""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `unhang completion`."""
    parser.add_argument("shell", choices=SHELLS)


def run(args: argparse.Namespace) -> int:
    """Build the whole command tree and print the shell's script for it."""
    import shtab

    from unhang.cli.main import build_parser

    sys.stdout.write(shtab.complete(build_parser(), shell=args.shell) + "\n")
    return 0
