// The ids of the runs of kmers/runs/tile.cuh, and where those of rows begin.
//
// Tiles of few runs, as most are, are those of kmers/runs/tile_few.cuh. A gap has an id for each of its letters. All others are taken by parts of 1,024 letters, a lane a word
// of 32: its start bits, then the ids at these.
#pragma once
#include "kmers/runs/tile_few.cuh"

constexpr uint32_t FAR_AWAY = 64;          // Letters behind a word's first one, where no id of the word depends on it.

// The bits begin <= i < end of a word.
DEVICE uint32_t word_between(uint32_t begin, uint32_t end) {
    if (begin >= end) return 0;
    return (end < 32 ? 1u << end : 0) - (1u << begin);
}

// The start bits of the letters begin <= i < end of a word, all of one run of the class BASE.
DEVICE uint32_t starts_in_run(const Job& job, const FourLetters& four, uint32_t first, uint32_t run, uint32_t begin,
                              uint32_t end, uint32_t behind) {
    uint32_t starts = 0, phase = four.strides.rest(first + begin - run), kmers_end = behind < four.k ? 0 : behind - four.k + 1;
    for (uint32_t i = begin + (phase ? four.stride - phase : 0); i < min_of(end, kmers_end); i += four.stride) starts |= 1u << i;
    if (!job.keeps_remainder || behind == FAR_AWAY) return starts;
    uint32_t length = first + behind - run, kmers = kmers_of(four, length);
    uint32_t rest = run + (kmers ? (kmers - 1) * four.stride + four.k : 0);
    return starts | word_between(rest > first + begin ? min_of(rest - first, 32) : begin, end);
}

// The start bits of a word, which begins in a run from `run` on.
DEVICE uint32_t starts_of_word(const Job& job, const FourLetters& four, const uint32_t* table, const RunTile& tile,
                               uint32_t begin, uint32_t word, uint32_t run) {
    uint32_t first = begin + 32 * word, breaks = tile.breaks[word], next = tile.breaks[word + 1], starts = 0;
    uint32_t count = first < four.num_bytes ? min_of(four.num_bytes - first, 32) : 0;
    if (are_all_runs(tile, word, breaks) && count == 32) return breaks;
    for (uint32_t at = 0, end; at < count; at = end) {
        if (breaks >> at & 1) run = first + at;
        uint32_t later = at < 31 ? breaks >> (at + 1) : 0, behind = next ? 32 + lowest_bit(next) : FAR_AWAY;
        if (later) behind = at + 1 + lowest_bit(later);
        end = min_of(behind, count);
        if (is_base(tile, 32 * word + at)) starts |= starts_in_run(job, four, first, run, at, end, behind);
        else if (run == first + at && has_own_id(four, table, tile, run)) starts |= 1u << at;
    }
    return starts;
}

// The id of a letter of the tile that begins one.
DEVICE uint32_t id_of_start(const Job& job, const FourLetters& four, const RunTile& tile, uint32_t begin, uint32_t letter) {
    uint32_t word = letter / 32, behind = shift_right(tile.breaks[word], tile.breaks[word + 1], letter % 32) >> 1;
    bool is_kmer = is_base(tile, letter) && !(behind & ((1u << (four.k - 1)) - 1));
    return is_kmer ? read_id(four, tile, false, letter + AROUND) : job.letter_ids[four.text[begin + letter]];
}

// Writes where the ids of rows begin, from `row` on, that begin with a letter of a part: the lanes have its starts and
// the ids before each word. Returns the first row behind.
DEVICE uint64_t write_row_ids(const Job& job, uint64_t row, uint32_t part_begin, uint32_t starts, uint32_t before) {
    uint64_t lane = threadIdx.x & 31, end = part_begin + static_cast<uint64_t>(PART_LETTERS);
    while (true) {
        uint64_t place = row + lane <= job.num_rows ? job.row_begins[row + lane] : ~0ull;
        uint32_t letter = static_cast<uint32_t>(place) - part_begin, word = letter / 32 % 32;
        uint32_t bits = __shfl_sync(ALL_LANES, starts, word) & ((1u << letter % 32) - 1);
        uint32_t ids = __shfl_sync(ALL_LANES, before, word) + count_bits(bits);
        if (place < end) {
            job.id_offsets[row + lane] = ids;
            if (row + lane < job.num_rows) RowFaults(job).look_at(row + lane);
        }
        uint32_t here = count_bits(__ballot_sync(ALL_LANES, place < end));
        row += here;
        if (here < 32) return row;
    }
}

// The ids of a tile with breaks, of which the first one is number `place`.
template <class Id>
DEVICE void write_parts(const Job& job, const FourLetters& four, const uint32_t* table, RunIdsTile<Id>& tile, uint32_t begin,
                        uint64_t row, uint32_t run, uint32_t place) {
    uint32_t lane = threadIdx.x & 31;
    Id* out = ids_out<Id>(job);
    for (uint32_t part = 0; part < KMER_TILE; part += PART_LETTERS) {
        uint32_t word = part / 32 + lane, breaks = tile.breaks[word];
        run = break_before(breaks, begin + 32 * word, run + 1) - 1;
        uint32_t starts = starts_of_word(job, four, table, tile, begin, word, run);
        uint32_t sums = join_lanes(count_bits(starts), [](uint32_t a, uint32_t b) { return a + b; });
        uint32_t before = sums - count_bits(starts), total = __shfl_sync(ALL_LANES, sums, 31);
        row = write_row_ids(job, row, begin + part, starts, place + before);
        for (uint16_t* next = tile.starts + before; starts; starts &= starts - 1)
            *next++ = static_cast<uint16_t>(32 * word + lowest_bit(starts));
        __syncwarp();
        for (uint32_t i = lane; i < total; i += 32)
            out[place + i] = static_cast<Id>(id_of_start(job, four, tile, begin, tile.starts[i]));
        __syncwarp();
        run = __shfl_sync(ALL_LANES, breaks ? begin + 32 * word + highest_bit(breaks) : run, 31);
        place += total;
    }
}

// The ids of a tile that is a gap, of which the first one is number `place`, and where those of the rows begin: an id a letter.
template <class Id>
DEVICE void write_gap(const Job& job, const FourLetters& four, RunIdsTile<Id>& tile, uint32_t begin, uint64_t row, uint32_t place) {
    constexpr uint32_t ITEMS = 16 / sizeof(Id);
    uint32_t lane = threadIdx.x & 31, end = place + KMER_TILE;
    Id id = static_cast<Id>(job.letter_ids[four.text[begin]]);
    for (uint32_t i = lane; i < MOST_RUN_IDS; i += 32) tile.ids[i] = id;
    RowFaults faults(job);
    for (row += lane; row < job.num_rows && job.row_begins[row] - begin < KMER_TILE; row += 32) {
        job.id_offsets[row] = place + (job.row_begins[row] - begin);
        faults.look_at(row);
    }
    __syncwarp();
    for (StagedIds staged = {place, place}; staged.end < end; staged.first = staged.end) {
        staged.end = min_of(end, staged.first / ITEMS * ITEMS + MOST_RUN_IDS);
        staged.store(tile.ids, ids_out<Id>(job));
    }
}

// The first break of a tile and the letters behind it, as a letter of the batch.
DEVICE uint32_t first_break_of(const RunTile& tile, uint32_t begin) {
    for (uint32_t first = 0; first < SPAN_WORDS; first += 32) {
        uint32_t word = first + (threadIdx.x & 31), breaks = word < SPAN_WORDS ? tile.breaks[word] : 0;
        uint32_t own = begin + 32 * word + (breaks ? lowest_bit(breaks) : 0), any = __ballot_sync(ALL_LANES, breaks != 0);
        if (any) return __shfl_sync(ALL_LANES, own, lowest_bit(any));
    }
    return NO_BREAK;
}

// The ids of a tile of `count` runs, or of many, of which is known what is before it.
template <class Id>
DEVICE void write_run_tile(const Job& job, const FourLetters& four, RunIdsTile<Id>& tile, uint32_t begin, uint64_t row,
                           const RunPart& before, uint32_t count) {
    wait_for_stores();
    if (count) return write_few_runs(job, four, tile, begin, row, before, count);
    uint32_t run = before.last, end = first_break_of(tile, begin);
    uint32_t place = before.ids + ids_of_run(job, four, before.last_class, run, end, begin - run);
    if (tile.is_gap) write_gap(job, four, tile, begin, row, place);
    else write_parts<Id>(job, four, job.letter_table, tile, begin, row, run, place);
}

// A block takes neighbouring tiles, a warp one of them.
template <class Id>
DEVICE void write_runs_stage(const Job& job, RunIdsTile<Id>* tiles, RunParts& shared) {
    FourLetters four(job);
    RunStates states(job);
    uint32_t seen = 0, warp = threadIdx.x / 32;
    RunIdsTile<Id>& tile = tiles[warp];
    load_singles(job, tile.singles);
    while (true) {
        if (threadIdx.x == 0) shared.number = static_cast<uint32_t>(atomic_add(states.taken, 1));
        __syncthreads();
        if (shared.number >= run_blocks(job)) break;
        uint32_t number = shared.number * PART_TILES + warp, begin = number * KMER_TILE;
        bool has_tile = number < run_tiles(job);
        uint64_t row = has_tile ? load_run_tile(job, four, job.letter_table, begin, tile, seen) : 0;
        uint32_t count = has_tile ? find_few_runs(tile, begin) : 0;
        RunPart own = {NO_BREAK, 0, 0, BASE};
        if (count) own = part_of_few_runs(job, four, tile, begin, count);
        else if (has_tile) own = part_of_tile(job, four, job.letter_table, tile, begin);
        if ((threadIdx.x & 31) == 0) shared.tiles[warp] = own;
        __syncthreads();
        if (warp == 0) publish_runs(job, four, states, shared);
        __syncthreads();
        if (has_tile) write_run_tile(job, four, tile, begin, row, part_before_tile(job, four, shared), count);
        __syncthreads();
    }
    note_rare(job, seen);                  // Where plain kernels were not tried, nobody else has.
    wait_for_stores();
}
