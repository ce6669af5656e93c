"""Memory, the allocator, files and extensions of a process, as the service sets them up.

`memory_pool` lends the memory of large arrays again after they are released; `malloc` tells glibc
to keep freed memory; `atomic_files` writes files that a crash leaves either old or new;
`file_limits` divides the files that a process may open; `unix_sockets` prepares their paths;
`extensions` says which C++ extensions are not built; `tcp_connections` counts the connections of a
port.

Called by the engines, the registry, training, and the start of every process.

Nothing here knows what a token, a request or a vocabulary is. Importing a module changes nothing
in the process; only calling its functions does.
"""
