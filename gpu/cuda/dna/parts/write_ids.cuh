// Encodes parts: writes the ids of a part, and where those of its rows begin, to where the host reads them.
//
//     copy the text of the view      round by round   async_load.cuh, part.cuh, n_runs.cuh
//     find last tokens               round by round   part_last_tokens.cuh, listed.cuh, mixed_letters.cuh, repeats.cuh
//     find the path, count its ids                    part_path.cuh
//     wait for the parts in front, write the ids      here
//
// Invariant: a part writes ids only if no part in front of it has failed, so that the ids of all parts are side by
// side.
#pragma once
#include "dna/parts/part_path.cuh"

namespace warptok::dna {

// The hash of a token of more than dna_k letters. Its upper bits are the slot of part_ids where the search begins, its
// lower half is the tag, which no two tokens share.
DEVICE uint64_t hash_of_token(const Job& job, LongKey key, uint32_t length) {
    uint64_t high = length < 32 ? key.high >> (64 - 2 * length) : key.high;
    uint64_t low = length <= 32 ? 0 : key.low >> (128 - 2 * length);
    uint64_t hash = (high ^ (low + length) * job.parts.part_factor) * 0x9E3779B97F4A7C15ull;
    return (hash ^ hash >> 32) * job.parts.part_factor;
}

// The id of a token of many letters.
DEVICE_NOINLINE uint32_t id_of_long(const Job& job, const PartShared& shared, uint32_t place, uint32_t length) {
    uint64_t hash = hash_of_token(job, key_before(shared, place), length), slot = hash >> job.parts.part_shift;
    uint32_t tag = static_cast<uint32_t>(hash);
    for (uint64_t probes = 0; probes < 1ull << (64 - job.parts.part_shift); probes++, slot++) {
        uint2 entry = __ldg(job.parts.part_ids + (slot & ((1ull << (64 - job.parts.part_shift)) - 1)));
        if (entry.x == tag && entry.y) return entry.y - 1;
    }
    job.host.host_status[STATUS_FAULT] = 1;     // No such token: the tables are wrong.
    return 0;
}

// The id of the piece that ends at a place.
DEVICE uint32_t id_of_piece(const Job& job, const PartShared& shared, uint32_t place) {
    uint32_t length = shared.lengths[place];
    if (length == RUN_BEGINS) return static_cast<uint32_t>(job.dna.run_id);
    if (length >= GAP_LENGTH) return __ldg(job.dna.dna_letter_ids + (length - GAP_LENGTH));
    if (length > bases_behind(shared, place)) return id_of_mixed(job, shared, place, length);
    return length > job.dna.dna_k ? id_of_long(job, shared, place, length) : id_of_short(job, shared, place, length);
}

// Lists pieces, so that neighbouring threads write neighbouring ids: id << 16 | the place where it ends. The whole
// block calls it.
DEVICE void list_pieces(const Job& job, const PartShared& shared, const View& view, uint32_t* pieces, uint32_t count) {
    uint32_t segment = threadIdx.x, begin = view.lead + SEGMENT * segment, number = shared.before[segment];
    for (uint32_t bits = shared.ends[segment]; bits; bits &= bits - 1) pieces[number++] = begin + lowest_bit(bits) + 1;
    __syncthreads();
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < count; i += PART_THREADS)
        pieces[i] |= id_of_piece(job, shared, pieces[i]) << 16;
}

// Ids of the answer in front of a row's own ids, where `pieces` pieces are in front of the row in the batch.
DEVICE uint64_t ids_before_row(const Job& job, uint64_t row, uint64_t pieces) {
    if (!job.launch.post_processed) return pieces;
    uint64_t num_prefix = job.post_process.num_prefix;
    return pieces + row * (num_prefix + job.post_process.num_suffix) + num_prefix;
}

// The row of the piece that ends at a place.
DEVICE uint64_t row_of_piece(const Job& job, const PartShared& shared, const View& view, uint32_t place) {
    uint64_t first = shared.first_row ? shared.first_row - 1 : 0;
    return first + last_not_behind(job.rows.row_begins + first, shared.rows_behind - first, view.begin + place - 1);
}

template <class Id>
DEVICE void write_pieces(const Job& job, const PartShared& shared, const View& view, const uint32_t* pieces,
                         uint32_t count) {
    Id* ids = reinterpret_cast<Id*>(job.host.host_ids);
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < count; i += PART_THREADS) {
        uint64_t number = shared.ids_before + i;
        if (job.launch.post_processed)
            number = ids_before_row(job, row_of_piece(job, shared, view, pieces[i] & 0xFFFF), number);
        ids[number] = static_cast<Id>(pieces[i] >> 16);
    }
}

// Writes the begin tokens of a row and the end tokens of the row before it; `pieces` pieces are in front of the row.
template <class Id> DEVICE void write_begin_end_tokens(const Job& job, uint64_t row, uint64_t pieces) {
    Id* ids = reinterpret_cast<Id*>(job.host.host_ids) + ids_before_row(job, row, pieces) - job.post_process.num_prefix;
    for (uint64_t i = 0; i < job.post_process.num_prefix && row < job.batch.num_rows; i++)
        ids[i] = static_cast<Id>(job.post_process.prefix[i]);
    ids -= job.post_process.num_suffix;
    for (uint64_t i = 0; i < job.post_process.num_suffix && row; i++)
        ids[i] = static_cast<Id>(job.post_process.suffix[i]);
}

// Writes where the ids of rows begin: of the rows that begin behind a part's first place, up to its end. The first part
// has those at the text's begin, too.
template <class Id>
DEVICE void write_rows(const Job& job, const PartShared& shared, const View& view, uint32_t count) {
    for (uint64_t row = shared.first_row + threadIdx.x; row <= job.batch.num_rows; row += PART_THREADS) {
        uint64_t place = job.rows.row_begins[row] - view.begin, pieces = shared.ids_before + count;
        if (place > view.end) return;
        if (place <= view.lead && view.number) continue;
        uint32_t segment = static_cast<uint32_t>(place - view.lead) / SEGMENT, rest = (place - view.lead) % SEGMENT;
        if (place < view.end)
            pieces = shared.ids_before + shared.before[segment] + count_bits(shared.ends[segment] & ((1u << rest) - 1));
        job.host.host_offsets[row] =
            ids_before_row(job, row, pieces) - (job.launch.post_processed ? job.post_process.num_prefix : 0);
        if (job.launch.post_processed) write_begin_end_tokens<Id>(job, row, pieces);
    }
}

template <class Id>
DEVICE void write_part(const Job& job, const PartShared& shared, const View& view, const uint32_t* pieces,
                        uint32_t count) {
    write_pieces<Id>(job, shared, view, pieces, count);
    write_rows<Id>(job, shared, view, count);
}

// Whether a block copies ending_last to shared memory.
enum class EndingTable { IN_PLACE, COPIED };

template <EndingTable TABLE>
struct DnaPartsShared {
    union {
        uint2 last[TABLE == EndingTable::COPIED ? 1 << 2 * COPIED_K : 1];  // ending_last, while last tokens are found.
        uint32_t pieces[MOST_PART];        // The part's pieces, while their ids are written.
    };
    PartShared part;
};
constexpr uint32_t DNA_PARTS_SHARED = 217 * 1024;
static_assert(sizeof(DnaPartsShared<EndingTable::COPIED>) <= DNA_PARTS_SHARED, "launches ask for so much");

// Finds the path of a view, the copy of whose first letters is started; returns how many ids it has, 0 if the part has
// failed. `entry` is where the path comes in. The whole block calls it.
DEVICE uint32_t find_part(const Job& job, const Endings& endings, PartShared& part, TextCopies& copies,
                          const View& view, uint32_t& entry) {
    start_text_copy(job, part, copies, view, ROUND);
    begin_view(job, part, view);
    for (uint32_t first = 0; first < view.size && !part.failure; first += ROUND) {
        copies.wait();
        __syncthreads();
        pack_part(part, copies, view, first);
        begin_round(part);
        __syncthreads();
        start_text_copy(job, part, copies, view, first + 2 * ROUND);
        if (part.has_unresolved) resolve_mixed(job, part, view, first);
        if (!part.failure) find_last(job, endings, part, view, first);
        __syncthreads();
    }
    while (copies.finished < copies.started) copies.wait();
    return part.failure ? 0 : find_paths(part, view, entry);
}

// Encodes a part, the copy of whose first letters is started.
template <EndingTable TABLE>
DEVICE void encode_part(const Job& job, DnaPartsShared<TABLE>& shared, TextCopies& copies, View view,
                        uint32_t part_size) {
    PartShared& part = shared.part;
    Endings endings(job, TABLE == EndingTable::COPIED ? shared.last : job.dna.ending_last);
    uint32_t entry = 0, count = 0;
    for (uint32_t lead = LEAD;; lead = LONG_LEAD) {
        count = find_part(job, endings, part, copies, view, entry);
        if (part.failure != NEEDS_LONG_LEAD || lead == LONG_LEAD) break;
        view = view_of(job, view.number, part_size, LONG_LEAD);
        __syncthreads();
        start_text_copy(job, part, copies, view, 0);
    }
    publish_part(job, part, view, count, entry);
    if (!part.failure) list_pieces(job, part, view, shared.pieces, count);
    __syncthreads();
    add_parts_before(job, part, view);
    if (part.failure) {
        job.host.host_status[STATUS_FALLBACK] = FALLBACK_PART;
        return;
    }
    if (job.answer.id_bits == 16) write_part<uint16_t>(job, part, view, shared.pieces, count);
    else if (job.answer.id_bits == 8) write_part<uint8_t>(job, part, view, shared.pieces, count);
    else write_part<int32_t>(job, part, view, shared.pieces, count);
}

// Encodes a batch from its text to the answer, both in memory that the device reaches. Rows and the first letters are
// loaded while tables are copied; rows first, as all blocks wait for them.
template <EndingTable TABLE>
DEVICE void encode_parts(const Job& job, DnaPartsShared<TABLE>& shared, uint32_t block, uint32_t num_blocks) {
    uint32_t size = part_size(job, num_blocks), parts = num_parts(job, size);
    uint64_t first = static_cast<uint64_t>(block) * PART_THREADS + threadIdx.x, stride = num_blocks * PART_THREADS;
    int64_t* row_begins = const_cast<int64_t*>(job.rows.row_begins);
    int64_t begin = first <= job.batch.num_rows ? job.host.host_row_begins[first] : 0;
    TextCopies copies = {shared.part.barriers, 0, 0};
    copies.begin();
    __syncthreads();
    if (block < parts) start_text_copy(job, shared.part, copies, view_of(job, block, size), 0);
    if (TABLE == EndingTable::COPIED) copy_last(job, shared.last);
    if (threadIdx.x < 256) shared.part.letters[threadIdx.x] = __ldg(job.parts.part_classes + threadIdx.x);
    for (uint64_t part = first; part < parts; part += stride) job.parts.part_states[part] = 0;
    if (first <= job.batch.num_rows) row_begins[first] = begin;
    for (uint64_t row = first + stride; row <= job.batch.num_rows; row += stride)
        row_begins[row] = job.host.host_row_begins[row];
    wait_for_grid(job.launch.grid_arrivals);
    for (uint32_t part = block; part < parts; part += num_blocks) {
        View view = view_of(job, part, size);
        if (part != block) {
            start_text_copy(job, shared.part, copies, view, 0);
            if (TABLE == EndingTable::COPIED) copy_last(job, shared.last);
        }
        encode_part<TABLE>(job, shared, copies, view, size);
        __syncthreads();
    }
}

}  // namespace warptok::dna
