"""The command line: one module for each command, and a parser for all commands.

`parser` reads the arguments and calls the command's module. `serve` starts the service; `encode`,
`windows`, `statistics`, `train`, `corpus`, `commands` and `motif_report` (with `motif_plot`) work
on files without it; `doctor/` checks the machine and the settings. `vocabulary_files` finds the
vocabulary that a command names, and `unknown_ids` warns of many unknown ids; `training_arguments`
and `corpus_arguments` declare options.

Called by `python -m service` and by the script `warptok`; nothing in the service imports it.

A command imports its modules only when it runs, so that `--help` is quick. Results go to standard
output, everything else to standard error. Errors of the user's files are one line, not a traceback.
"""
