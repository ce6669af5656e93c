"""Writes results as JSON, pads rows, and converts offsets to the unit that a client requests.

`json_stream` writes JSON; it writes rows of ids in C++ (`json_rows.cpp`) where that extension is
built. `padding` converts rows of different lengths to matrices. `offset_units` converts byte
offsets to code points or UTF-16 units.

The operations call these modules after their batch has ended.

Rendering changes no id. Large answers are written in pieces, so that none blocks the event loop for
long.
"""
