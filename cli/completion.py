"""``cupytma completion``: the script by which a shell completes the command's words."""

from __future__ import annotations

import os
import sys
from typing import Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

from .failures import Failure
from .output import remark

SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_CUPYTMA_COMPLETE"

# Bash breaks words at colons and at equals signs, so the values of this command (shared::cluster) would be torn apart.
# The script hands over the line as it stands up to the cursor instead of bash's words, and gets back what belongs
# behind the last colon. It runs in bash 3.2 too, which macOS has.
_BASH_SCRIPT = """\
%(complete_func)s() {
    local IFS=$'\\n' response type value completion
    response=$(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD CUPYTMA_COMP_BREAKS="$COMP_WORDBREAKS" \\
        CUPYTMA_COMP_LINE="${COMP_LINE:0:$COMP_POINT}" %(complete_var)s=bash_complete "$1")
    COMPREPLY=()
    for completion in $response; do
        IFS=',' read -r type value <<< "$completion"
        case $type in
            dir) compopt -o dirnames 2> /dev/null ;;
            file) compopt -o default 2> /dev/null ;;
            *) COMPREPLY+=("$value") ;;
        esac
    done
    return 0
}

complete -o nosort -F %(complete_func)s %(prog_name)s 2> /dev/null ||
    complete -F %(complete_func)s %(prog_name)s
"""


class Bash(BashComplete):
    """Completion in bash of values that have colons."""

    _kept_by_shell = ""

    source_template = _BASH_SCRIPT

    def source(self) -> str:
        """The script, whatever version of bash there is: it runs in all of them."""
        return self.source_template % self.source_vars()

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ.get("CUPYTMA_COMP_LINE")
        if line is None:
            return super().get_completion_args()
        words = split_arg_string(line)
        incomplete = "" if line[-1:].isspace() or len(words) < 2 else words.pop()
        self._kept_by_shell = _kept(incomplete, os.environ.get("CUPYTMA_COMP_BREAKS", ":="))
        return words[1:], incomplete

    def format_completion(self, item: CompletionItem) -> str:
        value = str(item.value)
        return f"{item.type},{value.removeprefix(self._kept_by_shell)}"


def _kept(incomplete: str, breaks: str) -> str:
    """What stands in the line already and is not replaced: all up to the last character that breaks words."""
    word = incomplete.rpartition("=")[2] if incomplete.startswith("-") else incomplete
    at = max((word.rfind(mark) for mark in breaks if mark in ":="), default=-1)
    return word[: at + 1]


def register() -> None:
    """Have click use the completion of this module where the shell asks for it."""
    add_completion_class(Bash)


def _of_this_user() -> str | None:
    name = os.path.basename(os.environ.get("SHELL", ""))
    return name if name in SHELLS else None


@click.command(
    epilog="\b\nExamples, each for one shell:\n"
    "  cupytma completion bash >> ~/.bashrc\n"
    "  cupytma completion zsh >> ~/.zshrc\n"
    "  cupytma completion fish > ~/.config/fish/completions/cupytma.fish"
)
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@click.pass_context
def completion(ctx: click.Context, shell: str | None) -> None:
    """Print the script that makes a shell complete commands, options, instructions, targets and values.

    SHELL is by default the one that $SHELL names. Append the script to the file that your shell reads when it starts
    (see the examples), or try it out in the shell at hand: eval "$(cupytma completion bash)".
    """
    chosen = shell or _of_this_user()
    if chosen is None:
        raise Failure(f"$SHELL names none of the shells known here; say which: {', '.join(SHELLS)}")
    register()
    kind: Any = get_completion_class(chosen)
    program = ctx.find_root().info_name or "cupytma"
    click.echo(kind(ctx.find_root().command, {}, program, _VARIABLE).source(), nl=False)
    if sys.stdout.isatty():
        remark(f"`cupytma completion {chosen} --help` says where this goes.")
