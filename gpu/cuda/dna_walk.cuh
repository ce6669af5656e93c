// One thread finds the tokens of one window, from left to right.
//
// The text is cut into *chunks* of the same size, whatever its rows; a window is a chunk and the
// OVERLAP letters behind it. A *path* is a list of tokens from the window's begin on of which each may
// follow the one before: it is enc of what it spells (gpu/README.md, Pairs decide), so that there is
// one path to every place. A step tries one token: first the guess, then from the longest one on.
// Where none leads on, the place is dead and the path goes back by a token:
//
//     text     a a b          tokens a b aa ab, merges (a, b) (a, a)
//     step 1   aa             the longest one
//     step 2   aa b           no: "aab" is a ab. Place 2 is dead, back
//     step 3   a              the next shorter one at 0
//     step 4   a ab
//
// A place that is dead is never tried again, so a window takes no more steps than its letters have
// tokens. The path ends behind the overlap, wherever that is: any path is right.
#pragma once
#include "dna_tokens.cuh"

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

// Where a walk begins: a place of the window and the token in front of it, NO_TOKEN where any token
// may follow.
struct WalkBegin {
    uint32_t place, token;
};

// The path while it is walked. `tokens` are its last ones, the latest first.
struct Path {
    uint32_t place, root, root_token, left;  // `left`: class of the latest token.
    uint32_t tokens[3];
};

DEVICE void begin_path(const Job& job, Path& path, uint32_t place, uint32_t token) {
    path.place = path.root = place;
    path.root_token = path.tokens[0] = token;
    path.tokens[1] = path.tokens[2] = FORGOTTEN;
    path.left = token == NO_TOKEN ? 0 : left_class(job.dna_tokens[token]);
}

DEVICE void push_token(Path& path, const Columns& columns, uint32_t token, uint64_t record) {
    word_of(columns.borders, columns, path.place) |= 1u << path.place % 32;
    path.tokens[2] = path.tokens[1];
    path.tokens[1] = path.tokens[0];
    path.tokens[0] = token;
    path.left = left_class(record);
    path.place += length_of(record);
}

// The latest token, found again where it was forgotten.
DEVICE void recall_token(const Job& job, const Columns& columns, uint64_t begin,
                         Path& path) {
    if (path.place == path.root) path.tokens[0] = path.root_token;
    if (path.tokens[0] != FORGOTTEN) return;
    uint32_t before = border_before(columns, path.place);
    path.tokens[0] = token_of(job, begin + before, begin + path.place);
}

// A token to try behind the path.
struct Step {
    uint32_t token, guess, most;           // `guess` is the one that was tried first, or NO_TOKEN.
    uint64_t record;
};

// The latest token, if it is a long one and the text repeats it.
DEVICE uint32_t repeated_token(const Job& job, const Path& path, uint64_t place) {
    uint32_t token = path.tokens[0];
    if (token == NO_TOKEN) return NO_TOKEN;
    uint32_t length = length_of(job.dna_tokens[token]);
    if (length <= job.dna_k) return NO_TOKEN;
    return goes_on_with(job.text + place, job.text + place - length, length) ? token : NO_TOKEN;
}

// The guess of a place as `guesses` has it; IS_NO_GUESS also where other letters than bases are near.
DEVICE uint64_t guess_of(const Job& job, const Ahead& ahead) {
    bool is_plain = bases_ahead(ahead) > job.mixed_reach && !(ahead.stops & 1 && job.num_mixed);
    return is_plain ? __ldg(job.dna_guesses + first_letters(job, ahead.codes)) : IS_NO_GUESS;
}

// The first token to try at a place where there is no guess.
DEVICE Step step_without_guess(const Job& job, const Path& path, uint64_t place) {
    uint32_t repeated = repeated_token(job, path, place);
    if (repeated != NO_TOKEN) return {repeated, repeated, to_certain(job, place), job.dna_tokens[repeated]};
    Candidate longest = longest_at(job, place);
    return {longest.token, NO_TOKEN, longest.most, job.dna_tokens[longest.token]};
}

// The token to try after one that does not lead on, NO_TOKEN where it was the last.
DEVICE void try_next(const Job& job, Step& step, uint64_t place) {
    if (step.token == step.guess) {
        Candidate longest = longest_at(job, place);
        step.token = longest.token;
        step.most = longest.most;
    } else {
        step.token = shorter_of(job.dna_tokens[step.token]);
    }
    if (step.token == step.guess && step.token != NO_TOKEN) step.token = shorter_of(job.dna_tokens[step.token]);
    if (step.token != NO_TOKEN) step.record = job.dna_tokens[step.token];
}

// Goes back until there is a token to try; NO_TOKEN where no path leads on from the root.
DEVICE Step go_back(const Job& job, const Columns& columns, uint64_t begin, Path& path) {
    Step step = {NO_TOKEN, NO_TOKEN, 0, 0};
    while (step.token == NO_TOKEN && path.place != path.root) {
        word_of(columns.borders, columns, path.place) &= ~(1u << path.place % 32);
        word_of(columns.dead, columns, path.place) |= 1u << path.place % 32;
        step.token = path.tokens[0];
        path.place -= length_of(job.dna_tokens[step.token]);
        path.tokens[0] = path.tokens[1];
        path.tokens[1] = path.tokens[2];
        path.tokens[2] = FORGOTTEN;
        recall_token(job, columns, begin, path);
        uint64_t place = begin + path.place, guess = guess_of(job, letters_from(job, place));
        step.guess = guess & IS_NO_GUESS ? repeated_token(job, path, place) : guessed_token(guess);
        step.most = MAX_LETTERS;           // Shorter ones fit where it did.
        try_next(job, step, place);
    }
    path.left = path.tokens[0] == NO_TOKEN ? 0 : left_class(job.dna_tokens[path.tokens[0]]);
    return step;
}

// The first place from one on that is no gap, or one not before `limit`.
DEVICE uint32_t behind_gaps(const Job& job, uint64_t begin, uint32_t place, uint32_t limit) {
    while (place < limit) {
        uint64_t at = begin + place;
        uint32_t gaps = job.base_words[at / 16].flags >> (16 + at % 16), others = ~gaps & (0xFFFFu >> at % 16);
        if (others) return place + lowest_bit(others);
        place += 16 - at % 16;
    }
    return place;
}

// What a thread does next: take the guess at a new place; anything else; nothing, for its path ends or
// leads nowhere.
enum class Mode { FAST, SLOW, DONE, LOST };

// One window while it is walked.
struct Walk {
    uint64_t begin, loaded;                // `loaded`: number of the first base word in a register.
    uint32_t limit;
    BaseWord first, second;
    Path path;
    Step step;
    bool is_new;                           // The path has a new last place, and no step was tried.
    Mode mode;
};

template <uint32_t CHUNK>
DEVICE Walk begin_walk(const Job& job, uint64_t begin, WalkBegin from) {
    constexpr uint32_t LIMIT = Window<CHUNK>::LIMIT;
    Walk walk;
    walk.begin = begin;
    walk.loaded = ~0ull;
    walk.first = walk.second = {0, 0};
    walk.limit = job.num_bytes - begin < LIMIT ? static_cast<uint32_t>(job.num_bytes - begin) : LIMIT;
    begin_path(job, walk.path, from.place, from.token);
    walk.step = {NO_TOKEN, NO_TOKEN, 0, 0};
    walk.is_new = true;
    walk.mode = Mode::FAST;
    return walk;
}

// Whether the step's token may be the path's next one.
DEVICE bool leads_on(const Job& job, const Columns& columns, const Walk& walk) {
    uint32_t length = length_of(walk.step.record), end = walk.path.place + length;
    return length <= walk.step.most && may_follow(job, walk.path.left, right_class(walk.step.record)) &&
           !(word_of(columns.dead, columns, end) >> end % 32 & 1);
}

DEVICE void take_step(const Columns& columns, Walk& walk) {
    push_token(walk.path, columns, walk.step.token, walk.step.record);
    walk.is_new = true;
    walk.mode = walk.path.place < walk.limit ? Mode::FAST : Mode::DONE;
}

// Takes the guess at a new place, if it leads on.
DEVICE void step_fast(const Job& job, const Columns& columns, Walk& walk) {
    uint64_t at = walk.begin + walk.path.place;
    if (at / 16 != walk.loaded) {
        walk.loaded = at / 16;
        walk.first = job.base_words[walk.loaded];
        walk.second = job.base_words[walk.loaded + 1];
    }
    walk.mode = Mode::SLOW;
    Ahead ahead = letters_from(walk.first, walk.second, static_cast<uint32_t>(at));
    uint32_t most = bases_ahead(ahead);
    if (ahead.stops & 1 || most <= job.mixed_reach) return;
    uint64_t guess = __ldg(job.dna_guesses + first_letters(job, ahead.codes));
    if (guess & IS_NO_GUESS) return;
    walk.step = {guessed_token(guess), guessed_token(guess), most, guess};
    walk.is_new = false;
    if (leads_on(job, columns, walk)) take_step(columns, walk);
}

// The first step at a new place, whatever is there.
DEVICE void begin_step(const Job& job, Walk& walk) {
    uint64_t at = walk.begin + walk.path.place;
    Ahead ahead = letters_from(job, at);
    if (ahead.stops & 1 && bit_of(job.certain, at)) begin_path(job, walk.path, walk.path.place, NO_TOKEN);
    uint64_t guess = guess_of(job, ahead);
    uint32_t token = guessed_token(guess);
    walk.step = {token, token, bases_ahead(ahead), guess};
    if (token == NO_TOKEN) walk.step = step_without_guess(job, walk.path, at);
    walk.is_new = false;
}

// Goes on by one token, or says that none leads on, where step_fast could not.
DEVICE void step_slow(const Job& job, const Columns& columns, Walk& walk) {
    uint64_t at = walk.begin + walk.path.place;
    if (!walk.is_new) {
        try_next(job, walk.step, at);
        if (walk.step.token == NO_TOKEN) walk.step = go_back(job, columns, walk.begin, walk.path);
        if (walk.step.token == NO_TOKEN) walk.mode = Mode::LOST;
    } else if (letters_from(job, at).is_gap) {
        begin_path(job, walk.path, behind_gaps(job, walk.begin, walk.path.place, walk.limit), NO_TOKEN);
        walk.mode = walk.path.place < walk.limit ? Mode::FAST : Mode::DONE;
        return;
    } else {
        begin_step(job, walk);
    }
    if (walk.mode != Mode::LOST && leads_on(job, columns, walk)) take_step(columns, walk);
}

// The border at the end of a path.
template <uint32_t CHUNK>
DEVICE void end_walk(const Columns& columns, const Path& path) {
    if (path.place < 32 * Window<CHUNK>::WORDS)
        word_of(columns.borders, columns, path.place) |= 1u << path.place % 32;
}

// Walks through a window; false where no path leads on from its begin, which happens only with a token
// in front of it. The columns are cleared before.
template <uint32_t CHUNK>
DEVICE bool walk_window(const Job& job, const Columns& columns, uint64_t begin, WalkBegin from) {
    Walk walk = begin_walk<CHUNK>(job, begin, from);
    while (walk.mode == Mode::FAST || walk.mode == Mode::SLOW) {
        if (walk.mode == Mode::FAST) step_fast(job, columns, walk);
        else step_slow(job, columns, walk);
    }
    end_walk<CHUNK>(columns, walk.path);
    return walk.mode == Mode::DONE;
}

constexpr uint32_t SLOW_LANES = 12;        // So many wait for each other: each alone would stop the warp.

// The same for the windows of a warp's lanes, side by side; those of lanes that have none are not
// looked at. The whole warp calls it.
template <uint32_t CHUNK>
DEVICE void walk_windows_together(const Job& job, const Columns& columns, uint64_t begin, bool has_one) {
    Walk walk = begin_walk<CHUNK>(job, has_one ? begin : 0, {0, NO_TOKEN});
    if (!has_one) walk.mode = Mode::DONE;
    for (;;) {
        if (walk.mode == Mode::FAST) step_fast(job, columns, walk);
        uint32_t fast = __ballot_sync(0xFFFFFFFF, walk.mode == Mode::FAST);
        uint32_t slow = __ballot_sync(0xFFFFFFFF, walk.mode == Mode::SLOW);
        if (!(fast | slow)) break;
        if (walk.mode == Mode::SLOW && (count_bits(slow) >= SLOW_LANES || !fast)) step_slow(job, columns, walk);
    }
    end_walk<CHUNK>(columns, walk.path);
}
