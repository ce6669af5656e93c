// One thread finds the last token of every prefix of one window, and from these its path.
//
// Every place has one last token: of the tokens that end there the one that may follow the last token of
// the place where it begins (gpu/DNA.md). So no place is a dead end and nothing is taken back, as it is
// where the longest token is tried first from left to right (dna_walk.cuh). The window's path is read
// off its end:
//
//     text          a a b          tokens a b aa ab, merges (a, b) (a, a)
//     last tokens   a aa ab        aa may stand alone; ab may follow the a of place 1
//     path          a ab           back from place 3 by two letters, then by one
//
// A token of the last k letters that most texts with these end with is tried first, then all from the
// longest on; the very last one is not asked, as one of them is right. The lanes of a warp take sixteen
// letters each and wait for each other. Lengths lie where the ids will be: four bits for each place, 0
// for gaps; those of LONG_LENGTH on in bytes behind all these.
//
// For vocabularies without mixed letters, of tokens of up to RING letters (dna_forward.py).
#pragma once
#include "dna_stitch.cuh"

constexpr uint32_t FORWARD_THREADS = 1024; // Of a block, one a multiprocessor.
constexpr uint32_t FORWARD_IDS = 4096;     // At most.
constexpr uint32_t FORWARD_K = 7;          // Letters that `ending_longest` is indexed by, at most,
constexpr uint32_t BEFORE_LETTERS = 2;     // and those before them, `ending_longer`.
constexpr uint32_t RING = 32;              // Letters of a token, at most.
constexpr uint32_t LONG_LENGTH = 15;

// A token of those that end at a place.
struct Ending {
    uint32_t chain;                        // length | the longest shorter one << 8
    uint32_t classes;                      // left | right << 16

    DEVICE_METHOD uint32_t length() const { return chain & 0xFF; }
    DEVICE_METHOD uint32_t shorter() const { return chain >> 8; }
};

// What every candidate is looked up in: copied once for each block, but for the classes.
struct ForwardShared {
    Ending tokens[FORWARD_IDS + 1];        // By id, and GAP_TOKEN.
    uint16_t likely[1 << 2 * FORWARD_K];
    uint16_t longest[1 << 2 * FORWARD_K];
    uint16_t classes[RING * FORWARD_THREADS];  // Left classes of the latest last tokens, a column a thread.
};
constexpr uint32_t FORWARD_SHARED = 161 * 1024;
static_assert(sizeof(ForwardShared) <= FORWARD_SHARED, "the launch asks for so much");

constexpr uint32_t GAP_TOKEN = FORWARD_IDS;  // Has no letters and may stand anywhere.

DEVICE void copy_forward_tables(const Job& job, ForwardShared& shared) {
    for (uint32_t i = threadIdx.x; i < job.num_endings; i += blockDim.x) shared.tokens[i] = job.endings[i];
    for (uint32_t i = threadIdx.x; i < 1u << 2 * job.ending_k; i += blockDim.x) {
        shared.likely[i] = job.ending_likely[i];
        shared.longest[i] = job.ending_longest[i];
    }
    for (uint32_t i = 0; i < RING; i++) shared.classes[i * FORWARD_THREADS + threadIdx.x] = 0;
    if (threadIdx.x == 0) shared.tokens[GAP_TOKEN] = {NO_TOKEN << 8, 0};
    __syncthreads();
}

// What every step reads, in registers: the compiler cannot know that no Job lies where it writes.
struct ForwardTables {
    const ForwardShared& shared;
    uint16_t* classes;                     // Of this thread.
    const uint16_t* longer;
    const uint32_t* pairs;
    uint32_t pair_words, k;

    DEVICE_METHOD uint16_t& class_at(uint32_t place) const { return classes[place % RING * FORWARD_THREADS]; }
};

// What is known of a window's prefix.
struct Prefix {
    uint32_t place;                        // Its letters.
    uint32_t most;                         // Those behind the last certain border: no token has more.
    uint64_t letters;                      // The latest 32, the last one in the lowest bits.
    uint32_t token;                        // To be tried at its end,
    bool is_first;                         // before all others.
};

// The longest token that ends where these letters do, of those that more than k + 2 of them tell.
DEVICE uint32_t longest_ending(const Job& job, const ForwardTables& tables, uint64_t letters, uint32_t number) {
    uint4 range = job.ending_ranges[number];
    LongKey text = {reversed_bits(letters), 0};
    uint32_t low = range.x, high = range.y;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (job.ending_keys[middle].x > text.high) high = middle;
        else low = middle + 1;
    }
    if (low == range.x) return range.z;
    ulonglong2 key = job.ending_keys[low - 1];
    uint32_t token = job.ending_ids[low - 1] & 0xFFFF;
    for (;;) {                             // One of k letters at most ends as the text does.
        Ending ending = tables.shared.tokens[token];
        if (ending.length() <= tables.k || begin_alike(text, key, ending.length())) return token;
        token = ending.shorter();
    }
}

// The longest token that ends where these letters do.
DEVICE uint32_t longest_by_ending(const Job& job, const ForwardTables& tables, uint64_t letters) {
    uint32_t codes = static_cast<uint32_t>(letters), entry = tables.shared.longest[codes & ((1u << 2 * tables.k) - 1)];
    if (!(entry & LONG_TOKENS)) return entry;
    uint32_t number = entry & (LONG_TOKENS - 1), before = codes >> 2 * tables.k & ((1u << 2 * BEFORE_LETTERS) - 1);
    entry = __ldg(tables.longer + (number << 2 * BEFORE_LETTERS | before));
    return entry & LONG_TOKENS ? longest_ending(job, tables, letters, number) : entry;
}

// Adds the first letter of `word` to a prefix.
DEVICE void add_letter(const ForwardTables& tables, Prefix& prefix, BaseWord word) {
    if (word.flags & 1) {                  // A certain border.
        prefix.most = 0;
        tables.class_at(prefix.place) = 0;
    }
    prefix.letters = prefix.letters << 2 | (word.codes & 3);
    prefix.place++;
    prefix.most++;
    bool is_gap = word.flags >> 16 & 1;
    prefix.token = is_gap ? GAP_TOKEN : tables.shared.likely[prefix.letters & ((1u << 2 * tables.k) - 1)];
    prefix.is_first = !is_gap;
}

// Whether the token that is tried is the last one of a prefix.
DEVICE bool ends_prefix(const ForwardTables& tables, const Prefix& prefix, Ending token) {
    if (token.length() > prefix.most) return false;
    if (!prefix.is_first && token.shorter() == NO_TOKEN) return true;
    uint32_t left = tables.class_at(prefix.place - token.length()), right = token.classes >> 16;
    return __ldg(tables.pairs + left * tables.pair_words + right / 32) >> right % 32 & 1;
}

// The lengths of the last tokens at the next sixteen places.
template <class NoteLong>
DEVICE uint64_t extend_prefix(const Job& job, const ForwardTables& tables, Prefix& prefix, BaseWord word, NoteLong note_long) {
    uint64_t lengths = 0;
    uint32_t end = prefix.place + 16;
    add_letter(tables, prefix, word);
    for (;;) {
        Ending token = tables.shared.tokens[prefix.token];
        if (!ends_prefix(tables, prefix, token)) {
            prefix.token = prefix.is_first ? longest_by_ending(job, tables, prefix.letters) : token.shorter();
            prefix.is_first = false;
            continue;
        }
        tables.class_at(prefix.place) = token.classes & 0xFFFF;
        uint32_t length = token.length();
        if (length >= LONG_LENGTH) note_long(prefix.place, length);
        lengths = lengths >> 4 | static_cast<uint64_t>(min_of(length, LONG_LENGTH)) << 60;
        if (prefix.place == end) return lengths;
        word = {word.codes >> 2, word.flags >> 1};
        add_letter(tables, prefix, word);
    }
}

// Where the lengths of a window's last tokens lie, in the memory of the ids.
template <uint32_t CHUNK>
struct Lengths {
    static constexpr uint32_t WORDS = Window<CHUNK>::LIMIT / 16;
    uint64_t* words;                       // Of 16 places, [WORDS][windows].
    uint8_t* longs;                        // [LIMIT][windows].
    uint32_t stride;

    DEVICE_METHOD Lengths(const Job& job, uint32_t window) : stride(num_windows<CHUNK>(job)) {
        words = reinterpret_cast<uint64_t*>(job.ids) + window;
        longs = reinterpret_cast<uint8_t*>(words - window + static_cast<uint64_t>(WORDS) * stride) + window;
    }
    DEVICE_METHOD uint64_t& word(uint32_t number) const { return words[static_cast<uint64_t>(number) * stride]; }
    DEVICE_METHOD uint8_t& long_at(uint32_t place) const { return longs[static_cast<uint64_t>(place - 1) * stride]; }
};

// Finds the last tokens of a window's prefixes; what is found behind `limit` means nothing.
template <uint32_t CHUNK>
DEVICE void find_last_tokens(const Job& job, const ForwardTables& tables, uint64_t begin, uint32_t limit,
                             const Lengths<CHUNK>& lengths) {
    const BaseWord* words = job.base_words + begin / 16;
    Prefix prefix = {0, 0, 0, 0, false};
    tables.class_at(0) = 0;
    BaseWord next = words[0];
    for (uint32_t number = 0; 16 * number < limit; number++) {
        BaseWord word = next;
        if (16 * number + 16 < limit) next = words[number + 1];
        lengths.word(number) = extend_prefix(job, tables, prefix, word, [&](uint32_t place, uint32_t length) {
            lengths.long_at(place) = length;
        });
    }
}

// Writes the borders of the path that ends at place `limit` of a window.
template <uint32_t CHUNK>
DEVICE void write_path_back(const Job& job, uint32_t window, uint32_t limit, const Lengths<CHUNK>& lengths) {
    constexpr uint32_t BEGUN = 0xFFFFFFFF;
    uint32_t place = limit, is_border = 1, loaded = BEGUN;
    uint64_t found = 0;
    for (uint32_t word = Window<CHUNK>::WORDS; word-- > 0;) {
        uint32_t bits = 0;
        while (place / 32 == word) {
            bits |= is_border << place % 32;
            if (place == 0) {
                place = BEGUN;
                break;
            }
            if ((place - 1) / 16 != loaded) {
                loaded = (place - 1) / 16;
                found = lengths.word(loaded);
            }
            uint32_t length = found >> 4 * ((place - 1) % 16) & 15;
            if (length == LONG_LENGTH) length = lengths.long_at(place);
            is_border = length != 0;
            place -= length ? length : 1;
        }
        job.window_bits[static_cast<uint64_t>(word) * num_windows<CHUNK>(job) + window] = bits;
    }
}

template <uint32_t CHUNK>
DEVICE void forward_window(const Job& job, const ForwardTables& tables, uint32_t window) {
    uint64_t begin = static_cast<uint64_t>(window) * CHUNK, left = job.num_bytes - begin;
    uint32_t limit = left < Window<CHUNK>::LIMIT ? static_cast<uint32_t>(left) : Window<CHUNK>::LIMIT;
    Lengths<CHUNK> lengths(job, window);
    find_last_tokens<CHUNK>(job, tables, begin, limit, lengths);
    write_path_back<CHUNK>(job, window, limit, lengths);
}

// A thread a window; a warp takes the next 32 when it is done.
template <uint32_t CHUNK>
DEVICE void forward_windows_stage(const Job& job, ForwardShared& shared) {
    uint32_t windows = num_windows<CHUNK>(job), lane = threadIdx.x & 31;
    copy_forward_tables(job, shared);
    const ForwardTables tables = {shared, shared.classes + threadIdx.x, job.ending_longer, job.dna_pairs,
                                  static_cast<uint32_t>(job.dna_pair_words), static_cast<uint32_t>(job.ending_k)};
    for (;;) {
        uint32_t taken = lane == 0 ? atomicAdd(job.windows_taken, 32u) : 0;
        uint32_t first = __shfl_sync(ALL_LANES, taken, 0);
        if (first >= windows) return;
        if (first + lane < windows) forward_window<CHUNK>(job, tables, first + lane);
    }
}
