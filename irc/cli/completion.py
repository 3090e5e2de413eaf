"""`irc completion`: what a shell needs to complete commands, options and file names."""

from __future__ import annotations

import click

from irc.cli import console
from irc.diagnostics.terminal import TerminalText

_ZSH_ADDED = '    if [ -n "$completions" ]; then'
CHANGES = {
    "bash": (("complete -o nosort -F", "complete -o nosort -o default -F"),),
    "zsh": (
        (_ZSH_ADDED, f"    (( $#completions + $#completions_with_descriptions )) || _files\n\n{_ZSH_ADDED}"),
        ("_irc_completion", "_irc"),
    ),
    "fish": (("complete --no-files --command", "complete --command"),),
}
"""By shell, texts in click's script, and what stands there so that file names are completed where nothing else is.

zsh: the function is called as its file, which zsh runs at the first completion only.  By another name the second one
would run the file again, which then completes nothing.
"""


@click.command(short_help="Completion of commands and options for a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print a script that makes SHELL complete the commands of irc, their options and file names.

    \b
    bash: irc completion bash > ~/.local/share/bash-completion/completions/irc
    zsh:  irc completion zsh > a file _irc in a folder of $fpath
    fish: irc completion fish > ~/.config/fish/completions/irc.fish
    """
    from click.shell_completion import get_completion_class

    from irc.cli import commands

    made = get_completion_class(shell)
    assert made is not None  # click has these three
    script = made(commands, {}, "irc", "_IRC_COMPLETE").source().strip("\n")
    for theirs, ours in CHANGES[shell]:
        script = script.replace(theirs, ours)
    console.out(TerminalText.lines(script.split("\n")))
