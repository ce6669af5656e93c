// The fused kernels of small DNA batches; see docs/internals/dna-bpe.md, Parts.
//
// gpu/small launches one of them, for batches that request only ids. A block encodes a part of the text from
// the letters around it alone, and no block waits for the path of another one.
//
//     text       . . . . . . . . . . . . . . .
//     block 0    |- - part - -| look
//     block 1       lead      |- - part - -|       a block also reads the letters in front of and behind its part
//
// Launch: cooperative, a block of PART_THREADS a multiprocessor at most, with DNA_PARTS_SHARED bytes of dynamic shared
// memory. The Job comes with the launch.
// Invariant: the ids are right, or STATUS_FALLBACK of host_status is not 0 and the kernels of dna/ encode the whole
// batch.
#include "dna/parts/write_ids.cuh"

using namespace warptok::dna;

DYNAMIC_SHARED(memory);

// A block per part of the text: host_text, text, host_row_begins, tables -> host_ids, host_offsets, host_status,
// row_begins, part_states.
// Needs: nothing on the device but the vocabulary; grid_arrivals as the launch before left it.
// Ensures: host_ids and host_offsets are the answer, or STATUS_FALLBACK of host_status is not 0.
KERNEL __launch_bounds__(PART_THREADS, 1) encode_dna_parts(GRID_CONSTANT const Job job) {
    auto& shared = *reinterpret_cast<DnaPartsShared<EndingTable::IN_PLACE>*>(memory);
    encode_parts<EndingTable::IN_PLACE>(job, shared, blockIdx.x, gridDim.x);
}

// The same with ending_last in shared memory: host_text, text, host_row_begins, tables -> host_ids, host_offsets,
// host_status, row_begins, part_states.
// Needs: what encode_dna_parts needs.
// Ensures: what encode_dna_parts ensures.
KERNEL __launch_bounds__(PART_THREADS, 1) encode_dna_parts_copied(GRID_CONSTANT const Job job) {
    auto& shared = *reinterpret_cast<DnaPartsShared<EndingTable::COPIED>*>(memory);
    encode_parts<EndingTable::COPIED>(job, shared, blockIdx.x, gridDim.x);
}
