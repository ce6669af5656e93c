"""Writes results as JSON, padded arrays and offsets in the units that a client wants.

`json_stream` writes rows of ids, and large answers in pieces, `padding` makes rectangles of ragged
rows, and `offset_units` converts byte offsets to code points or UTF-16 units.

Called by the operations, after their batch has ended.

Rendering changes no id. A large answer is written in pieces, so that the event loop is never held
for long.
"""
