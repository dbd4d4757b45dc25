"""Print what lets a shell complete the commands and options of `evalsite`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.management import get_commands, load_command_class
from django.core.management.base import BaseCommand, CommandParser

from evalsite.cli import WORKER, own_commands
from runs.cli.command import SiteCommand

EPILOG = """\
exit codes:
  0  printed
  2  wrong usage

examples:
  evalsite completion bash > ~/.local/share/bash-completion/completions/evalsite
  evalsite completion zsh > ~/.zfunc/_evalsite      # with fpath+=~/.zfunc before compinit
  evalsite completion fish > ~/.config/fish/completions/evalsite.fish
"""
BASH = """\
_evalsite() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{commands}"
  else
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  [ "${{#COMPREPLY[@]}}" -gt 0 ] || COMPREPLY=($(compgen -f -- "$word"))
}}
complete -o filenames -F _evalsite evalsite
"""
ZSH = "#compdef evalsite\nautoload -U +X bashcompinit && bashcompinit\n"


class Command(SiteCommand):
    """Write the script from the commands' own options, so that it never lags behind them."""

    help = "Print what lets bash, zsh or fish complete the commands and their options."
    epilog = EPILOG
    action = "The script"
    requires_migrations_checks = False

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the shell."""
        parser.add_argument(
            "shell", choices=("bash", "zsh", "fish"), metavar="SHELL", help="bash, zsh or fish"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the script."""
        words = {name: sorted(_words(name)) for name in own_commands()}
        if options["shell"] == "fish":
            self.stdout.write("\n".join(_fish(words)))
            return
        cases = "\n".join(
            f'      {name}) words="{" ".join(known)}" ;;' for name, known in words.items()
        )
        script = BASH.format(commands=" ".join(words), cases=cases)
        self.stdout.write(script if options["shell"] == "bash" else ZSH + script)


def _fish(words: dict[str, list[str]]) -> Iterator[str]:
    yield f"complete -c evalsite -n __fish_use_subcommand -a '{' '.join(words)}'"
    for name, known in words.items():
        if known:
            yield f"complete -c evalsite -n '__fish_seen_subcommand_from {name}' -a '{' '.join(known)}'"


def _words(name: str) -> Iterator[str]:
    """Yield the options of a command, and the words that its arguments choose from."""
    if name == WORKER:
        return
    command = load_command_class(get_commands()[name], name)
    hidden = {*BaseCommand.suppressed_base_arguments, *command.suppressed_base_arguments}
    for action in command.create_parser("evalsite", name)._actions:
        yield from (
            word for word in action.option_strings if word.startswith("--") and word not in hidden
        )
        if not action.option_strings and action.choices:
            yield from map(str, action.choices)
