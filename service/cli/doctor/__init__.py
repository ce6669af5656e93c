"""The command `doctor`, which checks the machine and whether the service would start on it.

`command` runs the tables of checks and prints their findings. Checks of the `machine` and of its
`cards` need no settings; those of `configuration` say whether the service would start with the
settings of the environment. A check is a function that yields findings (`finding`): a line each,
with a state and, where the user should act, an advice.

Called by the parser alone. No check changes anything: no folder is made, and ports are bound and
given back. The GPU engine is opened and closed, which compiles kernels the first time.
"""
