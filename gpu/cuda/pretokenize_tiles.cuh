// The slow way of pretokenizing: tiles of text whose starts depend on far-away characters.
//
// A tile is *bad* when a chunk of it was not resolved, when the state behind it is not certain, or
// when nothing begins in it. Three steps, each without cooperation and linear in the text:
//
//     map_tile    from every certain state before a bad tile: the state behind it, and whether a
//                 pending place from before is committed, dropped or still pending there
//     enter_run   follows these maps over neighbouring bad tiles, from the good tile before them on
//     redo_tile   reads a bad tile again from its state, known now, and follows a place that is
//                 pending at its end to where that is decided
//
// The last walks through at most one tile's worth of bytes besides the maps: behind a start nothing
// stays pending, and a good tile has a start.
#pragma once
#include "pretokenize.cuh"

// tile_state and tile_entry of the first pass: the state behind the second half of a tile and the
// first, with these flags. Of a bad tile, tile_state is then UNRESOLVED and tile_entry its state.
constexpr uint32_t UNRESOLVED = 0x80, NO_STARTS = 0x40, STATE_MASK = 31;
constexpr uint32_t DROPPED = 0, COMMITTED = 1, PENDING = 2;
constexpr uint64_t NOWHERE = ~0ull;

DEVICE uint32_t state_of(uint32_t entry) { return (entry & STATE_BITS) >> STATE_SHIFT; }

// Whether the rule has pending places at all; kept in an entry that no state uses.
DEVICE bool has_marks(const uint32_t* entries) { return entries[ROW_STRIDE - 1] != 0; }

DEVICE bool is_bad(const Job& job, const uint32_t* entries, uint32_t tile) {
    uint32_t both = job.tile_state[tile] & job.tile_entry[tile];
    if ((job.tile_state[tile] | job.tile_entry[tile]) & UNRESOLVED) return true;
    return (both & NO_STARTS) && has_marks(entries);
}

// Reads one character of a tile, or a text's end and the character behind it.
struct Walk {
    uint64_t place;
    uint32_t entry, outcome;

    // A step, and what it does to a place that was pending before the walk.
    DEVICE_METHOD void read(const Reader& reader, uint32_t row) {
        entry = step(reader.entries, row, entry);
        if (outcome != PENDING) return;
        if (entry & OUT_COMMIT) outcome = COMMITTED;
        else if (!(entry & OPEN_PENDING)) outcome = DROPPED;
    }

    DEVICE_METHOD void advance(const Reader& reader) {
        bool border = is_hard(reader, place);
        if (border) read(reader, ROW_END);
        if (border || reader.text[place] >> 6 != 2) read(reader, row_at(reader, place));
        place++;
        if (place == reader.num_bytes) read(reader, ROW_END);
    }
};

// Fills tile_function and tile_pending of one tile and one state.
DEVICE void map_tile(const Job& job, const Reader& reader, uint32_t tile, uint32_t state) {
    Walk walk = {static_cast<uint64_t>(tile) * TILE, state << STATE_SHIFT, PENDING};
    uint64_t end = walk.place + TILE < reader.num_bytes ? walk.place + TILE : reader.num_bytes;
    while (walk.place < end) walk.advance(reader);
    job.tile_function[tile * 32ull + state] = state_of(walk.entry);
    job.tile_pending[tile * 32ull + state] = walk.outcome;
}

// Whether a run of bad tiles begins with a tile; `entry` is then the state before it.
DEVICE bool run_begins(const Job& job, uint32_t tile, uint32_t& state) {
    if (!(job.tile_state[tile] & UNRESOLVED)) return false;
    if (tile && (job.tile_state[tile - 1] & UNRESOLVED)) return false;
    state = tile ? job.tile_state[tile - 1] & STATE_MASK : 0;
    return true;
}

// Where a place pending behind a tile is decided: whether a pretoken begins there.
DEVICE bool is_committed(const Job& job, const Reader& reader, uint32_t tile, uint32_t entry) {
    Walk walk = {(tile + 1ull) * TILE, entry, PENDING};
    if (walk.place >= reader.num_bytes) return step(reader.entries, ROW_END, entry) & OUT_COMMIT;
    while (walk.outcome == PENDING && walk.place < reader.num_bytes) {
        uint64_t next = walk.place / TILE;
        if (walk.place % TILE == 0 && (job.tile_state[next] & UNRESOLVED)) {
            uint64_t way = next * 32 + state_of(walk.entry);
            walk = {walk.place + TILE, uint32_t(job.tile_function[way]) << STATE_SHIFT, job.tile_pending[way]};
        } else {
            walk.advance(reader);
        }
    }
    return walk.outcome == COMMITTED;
}

// Writes the starts of a tile that is read from `state` on.
DEVICE void redo_tile(const Job& job, const Reader& reader, uint32_t tile, uint32_t state) {
    uint64_t begin = static_cast<uint64_t>(tile) * TILE, pending = NOWHERE;
    uint32_t entry = state << STATE_SHIFT, doubt = 0;
    for (uint32_t i = 0; i < WORDS_A_TILE && begin < reader.num_bytes; i++, begin += CHUNK) {
        Outputs bits = read_chunk(reader, begin, entry, doubt);
        uint64_t starts = starts_inside(bits), place = begin + CHUNK;
        if (entry & OPEN_PREV) {
            bool ended;
            if (read_next(reader, place, entry, ended) & OUT_START_PREV)
                starts |= last_character(reader, begin, bits);
        }
        job.starts[begin / 64] = starts;
        uint64_t before_mark = bits.mark ? (bits.mark & -bits.mark) * 2 - 1 : ~0ull;
        if (pending != NOWHERE && (bits.commit & before_mark))
            job.starts[pending / 64] |= 1ull << pending % 64;
        if (bits.mark) pending = begin + highest_bit(bits.mark);
        if (!(entry & OPEN_PENDING)) pending = NOWHERE;
    }
    if (pending != NOWHERE && is_committed(job, reader, tile, entry))
        job.starts[pending / 64] |= 1ull << pending % 64;
}
