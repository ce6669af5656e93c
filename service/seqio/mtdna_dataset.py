"""Reads FASTA and FASTQ files into the torch data set of the mtDNA model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gpu.embedding.mtdna import MtDNADataset
from service.seqio.reader import read_records
from vocabularies.sequences.channel import SparseChannel
from vocabularies.sequences.mtdna import KmerVocabulary
from vocabularies.sequences.window_layout import Junction


def read_mtdna_dataset(
    paths: Sequence[str],
    vocabulary: KmerVocabulary | None = None,
    *,
    window_size: int = 512,
    stride: int = 256,
    circular: bool = True,
    junction: Junction = "append",
    add_cls: bool = False,
    channel: str | os.PathLike[str] | None = None,
) -> MtDNADataset:
    """Read genomes into a data set of windows.

    Args:
        paths: FASTA or FASTQ files, plain or gzip.
        vocabulary: defines the ids of k-mers; None: all 6-mers.
        window_size: as for `MtDNADataset`.
        stride: as for `MtDNADataset`.
        circular: as for `MtDNADataset`.
        junction: as for `MtDNADataset`.
        add_cls: as for `MtDNADataset`.
        channel: a file of heteroplasmy levels; each line has the name of a record, the position of
            a base, counted from 0, and its level, separated by tabs; None: all levels are 0.

    Raises:
        OSError, TypeError, ValueError, BadRecords: as `read_records` and `MtDNADataset`.
        ChannelError: a line of the channel is invalid, or matches no record.
    """
    records = list(read_records(paths, "sequences"))
    sequences = [record.data.decode() for record in records]
    vectors = None
    if channel is not None:
        levels = SparseChannel(Path(channel).read_bytes())
        vectors = [levels.values(record.name, len(record.data)) for record in records]
        levels.check_used()
    return MtDNADataset(
        sequences,
        vocabulary or KmerVocabulary.build(k=6),
        window_size=window_size,
        stride=stride,
        circular=circular,
        junction=junction,
        add_cls=add_cls,
        het_level_vectors=vectors,
    )
