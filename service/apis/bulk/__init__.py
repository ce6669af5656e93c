"""Bulk calls, whose bodies are not JSON: plain text, Arrow, FASTA and FASTQ.

`text`, `arrow` and `fasta` are the three kinds of request. `text_chunks` and `sequence_chunks` cut
a long input at places where the ids stay the same. `fasta_batches` collects records into batches,
and `fasta_form` reads a form with a file and a channel. `arrow_reader` checks and reads Arrow
streams; `arrow_writer`, `window_writer` and `arrow_buffers` write them. `arrow_stream` sends the
answer while it still reads the request.

The native routes call these modules.

The ids equal those of the whole input encoded at once. Memory stays bounded: reading pauses while a
client does not read its answer.
"""
