// One thread finds the last token of every prefix of one window, and from these its path.
//
// Every place has exactly one last token. It is the token that ends there and may follow the last token of the place
// where it begins (docs/internals/dna-bpe.md). So no place is a dead end, and no token is removed again as in the walk,
// which tries the longest token first (dna/windows/walk.cuh). The window's path is read backwards from its end:
//
//     text          a a b          tokens a b aa ab, merges (a, b) (a, a)
//     last tokens   a aa ab        aa may stand alone; ab may follow the a of place 1
//     path          a ab           back from place 3 by two letters, then by one
//
// The latest letters mostly leave one or two possible tokens (dna/windows/suffix_state.cuh). The lanes of a warp handle
// the same letter of their windows at the same time. The lengths of last tokens lie in the memory of the ids: four bits
// for each place, 0 for gaps. Lengths from LONG_LENGTH on are bytes behind these.
//
// Windows with mixed letters are deferred to the walk. So are windows with many listed tokens, because the walk first
// tries a token that the text repeats.
//
// Invariant: each window has its path in window_bits, or is in deferred_windows once.
#pragma once
#include "dna/windows/suffix_state.cuh"

namespace warptok::dna {

constexpr uint32_t LONG_LENGTH = 15;

constexpr uint32_t STEP = 4;               // Places that a thread handles at a time.
constexpr uint32_t OFTEN_BEFORE = 3;       // How often most warps look up more letters.

// A window's prefix: the figures that are kept of it, and its latest sixteen letters.
struct Prefix {
    uint32_t place;                        // Its letters.
    uint32_t slot;                         // Of its last token.
    uint32_t border;                       // The last certain one.
    uint32_t codes, certain;
    uint32_t listed;                       // Places where tokens were listed, see ClassRing,
    uint32_t last_listed;                  // and the last one.
};

// Bits of the places that are at most LETTERS letters behind a place of `bits`.
template <uint32_t LETTERS>
DEVICE uint32_t spread(uint32_t bits) {
#pragma unroll
    for (uint32_t done = 0; done < LETTERS;) {
        uint32_t more = min_of(done + 1, LETTERS - done);
        bits |= bits << more;
        done += more;
    }
    return bits;
}

// The next letters of a window: codes from the lowest bits on, certain borders and gaps.
struct NextLetters {
    uint32_t codes, certain, gaps;
};

// Counts the letters behind the last certain border at each of the next places; BEHIND_FAR where they are many.
DEVICE void count_behind(Prefix& prefix, NextLetters next, uint32_t near, uint32_t* behind) {
#pragma unroll
    for (uint32_t i = 0; i < STEP; i++) {
        uint32_t place = prefix.place + i + 1;
        if (next.certain >> i & 1) prefix.border = place - !(next.gaps >> i & 1);
        behind[i] = near >> i & 1 ? place - prefix.border : BEHIND_FAR;
    }
}

// Looks up two more letters, several times, for those of STEP places that are open; returns whether any stays open.
template <uint32_t FIRST, uint32_t LAST, class Ring>
DEVICE bool look_before(const ForwardTables<Ring>& tables, const uint32_t* codes, const uint32_t* behind,
                        Remaining* remaining) {
#pragma unroll
    for (uint32_t more = FIRST; more <= LAST; more++) {
        if (more > tables.levels) break;
#pragma unroll
        for (uint32_t i = 0; i < STEP; i++)
            if (remaining[i].is_open() && behind[i] >= tables.k + BEFORE_LETTERS * more)
                remaining[i] =
                    tables.by_letters_before(remaining[i], codes[i], 32 - 2 * tables.k - 2 * BEFORE_LETTERS * more);
    }
    bool is_open = false;
#pragma unroll
    for (uint32_t i = 0; i < STEP; i++) is_open |= remaining[i].is_open();
    return is_open;
}

// Returns the lengths of the last tokens at the next STEP places, four bits each. The ring holds the left classes of
// the last tokens at all places up to the prefix's, and then also at these places. A certain border has class 0, which
// every token may follow.
//
// The first of two tokens is tested at the place where it begins. Tests at places in front of these STEP places are
// made together; the other tests follow one by one, as soon as the place is known:
//
//     place          p      p + 1  p + 2  p + 3  p + 4      the prefix has p letters
//     first tokens   |--2 letters--|                         of p + 2: begins at p, tested at once
//                           |--2 letters--|                  of p + 3: begins at p + 1, tested when that is known
template <class Ring, class NoteLong>
DEVICE uint32_t extend_prefix(const Job& job, const ForwardTables<Ring>& tables, uint64_t begin, Prefix& prefix,
                              NextLetters next, NoteLong note_long) {
    uint32_t certain = prefix.certain | next.certain << 16, lengths = 0, codes[STEP];
    uint32_t near = spread<MOST_LOOKED - 2>(certain) >> 16 & ((1u << STEP) - 1);
    uint32_t border = prefix.border, behind[STEP];
    Remaining remaining[STEP];
    bool may[STEP];                        // The first of two tokens is the last one.
#pragma unroll
    for (uint32_t i = 0; i < STEP; i++) behind[i] = BEHIND_FAR;
    if (near) count_behind(prefix, next, near, behind);
    if (next.certain & 1) tables.ring.at(prefix.slot) = 0;
#pragma unroll
    for (uint32_t i = 0; i < STEP; i++) {  // The tokens that the letters behind the last border leave.
        codes[i] = shift_right(prefix.codes, next.codes, 2 * (i + 1));
        remaining[i] = behind[i] < tables.k ? tables.by_short_text(codes[i], behind[i]) : tables.by_letters(codes[i]);
    }
    bool is_open = look_before<1, OFTEN_BEFORE>(tables, codes, behind, remaining);
    if (Ring::LEVELS > OFTEN_BEFORE && is_open)
        look_before<OFTEN_BEFORE + 1, Ring::LEVELS>(tables, codes, behind, remaining);
#pragma unroll
    for (uint32_t i = 0; i < STEP; i++) {  // Tests that need none of these places.
        uint32_t slot = prefix.slot + (i + 1) * Ring::ROW, first = remaining[i].first_length();
        may[i] = !remaining[i].is_either() || first <= i || tables.may_end(slot, first, remaining[i].x >> 16);
    }
#pragma unroll
    for (uint32_t i = 0; i < STEP; i++) {  // All others, place by place.
        prefix.place++;
        prefix.slot += Ring::ROW;
        uint32_t x = remaining[i].x, y = remaining[i].y, first = remaining[i].first_length();
        if (i && next.certain >> i & 1) tables.ring.at(prefix.slot - Ring::ROW) = 0;
        if (remaining[i].is_either() && first <= i) may[i] = tables.may_end(prefix.slot, first, x >> 16);
        LastToken last = {may[i] ? x : y, y >> (may[i] ? 16 : 20) & 15};
        if (remaining[i].is_open()) {
            bool is_near = behind[i] != BEHIND_FAR;
            uint32_t most = is_near ? behind[i] : prefix.place - border;
            last = last_of_listed(job, tables, begin + prefix.place, prefix.slot, most, remaining[i].first_listed());
            bool is_run = prefix.place == prefix.last_listed + 1;
            prefix.listed += is_near ? 0 : is_run ? Ring::LISTED_NEIGHBOUR : 1;
            prefix.last_listed = prefix.place;
            if (last.length >= LONG_LENGTH) note_long(prefix.place, last.length);
        }
        tables.ring.at(prefix.slot) = static_cast<uint16_t>(last.left);
        lengths |= min_of(last.length, LONG_LENGTH) << 4 * i;
    }
    prefix.codes = codes[STEP - 1];
    prefix.certain = certain >> STEP;
    return lengths;
}

// The place of the lengths of a window's last tokens in the memory of the ids.
template <uint32_t CHUNK>
struct Lengths {
    static constexpr uint32_t WORDS = Window<CHUNK>::LIMIT / 8;
    uint32_t* words;                       // Of 8 places, [WORDS][windows].
    uint8_t* longs;                        // [LIMIT][windows].
    uint32_t stride;

    DEVICE_METHOD Lengths(const Job& job, uint32_t window) : stride(num_windows<CHUNK>(job)) {
        words = reinterpret_cast<uint32_t*>(job.answer.ids) + window;
        longs = reinterpret_cast<uint8_t*>(words - window + static_cast<uint64_t>(WORDS) * stride) + window;
    }
    DEVICE_METHOD uint32_t& word(uint32_t number) const { return words[static_cast<uint64_t>(number) * stride]; }
    DEVICE_METHOD uint8_t& long_at(uint32_t place) const { return longs[static_cast<uint64_t>(place - 1) * stride]; }
};

// Finds the last tokens of a window's prefixes; those behind `limit` have no meaning. Returns false where too many
// tokens were listed.
template <uint32_t CHUNK, class Ring>
DEVICE bool find_last_tokens(const Job& job, const ForwardTables<Ring>& tables, uint64_t begin, uint32_t limit,
                             const Lengths<CHUNK>& lengths) {
    const BaseWord* words = job.dna.base_words + begin / 16;
    Prefix prefix = {0, 2 * threadIdx.x, 0, 0, 0, 0, 0};
    BaseWord next = words[0];
    next.flags |= 1;                       // Nothing before the window counts.
    for (uint32_t number = 0; 16 * number < limit && prefix.listed <= Ring::template MOST_LISTED<CHUNK>; number++) {
        BaseWord word = next;
        if (16 * number + 16 < limit) next = words[number + 1];
        uint64_t found = 0;
#pragma unroll 1
        for (uint32_t i = 0; i < 16; i += STEP) {
            NextLetters letters = {word.codes, word.flags & ((1u << STEP) - 1), word.flags >> 16};
            uint32_t some = extend_prefix(job, tables, begin, prefix, letters,
                                          [&](uint32_t place, uint32_t length) { lengths.long_at(place) = length; });
            found = found >> 4 * STEP | static_cast<uint64_t>(some) << (64 - 4 * STEP);
            word = {word.codes >> 2 * STEP, word.flags >> STEP};
        }
        lengths.word(2 * number) = static_cast<uint32_t>(found);
        lengths.word(2 * number + 1) = static_cast<uint32_t>(found >> 32);
    }
    return prefix.listed <= Ring::template MOST_LISTED<CHUNK>;
}

// A path that is read off from its end.
struct PathBack {
    uint32_t place;
    uint32_t is_border;                    // A token begins here, no gap.
};

// Goes back through the eight places behind `first`; returns the borders among them, each as bit (place - 1) % 32.
template <class LongAt>
DEVICE uint32_t borders_back(PathBack& path, uint32_t first, uint32_t lengths, LongAt long_at) {
    uint32_t borders = 0;
    while (path.place > first) {
        uint32_t before = path.place - 1, length = lengths >> 4 * (before % 8) & 15;
        borders |= path.is_border << before % 32;
        if (length == LONG_LENGTH) length = long_at(path.place);
        path.is_border = length != 0;
        path.place -= length ? length : 1;
    }
    return borders;
}

// Writes the borders of the path that ends at place `limit` of a window.
template <uint32_t CHUNK>
DEVICE void write_path_back(const Job& job, uint32_t window, uint32_t limit, const Lengths<CHUNK>& lengths) {
    constexpr uint32_t LAST = Window<CHUNK>::LIMIT / 32;
    uint32_t windows = num_windows<CHUNK>(job), behind = 0;
    uint32_t* bits = job.dna.window_bits + window;
    PathBack path = {limit, 1};
    for (uint32_t word = LAST + 1; word < Window<CHUNK>::WORDS; word++) bits[static_cast<uint64_t>(word) * windows] = 0;
    for (uint32_t word = LAST; word > 0; word--) {
        uint32_t borders = 0;
#pragma unroll
        for (uint32_t i = 4; i-- > 0;) {
            uint32_t number = 4 * (word - 1) + i;
            borders |= borders_back(path, 8 * number, lengths.word(number),
                                    [&](uint32_t place) { return lengths.long_at(place); });
        }
        bits[static_cast<uint64_t>(word) * windows] = behind << 1 | borders >> 31;
        behind = borders;
    }
    bits[0] = behind << 1 | path.is_border;
}

// Writes a window's borders; returns false if the window is deferred to the walk.
template <uint32_t CHUNK, class Ring>
DEVICE bool forward_window(const Job& job, const ForwardTables<Ring>& tables, uint32_t window) {
    if (has_mixed<CHUNK>(job, window)) return false;
    uint64_t begin = static_cast<uint64_t>(window) * CHUNK, left = job.batch.num_bytes - begin;
    uint32_t limit = left < Window<CHUNK>::LIMIT ? static_cast<uint32_t>(left) : Window<CHUNK>::LIMIT;
    Lengths<CHUNK> lengths(job, window);
    if (!find_last_tokens<CHUNK>(job, tables, begin, limit, lengths)) return false;
    write_path_back<CHUNK>(job, window, limit, lengths);
    return true;
}

// Finds the paths of all windows, a thread a window; a warp claims the next windows when it is done. Where there are
// fewer windows than threads, all warps have equally many, so that fewer lanes wait for each other.
template <uint32_t CHUNK, class Ring>
DEVICE void forward_windows_stage(const Job& job, const ForwardTables<Ring>& tables, uint32_t block,
                                  uint32_t num_blocks) {
    uint32_t windows = num_windows<CHUNK>(job), lane = threadIdx.x & 31, warps = blockDim.x / 32 * num_blocks;
    uint32_t lanes = min_of((windows + warps - 1) / warps, 32);
    for (uint32_t first = lanes * (threadIdx.x / 32 * num_blocks + block); first < windows;) {
        uint32_t window = first + lane;
        if (lane < lanes && window < windows && !forward_window<CHUNK>(job, tables, window))
            job.dna.deferred_windows[atomicAdd(job.dna.num_deferred, 1u)] = window;
        uint32_t ticket = lane == 0 ? atomicAdd(job.dna.window_tickets, lanes) : 0;
        first = __shfl_sync(ALL_LANES, ticket, 0) + lanes * warps;
    }
}

}  // namespace warptok::dna
