// One thread finds the tokens of one window, from left to right.
//
// The text is cut into *chunks* of one size, whatever its rows are; a window is a chunk and the OVERLAP letters behind
// it. A *path* is a list of tokens from the window's begin on, each of which may follow the one before it. A path is
// the encoding of the bytes that it spells (docs/internals/text-bpe.md, Pairs decide), so there is one path to every
// place. A step tries one token at a place, the longest first. If no token leads on from a place, the place is dead,
// and the latest token of the path is removed:
//
//     text     a a b          tokens a b aa ab, merges (a, b) (a, a)
//     step 1   aa             the longest one
//     step 2   aa b           no: "aab" is a ab. Place 2 is dead, back
//     step 3   a              the next shorter one at 0
//     step 4   a ab
//
// A dead place is never tried again, so a window takes at most as many steps as there are tokens at all of its places.
// The path may end anywhere behind the overlap, since every path is right.
#pragma once
#include "dna/windows/path.cuh"

namespace warptok::dna {

// A token to try behind the path, and the most letters that one may have.
struct Step {
    uint32_t token, most;
    uint32_t repeated;                     // The one that was tried out of order, or NO_TOKEN.
};

// Whether the `length` letters in front of a place are also those behind it, and all of them bases.
DEVICE bool repeats_letters(const Job& job, uint64_t place, uint32_t length) {
    for (uint32_t done = 0; done < length; done += 16) {
        Ahead before = letters_from(job, place - length + done), behind = letters_from(job, place + done);
        uint32_t rest = min_of(length - done, 16), stops = before.stops | behind.stops;
        uint32_t differ = before.codes ^ behind.codes;
        if (stops << (32 - rest) || differ << (32 - 2 * rest)) return false;
    }
    return true;
}

// The latest token, if it is long and the text repeats it. In a run this token nearly always leads on, while sixty
// other tokens may have to be tried.
DEVICE uint32_t repeated_token(const Job& job, const Path& path, uint64_t place) {
    PathToken token = path.tokens[0];
    uint32_t length = token.length();
    if (length <= job.dna.dna_k) return NO_TOKEN;
    return repeats_letters(job, place, length) ? token.id() : NO_TOKEN;
}

// The first token to try at a place where long ones begin, or others than bases are near.
DEVICE Step first_step(const Job& job, const Path& path, uint64_t place) {
    uint32_t repeated = repeated_token(job, path, place);
    if (repeated != NO_TOKEN) return {repeated, to_certain(job, place), repeated};
    Candidate longest = longest_at(job, place);
    return {longest.token, longest.most, NO_TOKEN};
}

// Sets the token to try after one that does not lead on; `shorter` is the next shorter one. NO_TOKEN where that was the
// last one.
DEVICE void try_next(const Job& job, Step& step, uint32_t shorter, uint64_t place) {
    if (step.repeated == NO_TOKEN) {
        step.token = shorter;
        return;
    }
    if (step.token == step.repeated) {
        Candidate longest = longest_at(job, place);
        step.token = longest.token;
        step.most = longest.most;
    } else {
        step.token = shorter;
    }
    if (step.token == step.repeated) step.token = shorter_of(job.dna.dna_tokens[step.token]);
}

// Goes back until there is a token to try; NO_TOKEN where no path leads on from the root.
DEVICE Step go_back(const Job& job, const Columns& columns, uint64_t begin, Path& path) {
    Step step = {NO_TOKEN, MAX_LETTERS, NO_TOKEN};  // Shorter ones fit where one did.
    while (step.token == NO_TOKEN && path.place != path.root) {
        PathToken last = pop_token(job, columns, begin, path);
        step = {last.id(), MAX_LETTERS, NO_TOKEN};
        uint64_t place = begin + path.place;
        // A token other than the last one may have been tried out of order; it is tried again when its place in the
        // order comes.
        if (last.length() > job.dna.dna_k && repeated_token(job, path, place) == last.id()) step.repeated = last.id();
        try_next(job, step, last.shorter(), place);
    }
    return step;
}

// The first place from one on that is no gap, or one not before `limit`.
DEVICE uint32_t behind_gaps(const Job& job, uint64_t begin, uint32_t place, uint32_t limit) {
    while (place < limit) {
        uint64_t at = begin + place;
        uint32_t gaps = job.dna.base_words[at / 16].flags >> (16 + at % 16), others = ~gaps & (0xFFFFu >> at % 16);
        if (others) return place + lowest_bit(others);
        place += 16 - at % 16;
    }
    return place;
}

// The fields that every step reads, in registers: columns are written between the steps, and the compiler cannot know
// that these writes do not change the Job.
struct WalkTables {
    const BaseWord* words;                 // From the window's begin on.
    const uint16_t *longest, *longer;
    const uint64_t* tokens;
    const uint32_t* pairs;
    uint32_t pair_words, k, reach, mixed_stop;
};

DEVICE WalkTables walk_tables(const Job& job, uint64_t begin) {
    return {job.dna.base_words + begin / 16,
            job.dna.dna_longest,
            job.dna.dna_longer,
            job.dna.dna_tokens,
            job.dna.dna_pairs,
            static_cast<uint32_t>(job.dna.dna_pair_words),
            static_cast<uint32_t>(job.dna.dna_k),
            static_cast<uint32_t>(job.dna.mixed_reach),
            job.dna.num_mixed ? 1u : 0u};
}

// The letters from a place on, and the entry of `longest` for them.
struct Next {
    Ahead ahead;
    uint32_t entry;
};

DEVICE Next next_at(const WalkTables& tables, uint32_t place) {
    const BaseWord* words = tables.words + place / 16;
    Ahead ahead = letters_from(words[0], words[1], place);
    return {ahead, __ldg(tables.longest + (ahead.codes & ((1u << 2 * tables.k) - 1)))};
}

// The longest token by its first letters; LONG_TOKENS is set where these do not tell.
DEVICE uint32_t longest_by_letters(const WalkTables& tables, const Next& next) {
    if (!(next.entry & LONG_TOKENS) || next.entry == NO_TOKEN) return next.entry;
    uint32_t letters = next.ahead.codes >> 2 * tables.k & ((1u << 2 * NEXT_LETTERS) - 1);
    return __ldg(tables.longer + ((next.entry & (LONG_TOKENS - 1)) << 2 * NEXT_LETTERS | letters));
}

// Whether tokens at a place are of bases alone.
DEVICE bool is_plain(const WalkTables& tables, const Next& next) {
    return bases_ahead(next.ahead) > tables.reach && !(next.ahead.stops & tables.mixed_stop);
}

// THREAD: one thread walks. WARP: the lanes of a warp walk together, each through a window of its own; all of them call
// the function, and those that are not `walking` wait.
enum class WalkBy { THREAD, WARP };

// Walks on until the path ends at or behind place `limit`. Returns false where no path leads on from its root, which
// happens only with a token in front of it.
//
// The time of a walk is the latency of memory. Most tokens lead on, so the test of a pair and the letters behind the
// token are loaded at the same time.
template <WalkBy BY>
DEVICE bool walk_to(const Job& job, const Columns& columns, uint64_t begin, Path& path, uint32_t limit,
                    bool walking = true) {
    const WalkTables tables = walk_tables(job, begin);
    bool leads_on = true, is_new = true;   // The path has a new last place.
    Step step = {NO_TOKEN, 0, NO_TOKEN};
    Next next = {{0, 0, false}, 0};
    if (walking) next = next_at(tables, path.place);
    while (BY == WalkBy::WARP ? __any_sync(ALL_LANES, walking) : walking) {
        if (walking && is_new && next.ahead.is_gap && path.place < limit) {
            begin_path(job, path, behind_gaps(job, begin, path.place, limit), NO_TOKEN);
            next = next_at(tables, path.place);
        }
        walking = walking && !(is_new && path.place >= limit);
        if (!walking) continue;
        if (is_new) {
            if (next.ahead.stops & 1 && bit_of(job.dna.certain, begin + path.place))
                begin_path(job, path, path.place, NO_TOKEN);
            step = {longest_by_letters(tables, next), bases_ahead(next.ahead), NO_TOKEN};
            if (step.token & LONG_TOKENS || !is_plain(tables, next)) step = first_step(job, path, begin + path.place);
        }
        uint64_t record = tables.tokens[step.token];
        uint32_t length = length_of(record), end = path.place + length, right = right_class(record);
        uint32_t followers = __ldg(tables.pairs + path.tokens[0].left() * tables.pair_words + right / 32);
        bool fits = length <= step.most;
        next = next_at(tables, fits ? end : path.place);
        is_new = fits && followers >> right % 32 & 1 && !(word_of(columns.dead, columns, end) >> end % 32 & 1);
        if (is_new) {
            push_token(path, columns, path_token(step.token, record));
            continue;
        }
        do {                               // In a run sixteen may fail: in a loop that looks at no letters.
            try_next(job, step, shorter_of(record), begin + path.place);
            if (step.token == NO_TOKEN) break;
            record = tables.tokens[step.token];
        } while (length_of(record) > step.most || !may_follow(job, path.tokens[0].left(), right_class(record)));
        if (step.token == NO_TOKEN) step = go_back(job, columns, begin, path);
        if (step.token == NO_TOKEN) walking = leads_on = false;
    }
    return leads_on;
}

// Walks through the window that begins at `begin`. The columns are cleared before.
template <uint32_t CHUNK, WalkBy BY>
DEVICE bool walk_window(const Job& job, const Columns& columns, uint64_t begin, WalkBegin from, bool walking = true) {
    constexpr uint32_t LIMIT = Window<CHUNK>::LIMIT;
    uint32_t limit =
        walking && job.batch.num_bytes - begin < LIMIT ? static_cast<uint32_t>(job.batch.num_bytes - begin) : LIMIT;
    Path path;
    begin_path(job, path, from);
    bool leads_on = walk_to<BY>(job, columns, begin, path, limit, walking);
    if (walking && path.place < 32 * Window<CHUNK>::WORDS)
        word_of(columns.borders, columns, path.place) |= 1u << path.place % 32;
    return leads_on;
}

}  // namespace warptok::dna
