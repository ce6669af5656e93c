// Finds where pretokens begin: a thread runs the automaton of the pretokenizer over a chunk of 64 bytes of text, or in
// small batches over SIZE bytes of it, a multiple of 16.
//
// gpu/text/pretokenizer_automaton.py describes tables, states and outputs. A thread starts a few bytes before its
// chunk, in the state ANYWHERE, and reads on behind the chunk while a later character may still decide that a pretoken
// began inside. What a bounded number of bytes does not decide is left to the slow way
// (text/pretokenize/tile_maps.cuh).
//
//     text     ...and the  end\n    x...
//     chunk          [he  end\n  ]           begins inside a word, ends inside white space
//     reads      d the  end\n    x           from before it to where "\n    " is decided
//     starts            ^^    ^ ^
//
// Invariant: the set of states holds the true one, so that what all of its members say is true.
#pragma once
#include "text/pretokenize/character_classes.cuh"

namespace warptok::text {

constexpr uint32_t CHUNK = 64;             // Bytes of text a thread.
constexpr uint32_t FIRST_LOOKBACK = 8;     // Bytes that it reads before them; then 16 times as many.

struct Reach {  // Bytes that a thread reads at most: before its chunk, a power of 16 times FIRST_LOOKBACK, and behind.
    uint32_t before, behind;
};

// How far a thread reads; the slow way decides what needs more bytes. near_reach makes small batches faster and large
// ones slower, because the slow way reads bad tiles from every state.
DEVICE Reach far_reach() { return {2048, 256}; }
constexpr DEVICE Reach near_reach() { return {128, 112}; }

constexpr uint32_t ROW_STRIDE = 33;        // Entries from row to row: odd, so that threads in one state use all banks.
constexpr uint32_t ANYWHERE = 31;          // The state in which every state is possible.

// Bits of an entry, as gpu/text/pretokenizer_automaton.py has them: the state that follows, and what is known of it and
// of the step to it.
constexpr uint32_t OPEN_PREV = 1;          // OUT_START_PREV may still come,
constexpr uint32_t OPEN_PENDING = 2;       // or OUT_COMMIT, and no OUT_MARK before it.
constexpr uint32_t STATE_SHIFT = 2, STATE_BITS = 31 << STATE_SHIFT;
constexpr uint32_t AMBIGUOUS = 1 << 8;     // The outputs are not known, and 0 here.
constexpr uint32_t AMBIGUOUS_BEFORE = 1 << 9;  // Neither are those that concern earlier places.
constexpr uint32_t TOO_FAR = 1 << 10;      // In no entry: what decides is further than a thread's reach.
constexpr uint32_t OUT_START = 1 << 7;     // A pretoken begins here,
constexpr uint32_t OUT_START_PREV = 1 << 15;  // or at the character before,
constexpr uint32_t OUT_MARK = 1 << 23;     // or maybe here, which is then pending:
constexpr uint32_t OUT_COMMIT = 1u << 31;  // it did at the latest mark before.
constexpr uint32_t OUTPUTS = OUT_START | OUT_START_PREV | OUT_MARK | OUT_COMMIT;

struct Outputs {  // One bit a byte of a chunk.
    uint64_t start = 0, prev = 0, mark = 0, commit = 0;
    uint64_t inner = 0;          // Bytes that begin no character.
};

struct Chunk {
    uint64_t starts;
    uint32_t entry;              // The last entry read inside the chunk: its state.
    bool resolved;
};

// The entry that follows another one; of an entry only its state counts here.
DEVICE uint32_t step(const uint32_t* entries, uint32_t row, uint32_t entry) {
    const char* begin = reinterpret_cast<const char*>(entries);
    return *reinterpret_cast<const uint32_t*>(begin + row * (ROW_STRIDE * 4) + (entry & STATE_BITS));
}

// The result of reading: the last entry, all ambiguity flags so far, and the outputs of at most eight rows. Each output
// has a byte, whose top bit is that of the last row; the bits below are those of the rows before.
struct Trail {
    uint32_t entry, doubt, outputs;

    DEVICE_METHOD void read(const uint32_t* entries, uint32_t row) {
        entry = step(entries, row, entry);
        doubt |= entry;
        outputs = (outputs >> 1) + (entry & OUTPUTS);
    }

    DEVICE_METHOD void read_four(const uint32_t* entries, uint32_t rows) {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) read(entries, byte_of(rows, i));
    }

    // As read_four, with a text's end before the bytes that have a bit in `hard`.
    DEVICE_METHOD void read_borders(const uint32_t* entries, uint32_t rows, uint32_t hard) {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t ended = 0;
            if (hard >> i & 1) ended = entry = step(entries, ROW_END, entry);
            read(entries, byte_of(rows, i));
            doubt |= ended;
            outputs |= ended & OUTPUTS;
        }
    }
};

// The state before a place, a multiple of 8, as an entry, from at most `distance` bytes before it.
template <class Reader> DEVICE uint32_t look_back(const Reader& reader, uint64_t end, uint32_t distance) {
    uint64_t place = end > distance ? end - distance : 0;
    Trail trail = {place ? ANYWHERE << STATE_SHIFT : 0, 0, 0};
#pragma unroll 1
    for (; place < end; place += 8) {
        uint2 rows = eight_rows_at(reader, place);
        uint32_t hard = hard_byte(reader, place);
        if (hard) {
            trail.read_borders(reader.entries, rows.x, hard);
            trail.read_borders(reader.entries, rows.y, hard >> 4);
        } else {
            trail.read_four(reader.entries, rows.x);
            trail.read_four(reader.entries, rows.y);
        }
    }
    return trail.entry;
}

// Puts byte i of `outputs` behind the bits of a chunk: the last eight are the top ones.
DEVICE void append(uint64_t& bits, uint32_t outputs, uint32_t i) {
#ifdef __CUDACC__
    uint32_t low = static_cast<uint32_t>(bits), high = static_cast<uint32_t>(bits >> 32);
    low = shift_right(low, high, 8);
    bits = static_cast<uint64_t>(__byte_perm(high, outputs, 0x4321 + (i << 12))) << 32 | low;
#else
    bits = bits >> 8 | static_cast<uint64_t>(outputs >> 8 * i & 0xFF) << 56;
#endif
}

DEVICE void append(Outputs& bits, uint32_t outputs, uint32_t inner) {
    append(bits.start, outputs, 0);
    append(bits.prev, outputs, 1);
    append(bits.mark, outputs, 2);
    append(bits.commit, outputs, 3);
    append(bits.inner, inner, 0);
}

// The borders of texts from a place on, a multiple of 16.
template <uint32_t SIZE> DEVICE uint64_t hard_bits(const Reader& reader, uint64_t begin) {
    uint64_t hard = reader.hard[begin / CHUNK];
    return SIZE == CHUNK ? hard : hard >> begin % CHUNK;
}

// Outputs, moved down by COUNT bits.
template <uint32_t COUNT> DEVICE Outputs moved_down(const Outputs& bits) {
    return {bits.start >> COUNT, bits.prev >> COUNT, bits.mark >> COUNT, bits.commit >> COUNT, bits.inner >> COUNT};
}

// Reads a chunk from a state on; `entry` is then its last one. Bit 0 of the outputs is its first byte.
template <uint32_t SIZE = CHUNK, class Reader>
DEVICE Outputs read_chunk(const Reader& reader, uint64_t begin, uint32_t& entry, uint32_t& doubt) {
    Outputs bits;
    Trail trail = {entry, doubt, 0};
    uint64_t hard = hard_bits<SIZE>(reader, begin), rest = reader.num_bytes - begin;
    uint32_t length = rest < SIZE ? static_cast<uint32_t>(rest) : SIZE;
#pragma unroll 1
    for (uint32_t i = 0; i < SIZE; i += 16, hard >>= 16) {
        uint4 rows = rows_at(reader, begin + i, length < i ? 0 : min_of(length - i, 16));
        uint32_t inner = 0, borders = static_cast<uint32_t>(hard) & 0xFFFF, first;
        if ((rows.x | rows.y | rows.z | rows.w) & 0x80808080)
            inner = inner_bytes(rows.x) | inner_bytes(rows.y) << 4 | inner_bytes(rows.z) << 8 |
                    inner_bytes(rows.w) << 12;
        trail.outputs = 0;
        if (borders) {
            trail.read_borders(reader.entries, rows.x, borders);
            trail.read_borders(reader.entries, rows.y, borders >> 4);
            first = trail.outputs;
            trail.outputs = 0;
            trail.read_borders(reader.entries, rows.z, borders >> 8);
            trail.read_borders(reader.entries, rows.w, borders >> 12);
        } else {
            trail.read_four(reader.entries, rows.x);
            trail.read_four(reader.entries, rows.y);
            first = trail.outputs;
            trail.outputs = 0;
            trail.read_four(reader.entries, rows.z);
            trail.read_four(reader.entries, rows.w);
        }
        append(bits, first, inner);
        append(bits, trail.outputs, inner >> 8);
    }
    entry = trail.entry;
    doubt = trail.doubt;
    return moved_down<CHUNK - SIZE>(bits);
}

// Where texts begin in a chunk: pretokens begin there even if the text is none.
template <uint32_t SIZE = CHUNK> DEVICE uint64_t text_begins(const Reader& reader, uint64_t begin) {
    uint64_t hard = hard_bits<SIZE>(reader, begin) & (~0ull >> (64 - SIZE)), rest = reader.num_bytes - begin;
    return rest < SIZE ? hard & ((1ull << rest) - 1) : hard;
}

// The starts that a chunk's own outputs give.
DEVICE uint64_t starts_inside(const Outputs& bits) {
    uint64_t prev = bits.prev >> 1;
    for (uint32_t i = 0; i < 3; i++) {  // To the first byte of the character before.
        uint64_t inner = prev & bits.inner;
        prev = (prev ^ inner) | inner >> 1;
    }
    uint64_t starts = bits.start | prev;
    for (uint64_t commits = bits.commit; commits; commits &= commits - 1) {
        uint64_t marks = bits.mark & ((1ull << lowest_bit(commits)) - 1);
        if (marks) starts |= 1ull << highest_bit(marks);
    }
    return starts;
}

// Reads the next character behind `place`, or a text's end; `place` moves behind its first byte.
// `ended` is whether it was the end. The rest of a character is passed.
template <class Reader>
DEVICE uint32_t read_next(const Reader& reader, uint64_t& place, uint32_t entry, bool& ended) {
    while (place < reader.num_bytes && is_inner(reader, place) && !is_hard(reader, place)) place++;
    ended = place >= reader.num_bytes || is_hard(reader, place);
    entry = step(reader.entries, ended ? ROW_END : table_row_at(reader, place), entry);
    place++;
    return entry;
}

// Skips groups of four bytes that decide nothing, up to `end` at most.
template <class Reader>
DEVICE uint32_t pass_fours(const Reader& reader, uint64_t& place, uint64_t end, uint32_t entry, uint32_t& doubt) {
    for (; place + 4 <= end && place % 64 <= 60; place += 4) {
        uint32_t rows, after = entry, seen = 0, pending = OPEN_PENDING;
        if (!four_rows_at(reader, place, rows) || (reader.hard[place / 64] >> place % 64 & 0xF)) break;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            after = step(reader.entries, byte_of(rows, i), after);
            seen |= after;
            pending &= after;
        }
        if ((seen & OUT_COMMIT) || !pending) break;
        if (seen & AMBIGUOUS_BEFORE) doubt |= AMBIGUOUS;
        entry = after;
    }
    return entry;
}

// The bit of a chunk's last character.
template <uint32_t SIZE = CHUNK> DEVICE uint64_t last_character(const Outputs& bits) {
    uint64_t firsts = ~bits.inner & (~0ull >> (64 - SIZE));
    return firsts ? 1ull << highest_bit(firsts) : 0;
}

// Reads on behind a chunk while that may still give starts inside; returns these.
template <uint32_t SIZE, class Reader>
DEVICE uint64_t run_on(const Reader& reader, uint64_t begin, const Outputs& bits, uint32_t entry,
                       const Reach& reach, uint32_t& doubt) {
    if (!(entry & (OPEN_PREV | OPEN_PENDING))) return 0;
    uint64_t place = begin + SIZE, starts = 0, far = place + reach.behind;
    uint64_t marked = bits.mark && (entry & OPEN_PENDING) ? 1ull << highest_bit(bits.mark) : 0;
    bool ended;
    entry = read_next(reader, place, entry, ended);
    if (entry & OUT_START_PREV) starts = last_character<SIZE>(bits);
    while (true) {
        if (entry & AMBIGUOUS_BEFORE) doubt |= AMBIGUOUS;
        if (entry & OUT_COMMIT) return starts | marked;
        if (!marked || !(entry & OPEN_PENDING)) return starts;
        entry = pass_fours(reader, place, far < reader.num_bytes ? far : reader.num_bytes, entry, doubt);
        if (place > far) {
            doubt |= TOO_FAR;
            return starts;
        }
        entry = read_next(reader, place, entry, ended);
    }
}

// The starts of a chunk that begins at `begin`, a multiple of SIZE before num_bytes.
template <uint32_t SIZE = CHUNK, class Reader>
DEVICE Chunk pretokenize_chunk(const Reader& reader, uint64_t begin, const Reach& reach) {
    Chunk chunk;
    uint64_t borders = text_begins<SIZE>(reader, begin);
    for (uint32_t distance = FIRST_LOOKBACK;; distance *= 16) {
        uint32_t doubt = 0;
        chunk.entry = borders & 1 ? 0 : look_back(reader, begin, distance);
        Outputs bits = read_chunk<SIZE>(reader, begin, chunk.entry, doubt);
        bool is_last = (borders & 1) || distance >= begin || distance == reach.before;
        if (!is_last && (doubt & AMBIGUOUS)) continue;
        uint64_t seen_behind = run_on<SIZE>(reader, begin, bits, chunk.entry, reach, doubt);
        chunk.starts = borders | starts_inside(bits) | seen_behind;
        chunk.resolved = !(doubt & (AMBIGUOUS | TOO_FAR));
        if (is_last || !(doubt & AMBIGUOUS)) return chunk;
    }
}

}  // namespace warptok::text
