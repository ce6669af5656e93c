"""Bulk calls, whose bodies are not JSON: plain text, Arrow, FASTA and FASTQ.

`text`, `arrow` and `fasta` are the three kinds of request. `text_chunks` and `sequence_chunks` cut
a long input where the ids stay the same; `fasta_batches` collects records into batches, and
`fasta_form` reads a form with a file and a channel. `arrow_reader` checks and reads Arrow streams,
`arrow_writer`, `window_writer` and `arrow_buffers` write them, and `arrow_stream` answers while it
still reads.

Called by the native routes.

Ids equal those of the whole input encoded at once. Memory stays bounded: reading waits while a
client does not read its answer.
"""
