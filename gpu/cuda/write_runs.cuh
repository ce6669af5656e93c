// The ids of the runs of run_tiles.cuh, and where those of rows begin.
//
// A tile of one run, as most are, has ids of neighbouring k-mers, which are written 16 bytes at a time. All others
// are taken by parts of 1,024 letters, a lane a word of 32: its start bits, then the ids at these.
#pragma once
#include "run_tiles.cuh"

constexpr uint32_t FAR_AWAY = 64;          // Letters behind a word's first one, where no id of the word depends on it.

// The bits begin <= i < end of a word.
DEVICE uint32_t word_between(uint32_t begin, uint32_t end) {
    if (begin >= end) return 0;
    return (end < 32 ? 1u << end : 0) - (1u << begin);
}

// The start bits of the letters begin <= i < end of a word, all of one run of the class BASE.
DEVICE uint32_t starts_in_run(const Job& job, const FourLetters& four, uint32_t first, uint32_t run, uint32_t begin,
                              uint32_t end, uint32_t behind) {
    uint32_t starts = 0, phase = (first + begin - run) % four.stride, kmers_end = behind < four.k ? 0 : behind - four.k + 1;
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
    for (uint32_t at = 0, end; at < count; at = end) {
        if (breaks >> at & 1) run = first + at;
        uint32_t later = at < 31 ? breaks >> (at + 1) : 0, behind = next ? 32 + lowest_bit(next) : FAR_AWAY;
        if (later) behind = at + 1 + lowest_bit(later);
        end = min_of(behind, count);
        if (is_base(tile, 32 * word + at)) starts |= starts_in_run(job, four, first, run, at, end, behind);
        else if (run == first + at && class_of(table[four.text[run]]) != SPACE) starts |= 1u << at;
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
            if (row + lane < job.num_rows) refuse_row(job, row + lane);
        }
        uint32_t here = count_bits(__ballot_sync(ALL_LANES, place < end));
        row += here;
        if (here < 32) return row;
    }
}

// The ids of a tile with breaks, of which the first one is number `place`.
template <class Id>
DEVICE void write_parts(const Job& job, const FourLetters& four, const uint32_t* table, RunTile& tile, uint32_t begin,
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

// The ids of a tile of k-mers of one run that began with letter `run`.
template <class Id, uint32_t STRIDE>
DEVICE void write_one_run(const Job& job, const FourLetters& four, const RunTile& tile, uint32_t begin, uint32_t run,
                          uint32_t place) {
    constexpr uint32_t ITEMS = 16 / sizeof(Id);
    uint32_t number = (begin - run + four.stride - 1) / four.stride, lane = threadIdx.x & 31;
    uint32_t end = place + (begin + KMER_TILE - run + four.stride - 1) / four.stride - number;
    uint32_t at = run + number * four.stride - begin + AROUND;  // The first id's letter.
    uint32_t first = min_of((place + ITEMS - 1) / ITEMS * ITEMS, end), last = first + (end - first) / ITEMS * ITEMS;
    Id* out = ids_out<Id>(job);
    for (uint32_t id = first + lane * ITEMS; id < last; id += 32 * ITEMS)
        write_vector<Id, STRIDE>(four, tile, false, at + (id - place) * four.stride, out + id);
    uint32_t single = lane < ITEMS ? place + lane : last + lane - ITEMS;
    if (single < (lane < ITEMS ? first : end) && lane < 2 * ITEMS)
        out[single] = static_cast<Id>(read_id(four, tile, false, at + (single - place) * four.stride));
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

template <class Id>
DEVICE void write_runs_stage(const Job& job, RunTile* tiles, uint32_t block, uint32_t num_blocks) {
    FourLetters four(job);
    const uint32_t* table = job.letter_table;
    RunTile& tile = tiles[threadIdx.x / 32];
    uint32_t seen = 0, warps = num_blocks * (BLOCK / 32);
    for (uint32_t number = block * (BLOCK / 32) + threadIdx.x / 32; number < run_tiles(job); number += warps) {
        uint32_t begin = number * KMER_TILE, run = job.letter_tiles[number];
        uint64_t row = load_run_tile(job, four, table, begin, tile, seen);
        uint32_t end = tile.any_breaks ? first_break_of(tile, begin) : NO_BREAK;
        uint32_t place = job.letter_tile_ids[number] + ids_of_run(job, four, table, run, end, begin - run);
        if (end != NO_BREAK) write_parts<Id>(job, four, table, tile, begin, row, run, place);
        else if (!is_base(tile, 0)) continue;
        else if (four.stride == BY_SIX) write_one_run<Id, BY_SIX>(job, four, tile, begin, run, place);
        else write_one_run<Id, ANY_STRIDE>(job, four, tile, begin, run, place);
        __syncwarp();
    }
}
