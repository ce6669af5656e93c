// The state of a walk through a window: the borders of the path, its latest tokens, and the dead places.
//
// The latest three tokens are kept with their records, so that removing one takes no look-up.
//
//     text     a a b a        tokens a b aa ab          dead    . . 1 . .
//     path     a ab           place 3, root 0           borders 1 1 . . .
//     tokens   ab, a, FORGOTTEN
#pragma once
#include "dna/tokens.cuh"

namespace warptok::dna {

constexpr uint32_t WALKERS = 128;          // Threads of a block that walk: eight blocks a multiprocessor.
constexpr uint32_t OVERLAP = 64;
constexpr uint32_t NO_BORDER = 0xFFFFFFFF;
constexpr uint32_t FORGOTTEN = 0xFFFE;     // A token of the path that is not in a register any more.
static_assert(OVERLAP >= MAX_LETTERS, "chunks meet in the 64 letters behind their border");

template <uint32_t CHUNK>
struct Window {
    static constexpr uint32_t LIMIT = CHUNK + OVERLAP;             // Tokens begin before it ...
    static constexpr uint32_t WORDS = (LIMIT + MAX_LETTERS) / 32;  // ... and end before this.
};

// Two bits for each place of a window, one column of words for each thread.
struct Columns {
    uint32_t* borders;                     // A token of the path begins here.
    uint32_t* dead;                        // No path leads on from here.
    uint32_t stride;
};

DEVICE uint32_t& word_of(uint32_t* column, const Columns& columns, uint32_t place) {
    return column[place / 32 * columns.stride];
}

template <uint32_t CHUNK>
DEVICE void clear_columns(const Columns& columns) {
    for (uint32_t i = 0; i < Window<CHUNK>::WORDS; i++)
        columns.borders[i * columns.stride] = columns.dead[i * columns.stride] = 0;
}

// The last border before a place; NO_BORDER where there is none.
DEVICE uint32_t border_before(const Columns& columns, uint32_t place) {
    uint32_t word = place / 32, bits = word_of(columns.borders, columns, place) & ((1u << place % 32) - 1);
    while (!bits && word) bits = columns.borders[--word * columns.stride];
    return bits ? word * 32 + highest_bit(bits) : NO_BORDER;
}

// The begin of a walk: a place of the window, and the token in front of it, which is NO_TOKEN where any token may
// begin. `is_tried`: any token may begin there; the token in front is tried first where the text repeats it.
struct WalkBegin {
    uint32_t place, token;
    bool is_tried;
};

// A token of the path: its record, with the id where the right class was.
struct PathToken {
    uint64_t bits;

    DEVICE_METHOD uint32_t length() const { return length_of(bits); }
    DEVICE_METHOD uint32_t shorter() const { return shorter_of(bits); }
    DEVICE_METHOD uint32_t left() const { return left_class(bits); }
    DEVICE_METHOD uint32_t id() const { return right_class(bits); }
};

DEVICE PathToken path_token(uint32_t token, uint64_t record) {
    constexpr uint64_t BELOW = (1ull << RIGHT_SHIFT) - 1;
    return {(record & BELOW) | static_cast<uint64_t>(token) << RIGHT_SHIFT};
}

DEVICE PathToken path_token(const Job& job, uint32_t token) {
    return path_token(token, token < FORGOTTEN ? job.dna.dna_tokens[token] : 0);
}

// The path while it is walked. `tokens` are its last ones, the latest first.
struct Path {
    uint32_t place, root;
    PathToken root_token, tokens[3];
};

DEVICE void begin_path(const Job& job, Path& path, uint32_t place, uint32_t token) {
    path.place = path.root = place;
    path.root_token = path.tokens[0] = path_token(job, token);
    path.tokens[1] = path.tokens[2] = path_token(job, FORGOTTEN);
}

DEVICE void begin_path(const Job& job, Path& path, WalkBegin from) {
    begin_path(job, path, from.place, from.token);
    if (from.is_tried) path.tokens[0].bits &= ~(0xFFFFull << LEFT_SHIFT);  // Class 0, which every token may follow.
    path.root_token = path.tokens[0];
}

DEVICE void push_token(Path& path, const Columns& columns, PathToken token) {
    word_of(columns.borders, columns, path.place) |= 1u << path.place % 32;
    path.tokens[2] = path.tokens[1];
    path.tokens[1] = path.tokens[0];
    path.tokens[0] = token;
    path.place += token.length();
}

// Removes the latest token, as no path leads on from behind it, and returns it.
DEVICE PathToken pop_token(const Job& job, const Columns& columns, uint64_t begin, Path& path) {
    word_of(columns.borders, columns, path.place) &= ~(1u << path.place % 32);
    word_of(columns.dead, columns, path.place) |= 1u << path.place % 32;
    PathToken last = path.tokens[0];
    path.place -= last.length();
    path.tokens[0] = path.tokens[1];
    path.tokens[1] = path.tokens[2];
    path.tokens[2] = path_token(job, FORGOTTEN);
    if (path.place == path.root) path.tokens[0] = path.root_token;
    else if (path.tokens[0].id() == FORGOTTEN)
        path.tokens[0] = path_token(job, token_of(job, begin + border_before(columns, path.place), begin + path.place));
    return last;
}

}  // namespace warptok::dna
