"""C++ extensions for the host side, and their Python faces."""
