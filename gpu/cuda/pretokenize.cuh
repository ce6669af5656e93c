// Where pretokens begin: one thread reads 64 bytes of text through its rule's automaton.
//
// Tables, states and outputs: gpu/automata.py. A thread starts a few bytes before its chunk, in the
// state ANYWHERE, and reads on behind it while a later character may still say that a pretoken began
// inside. What it cannot know after a bounded way is left to the slow way (pretokenize_tiles.cuh).
//
//     text     ...and the  end\n    x...
//     chunk          [he  end\n  ]           begins inside a word, ends inside white space
//     reads      d the  end\n    x           from before it to where "\n    " is decided
//     starts            ^^    ^ ^
//
// A byte 10xxxxxx is no character, but where a text begins. Bytes that are no UTF-8 are read as some
// character; none leads outside of the text and its padding.
#pragma once
#include "job.cuh"

constexpr uint32_t CHUNK = 64;             // Bytes of text a thread.
constexpr uint32_t MAX_RUN_ON = 256;       // Bytes that it reads behind them.
constexpr uint32_t FIRST_LOOKBACK = 8;     // Bytes that it reads before them; then 16 times as many.
constexpr uint32_t MAX_LOOKBACK = 2048;

constexpr uint32_t ROW_END = 128, ROW_STRIDE = 33, MAX_ROWS = ROW_END + 32, ANYWHERE = 31;
constexpr uint32_t OPEN_PREV = 1, OPEN_PENDING = 2, STATE_SHIFT = 2, STATE_BITS = 31 << STATE_SHIFT;
constexpr uint32_t AMBIGUOUS = 1 << 8, AMBIGUOUS_BEFORE = 1 << 9;
constexpr uint32_t OUT_START = 1 << 7, OUT_START_PREV = 1 << 15, OUT_MARK = 1 << 23;
constexpr uint32_t OUT_COMMIT = 1u << 31;
constexpr uint32_t OUTPUTS = OUT_START | OUT_START_PREV | OUT_MARK | OUT_COMMIT;

struct Reader {  // What every thread reads from.
    const uint8_t* text;
    uint64_t num_bytes;
    const uint64_t* hard;
    const uint32_t* entries;     // uint32[128 + classes][ROW_STRIDE], a copy in shared memory.
    const uint16_t* pages;
    const uint8_t* page_rows;
};

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

// The eight bits of a text's borders from `place` on, a multiple of 8.
DEVICE uint32_t hard_byte(const Reader& reader, uint64_t place) {
    return reinterpret_cast<const uint8_t*>(reader.hard)[place / 8];
}

DEVICE bool is_hard(const Reader& reader, uint64_t place) {
    return hard_byte(reader, place) >> (place % 8) & 1;
}

// The row of the character that begins at a place before num_bytes.
DEVICE uint32_t row_at(const Reader& reader, uint64_t place) {
    const uint32_t* words = reinterpret_cast<const uint32_t*>(reader.text) + place / 4;
    uint32_t bytes = shift_right(words[0], words[1], place % 4 * 8), first = bytes & 0xFF;
    if (first < 0x80) return first;
    uint32_t second = bytes >> 8 & 0x3F, third = bytes >> 16 & 0x3F, fourth = bytes >> 24 & 0x3F;
    uint32_t code_point = (first & 0x1F) << 6 | second;
    if (first >= 0xE0) code_point = (first & 0xF) << 12 | second << 6 | third;
    if (first >= 0xF0) code_point = (first & 0x7) << 18 | second << 12 | third << 6 | fourth;
    code_point = min_of(code_point, 0x10FFFF);
    return __ldg(reader.page_rows + (__ldg(reader.pages + (code_point >> 8)) << 8 | (code_point & 0xFF)));
}

// Bits of the bytes of a word that are 10xxxxxx.
DEVICE uint32_t inner_bytes(uint32_t word) {
    return ((word >> 7 & ~word >> 6 & 0x01010101) * 0x01020408) >> 24 & 0xF;
}

struct Eight {  // Bytes of text, the first `count` of them inside it, and the borders among them.
    uint64_t place;
    uint32_t low, high, count, hard;
};

// Reads up to eight bytes character by character. The bytes of the answer are one output each.
DEVICE uint32_t read_characters(const Reader& reader, const Eight& eight, uint32_t& entry,
                                uint32_t& doubt, uint32_t& inner) {
    uint32_t outputs = 0;
    inner = inner_bytes(eight.low) | inner_bytes(eight.high) << 4;
    uint32_t begins = (~inner | eight.hard) & ((1 << eight.count) - 1);
    for (; begins; begins &= begins - 1) {
        uint32_t i = lowest_bit(begins);
        if (eight.hard >> i & 1) {
            entry = step(reader.entries, ROW_END, entry);
            doubt |= entry;
            outputs |= (entry & OUTPUTS) >> (7 - i);
        }
        entry = step(reader.entries, row_at(reader, eight.place + i), entry);
        doubt |= entry;
        outputs |= (entry & OUTPUTS) >> (7 - i);
    }
    return outputs;
}

DEVICE uint32_t byte_of(uint32_t word, uint32_t i) {
#ifdef __CUDACC__
    return __byte_perm(word, 0, 0x4440 + i);
#else
    return word >> 8 * i & 0xFF;
#endif
}

// As read_characters, for eight ASCII characters without a border.
DEVICE uint32_t read_ascii(const Reader& reader, const Eight& eight, uint32_t& entry, uint32_t& doubt) {
    uint32_t outputs = 0;
#pragma unroll
    for (uint32_t i = 0; i < 8; i++) {
        entry = step(reader.entries, byte_of(i < 4 ? eight.low : eight.high, i % 4), entry);
        doubt |= entry;
        outputs = (outputs >> 1) + (entry & OUTPUTS);
    }
    return outputs;
}

DEVICE uint32_t read_eight(const Reader& reader, const Eight& eight, uint32_t& entry, uint32_t& doubt,
                           uint32_t& inner) {
    inner = 0;
    bool plain = !((eight.low | eight.high) & 0x80808080) && !eight.hard && eight.count == 8;
    if (plain) return read_ascii(reader, eight, entry, doubt);
    return read_characters(reader, eight, entry, doubt, inner);
}

// The state before a chunk, as an entry, from the bytes before it.
DEVICE uint32_t look_back(const Reader& reader, uint64_t begin, uint32_t distance) {
    uint64_t place = begin > distance ? begin - distance : 0;
    uint32_t entry = place ? ANYWHERE << STATE_SHIFT : 0, doubt = 0, inner;
    for (; place < begin; place += 8) {
        const uint32_t* words = reinterpret_cast<const uint32_t*>(reader.text + place);
        Eight eight = {place, words[0], words[1], 8, hard_byte(reader, place)};
        read_eight(reader, eight, entry, doubt, inner);
    }
    return entry;
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

// Reads a chunk from a state on; `entry` is then its last one.
DEVICE Outputs read_chunk(const Reader& reader, uint64_t begin, uint32_t& entry, uint32_t& doubt) {
    Outputs bits;
    const uint4* vectors = reinterpret_cast<const uint4*>(reader.text + begin);
    uint64_t hard = reader.hard[begin / CHUNK], rest = reader.num_bytes - begin;
    bool whole = rest >= CHUNK;
#pragma unroll 1
    for (uint32_t i = 0; i < CHUNK; i += 16, hard >>= 16) {
        uint4 vector = vectors[i / 16];
        Eight eights[2] = {{begin + i, vector.x, vector.y, 8, static_cast<uint32_t>(hard) & 0xFF},
                           {begin + i + 8, vector.z, vector.w, 8, static_cast<uint32_t>(hard) >> 8 & 0xFF}};
        bool ascii = !((vector.x | vector.y | vector.z | vector.w) & 0x80808080);
        if (ascii && whole && !(hard & 0xFFFF)) {
            append(bits, read_ascii(reader, eights[0], entry, doubt), 0);
            append(bits, read_ascii(reader, eights[1], entry, doubt), 0);
            continue;
        }
#pragma unroll 1
        for (uint32_t half = 0; half < 2; half++) {
            Eight eight = half ? eights[1] : eights[0];
            uint32_t first = i + half * 8, inner;
            if (!whole) eight.count = rest < first ? 0 : min_of(static_cast<uint32_t>(rest) - first, 8);
            uint32_t outputs = read_eight(reader, eight, entry, doubt, inner);
            append(bits, outputs, inner);
        }
    }
    return bits;
}

// The starts that a chunk's own outputs tell.
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
DEVICE uint32_t read_next(const Reader& reader, uint64_t& place, uint32_t entry, bool& ended) {
    while (place < reader.num_bytes && reader.text[place] >> 6 == 2 && !is_hard(reader, place)) place++;
    ended = place >= reader.num_bytes || is_hard(reader, place);
    entry = step(reader.entries, ended ? ROW_END : row_at(reader, place), entry);
    place++;
    return entry;
}

// The place of a chunk's last character.
DEVICE uint64_t last_character(const Reader& reader, uint64_t begin, const Outputs& bits) {
    uint64_t length = reader.num_bytes - begin, characters = ~bits.inner;
    if (length < CHUNK) characters &= (1ull << length) - 1;
    return characters ? 1ull << highest_bit(characters) : 0;
}

// Reads on behind a chunk while that may still tell starts inside; returns these.
DEVICE uint64_t run_on(const Reader& reader, uint64_t begin, const Outputs& bits, uint32_t entry,
                       uint32_t& doubt) {
    if (!(entry & (OPEN_PREV | OPEN_PENDING))) return 0;
    uint64_t place = begin + CHUNK, starts = 0;
    uint64_t marked = bits.mark && (entry & OPEN_PENDING) ? 1ull << highest_bit(bits.mark) : 0;
    bool ended;
    entry = read_next(reader, place, entry, ended);
    if (entry & OUT_START_PREV) starts = last_character(reader, begin, bits);
    while (true) {
        if (entry & AMBIGUOUS_BEFORE) doubt |= AMBIGUOUS;
        if (entry & OUT_COMMIT) return starts | marked;
        if (!marked || !(entry & OPEN_PENDING)) return starts;
        if (place > begin + CHUNK + MAX_RUN_ON) {
            doubt |= AMBIGUOUS;
            return starts;
        }
        entry = read_next(reader, place, entry, ended);
    }
}

// The starts of a chunk that begins at `begin`, a multiple of 64 before num_bytes. It is not resolved
// either where the state behind it is not certain but asked for, as one below `num_certain`.
DEVICE Chunk pretokenize_chunk(const Reader& reader, uint64_t begin, bool ask_state,
                               uint32_t num_certain) {
    Chunk chunk;
    bool text_begins = hard_byte(reader, begin) & 1;
    for (uint32_t distance = FIRST_LOOKBACK;; distance *= 16) {
        uint32_t doubt = 0;
        chunk.entry = text_begins ? 0 : look_back(reader, begin, distance);
        Outputs bits = read_chunk(reader, begin, chunk.entry, doubt);
        chunk.starts = starts_inside(bits) | run_on(reader, begin, bits, chunk.entry, doubt);
        bool certain = !ask_state || (chunk.entry & STATE_BITS) >> STATE_SHIFT < num_certain;
        chunk.resolved = !(doubt & AMBIGUOUS) && certain;
        if (chunk.resolved || distance == MAX_LOOKBACK || text_begins || distance >= begin) return chunk;
    }
}
