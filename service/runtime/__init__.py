"""Sets up memory, the allocator, files and extensions of a process.

`memory_pool` reuses the memory of released large arrays; `malloc` configures glibc to keep freed
memory; `atomic_files` replaces files atomically; `file_limits` divides the file descriptors of a
process; `unix_sockets` prepares the paths of sockets; `extensions` reports missing C++ extensions;
`child_environment` lets child processes import the same packages; `tcp_connections` counts the
connections of a port.

Called by the engines, the registry, training, and the start of every process.

This package does not depend on tokens, requests or vocabularies. Importing a module does not change
the process; only calling its functions does.
"""
