"""Print a completion script for a shell; the comment on its first lines says where to put it.

bash: unhang completion bash > ~/.local/share/bash-completion/completions/unhang
zsh:  unhang completion zsh > "${fpath[1]}/_unhang"
fish: unhang completion fish > ~/.config/fish/completions/unhang.fish
tcsh: unhang completion tcsh > ~/.unhang.tcsh, and source that from ~/.tcshrc
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

SHELLS = ("bash", "zsh", "fish", "tcsh")

EXAMPLES = """unhang completion bash > ~/.local/share/bash-completion/completions/unhang
unhang completion zsh > "${fpath[1]}/_unhang\""""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `unhang completion`."""
    parser.add_argument("shell", choices=SHELLS)


def run(args: argparse.Namespace) -> int:
    """Build the whole command tree and print the shell's script for it."""
    from unhang.cli.main import build_parser

    if args.shell == "fish":
        sys.stdout.writelines(f"{line}\n" for line in _fish(build_parser()))
        return 0
    import shtab

    sys.stdout.write(shtab.complete(build_parser(), shell=args.shell) + "\n")
    return 0


def _fish(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Fish's own completions, which shtab does not write."""
    yield "complete -c unhang -f"
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to its arguments
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for entry in action._choices_actions:  # noqa: SLF001
                words = f"-n __fish_use_subcommand -a {entry.dest} -d {_quoted(entry.help or '')}"
                yield f"complete -c unhang {words}"
            for name, command in action.choices.items():
                yield from _fish_options(name, command)


def _fish_options(name: str, command: argparse.ArgumentParser) -> Iterator[str]:
    """The options of a command, and files where it takes paths."""
    seen = f"complete -c unhang -n '__fish_seen_subcommand_from {name}'"
    for action in command._actions:  # noqa: SLF001
        flags = [
            f"-l {each[2:]}" if each.startswith("--") else f"-s {each[1:]}"
            for each in action.option_strings
        ]
        choices = f" -a {_quoted(' '.join(map(str, action.choices)))}" if action.choices else ""
        takes = "" if action.nargs == 0 else f" -x{choices}" if choices else " -r"
        if flags:
            help_text = (action.help or "") if action.help != argparse.SUPPRESS else ""
            yield f"{seen} {' '.join(flags)}{takes} -d {_quoted(help_text)}"
        elif choices:
            yield f"{seen}{choices}"
        elif action.dest in ("paths", "path"):
            yield f"{seen} -F"


def _quoted(text: str) -> str:
    """A text in fish's single quotes, where a backslash and a quote are escaped."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
