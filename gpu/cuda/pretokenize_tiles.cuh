// The slow way of pretokenizing: tiles of text whose starts depend on far-away characters.
//
// A tile is *bad* when a chunk of it was not resolved, when nothing begins in it, or when the state
// behind it is not known. Three steps, each without cooperation and linear in the text:
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

// tile_state and tile_entry after the first pass: the state behind the second half of a tile and the
// first, with these flags. Then tile_state is the state behind a good tile, or UNRESOLVED, and
// tile_entry the state before a bad one.
constexpr uint32_t UNRESOLVED = 0x80, NO_STARTS = 0x40, STATE_MASK = 31;
constexpr uint32_t DROPPED = 0, COMMITTED = 1, PENDING = 2;
constexpr uint64_t NOWHERE = ~0ull;

DEVICE uint32_t state_of(uint32_t entry) { return (entry & STATE_BITS) >> STATE_SHIFT; }

// Whether the rule has pending places at all; kept in an entry that no state uses.
DEVICE bool has_marks(const uint32_t* entries) { return entries[ROW_STRIDE - 1] != 0; }

// The tile_state of a tile after map_tile: where the state behind it was not certain, a longer way
// back may tell it. The first pass need not, since it matters to a bad tile alone.
DEVICE uint32_t settled_state(const Job& job, const Reader& reader, uint32_t tile) {
    uint32_t either = job.tile_state[tile] | job.tile_entry[tile];
    uint32_t both = job.tile_state[tile] & job.tile_entry[tile];
    if ((either & UNRESOLVED) || ((both & NO_STARTS) && has_marks(reader.entries))) return UNRESOLVED;
    uint32_t state = job.tile_state[tile] & STATE_MASK;
    for (uint32_t distance = FIRST_LOOKBACK * 16; state >= job.num_states; distance *= 16) {
        if (distance > MAX_LOOKBACK) return UNRESOLVED;
        uint64_t end = (tile + 1ull) * TILE;
        if (end < reader.num_bytes) state = state_of(look_back(reader, end, distance));
        else return 0;  // No tile follows.
    }
    return state;
}

// A way through the text, sixteen bytes a time, from a place that is a multiple of sixteen.
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

    DEVICE_METHOD void read_four(const Reader& reader, uint32_t rows, uint32_t hard) {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            if (hard >> i & 1) read(reader, ROW_END);
            read(reader, byte_of(rows, i));
        }
    }

    DEVICE_METHOD void advance(const Reader& reader) {
        uint64_t rest = reader.num_bytes - place;
        uint32_t hard = hard_byte(reader, place) | hard_byte(reader, place + 8) << 8;
        uint4 rows = rows_at(reader, place, rest < 16 ? static_cast<uint32_t>(rest) : 16);
        read_four(reader, rows.x, hard);
        read_four(reader, rows.y, hard >> 4);
        read_four(reader, rows.z, hard >> 8);
        read_four(reader, rows.w, hard >> 12);
        if (rest <= 16) read(reader, ROW_END);
        place += 16;
    }
};

// Fills tile_function and tile_pending of one tile and one state. Once the pending place is decided,
// the bytes at the tile's end mostly tell the state behind it.
DEVICE void map_tile(const Job& job, const Reader& reader, uint32_t tile, uint32_t state) {
    Walk walk = {static_cast<uint64_t>(tile) * TILE, state << STATE_SHIFT, PENDING};
    uint64_t end = walk.place + TILE < reader.num_bytes ? walk.place + TILE : reader.num_bytes;
    while (walk.place < end && walk.outcome == PENDING) walk.advance(reader);
    if (walk.place < end && end % TILE == 0) {
        uint32_t entry = look_back(reader, end, FIRST_LOOKBACK * 16);
        if (state_of(entry) < job.num_states) walk = {end, entry, walk.outcome};
    }
    while (walk.place < end) walk.advance(reader);
    job.tile_function[tile * 32ull + state] = state_of(walk.entry);
    job.tile_pending[tile * 32ull + state] = walk.outcome;
}

// Whether a run of bad tiles begins with a tile; `entry` is then the state before it.
DEVICE bool run_begins(const Job& job, uint32_t tile, uint32_t& state) {
    if (job.tile_state[tile] != UNRESOLVED) return false;
    if (tile && job.tile_state[tile - 1] == UNRESOLVED) return false;
    state = tile ? job.tile_state[tile - 1] : 0;
    return true;
}

// Passes tiles that leave a state and a pending place as they are, several at once.
DEVICE bool pass_tiles(const Job& job, Walk& walk) {
    constexpr uint32_t AHEAD = 16;
    uint64_t tile = walk.place / TILE;
    uint32_t state = state_of(walk.entry), tiles = num_tiles(job), different = 0;
    if (tile + AHEAD > tiles) return false;
#pragma unroll
    for (uint32_t i = 0; i < AHEAD; i++) {
        uint64_t way = (tile + i) * 32 + state;
        different |= (job.tile_state[tile + i] ^ UNRESOLVED) | (job.tile_function[way] ^ state) |
                     (job.tile_pending[way] ^ PENDING);
    }
    if (different) return false;
    walk.place += AHEAD * TILE;
    return true;
}

// Where a place pending behind a tile is decided: whether a pretoken begins there.
DEVICE bool is_committed(const Job& job, const Reader& reader, uint32_t tile, uint32_t entry) {
    Walk walk = {(tile + 1ull) * TILE, entry, PENDING};
    if (walk.place >= reader.num_bytes) walk.read(reader, ROW_END);
    while (walk.outcome == PENDING && walk.place < reader.num_bytes) {
        uint64_t next = walk.place / TILE, way = next * 32 + state_of(walk.entry);
        if (walk.place % TILE || job.tile_state[next] != UNRESOLVED) {
            walk.advance(reader);
        } else if (!pass_tiles(job, walk)) {
            uint32_t after = job.tile_function[way];
            walk = {walk.place + TILE, after << STATE_SHIFT, job.tile_pending[way]};
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
        uint64_t starts = starts_inside(bits) | text_begins(reader, begin), place = begin + CHUNK;
        if (entry & OPEN_PREV) {
            bool ended;
            if (read_next(reader, place, entry, ended) & OUT_START_PREV)
                starts |= last_character(bits);
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
