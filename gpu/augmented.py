"""Augments rows on the device and encodes them: crops, substitutions, reverse complements.

The augmented rows are those of `vocabularies.sequences.augmentation.augment`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpu.batch.kernel_choice import launch_content, refused_rows
from gpu.batch.row_options import NO_BYTE, row_errors, row_options
from gpu.batch.transfer import fetch, launch, pack_augmented, status_of
from gpu.engine import GpuEngine
from gpu.errors import NotCovered
from gpu.kernels.families import post_process_kernels
from gpu.kernels.job import STATUS
from vocabularies.batch.batch import Batch, Encoded
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.sequences.augmentation import Augmentation, augment


def encode_augmented(
    engine: GpuEngine, vocabulary: Vocabulary, batch: Batch, augmentation: Augmentation
) -> Encoded:
    """Augment the rows on the device and encode them; row i has the number first_row + i.

    Raises:
        ValueError: the options of a row request spans.
        NotCovered: the vocabulary encodes text instead of sequences, or a character may split a
            k-mer.
        OutOfMemory: the batch does not fit into memory.
    """
    resources = engine.resources
    with resources.residents.using(vocabulary) as resident:
        if not resident.family.augments_rows:
            raise NotCovered("only characters, k-mers and DNA BPE can augment rows")
        options = row_options(vocabulary, batch, resident.family)
        if options.spans is not None:
            raise ValueError("augmented rows have no spans in the rows as sent")
        size, rows = len(batch.data), len(batch)
        with resources.workspaces.lend(size, rows, resident.family.layout) as workspace:
            options = replace(options, augmented=True)
            pack_augmented(workspace, resident, batch, options, augmentation, resources.processors)
            processors = resources.processors
            # Augmentation may cut a row inside a character of several bytes.
            validate = not resident.family.takes_bytes
            launch_content(workspace, resident, processors, validate=validate, augmented=True)
            launch(workspace, post_process_kernels(resident.family, spans=False), processors)
            status = status_of(workspace)
            ids = fetch(
                workspace, "post_processed_ids", np.int32, int(status[STATUS["NUM_POST_PROCESSED"]])
            )
            offsets = fetch(workspace, "post_processed_offsets", np.int64, rows + 1)
            encoded = Encoded(ids, offsets, engine="gpu")
            if status[STATUS["TRUNCATED"]]:
                encoded.num_tokens = fetch(workspace, "num_tokens", np.int64, rows)
                encoded.kept = fetch(workspace, "kept", np.int64, 2 * rows).reshape(-1, 2)
            places = refused_rows(workspace, rows)
    if (places != NO_BYTE).any() or options.max_length is not None:
        data, offsets = augment(batch.data, batch.offsets, augmentation)
        augmented = Batch(data=data, offsets=offsets, options=batch.options)
        encoded.errors = row_errors(vocabulary, augmented, options, places)
    return encoded
