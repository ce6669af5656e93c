"""Writes results as JSON, pads rows, and converts offsets to the unit that a client requests.

`json_stream` writes JSON, large answers in pieces, and rows of ids in C++ (`json_rows.cpp`) where
that is built; `padding` makes matrices of ragged rows; and `offset_units` converts byte offsets to
code points or UTF-16 units.

Called by the operations, after their batch has ended.

Rendering changes no id. Large answers are written in pieces, so that none blocks the event loop for
long.
"""
