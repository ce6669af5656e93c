// The last token at every place of a view, of all places of a round at a time.
//
// What the latest letters leave (dna_endings.cuh) is one token, or two, or a list. Whether the first of two is the
// last token, the last token of the place where it begins tells; if that is one of two as well, both mostly tell the
// same, so that no place has to wait. Those that do wait for earlier places alone, so that none waits for ever.
//
// Places are asked for while others are noted, on purpose: a place's classes are one word, and whoever still reads the
// two that were there before answers as right as who reads the one that is left, or asks again. A tool that looks for
// races names these reads of `ask` and the writes of `note_last`, and nothing else.
//
//     place   left by letters        asks                the pairs ca-t, a-t and g-t
//     4       ca or a                place 2
//     5       t or gt                place 4             t may follow ca and a: it is t, whatever place 4 is
#pragma once
#include "bases_part.cuh"

constexpr uint32_t MOST_ASKED = 192;       // Times that a thread asks in a round.
constexpr uint32_t BEHIND_FAR = 255;       // Letters behind a border: more than are looked at.

// A place where the last token is one of two: its number in the round | letters of the first one << 12 | its right
// class << 16. The letters of the second one are in `lengths` until it is known.
constexpr uint32_t QUEUED_LENGTH = 12, QUEUED_RIGHT = 16, NOT_QUEUED = 0xFFFFFFFF;
static_assert(ROUND <= 1 << QUEUED_LENGTH, "places of a round have so many bits");

// Whether a token may follow the last token of another place.
constexpr uint32_t MAY_NOT = 0, MAY = 1, WAITS = 2, NEVER = 3;

// Classes at a place of a round that begins with letter `first`.
DEVICE volatile uint32_t& classes_at(PartShared& shared, uint32_t first, uint32_t place) {
    return *const_cast<volatile uint32_t*>(shared.classes + (place + PAD - first));
}

DEVICE volatile uint8_t& length_at(PartShared& shared, uint32_t place) {
    return *const_cast<volatile uint8_t*>(shared.lengths + place);
}

// Notes the last token of a place, of one left class.
DEVICE void note_last(PartShared& shared, uint32_t first, uint32_t place, uint32_t left, uint32_t length) {
    length_at(shared, place) = static_cast<uint8_t>(length);
    classes_at(shared, first, place) = is_certain(shared, place) ? 0 : left << 16 | left;
}

// Asks whether a token of a right class may begin at a place.
DEVICE uint32_t ask(const Job& job, PartShared& shared, uint32_t first, uint32_t place, uint32_t right) {
    uint32_t classes = classes_at(shared, first, place), one = classes & 0xFFFF, other = classes >> 16;
    if (classes != NO_CLASSES) {
        bool may = may_follow(job, one, right);
        if (one == other || may == may_follow(job, other, right)) return may;
    }
    return length_at(shared, place) == NEVER_KNOWN ? NEVER : WAITS;
}

// Asks for a place where the last token is one of two; false where it waits.
DEVICE bool ask_either(const Job& job, PartShared& shared, uint32_t first, uint32_t queued) {
    uint32_t place = first + 1 + queued % ROUND, length = queued >> QUEUED_LENGTH & 15;
    uint32_t answer = ask(job, shared, first, place - length, queued >> QUEUED_RIGHT);
    if (answer == WAITS) return false;
    if (answer == NEVER) {
        length_at(shared, place) = NEVER_KNOWN;
    } else {
        uint32_t classes = classes_at(shared, first, place), left = answer ? classes & 0xFFFF : classes >> 16;
        note_last(shared, first, place, left, answer ? length : length_at(shared, place));
    }
    return true;
}

// Whether a token of so many letters that ends at a place has a certain border in it.
DEVICE bool has_certain(const PartShared& shared, uint32_t place, uint32_t length) {
    if (length < 2) return false;
    uint32_t few = min_of(length - 1, 32), bits = certain_before(shared, place) >> (32 - few);
    if (length > 33) bits |= certain_before(shared, place - 32) >> (65 - length);
    return bits;
}

// Asks for one of the tokens that are listed; the last one is right if no other is.
DEVICE uint32_t ask_token(const Job& job, PartShared& shared, uint32_t first, uint32_t place, uint2 token, bool is_last) {
    uint32_t length = token.y & 0xFF, key = token.y >> 8;
    if (is_last) return MAY;
    if (has_certain(shared, place, length)) return MAY_NOT;
    if (length > place) return NEVER;      // Nothing is known of what is in front of the view.
    if (key && !begin_alike(key_before(shared, place), job.ending_keys[key - 1], length)) return MAY_NOT;
    return ask(job, shared, first, place - length, token.x >> 16);
}

// Asks for a place where tokens are listed, the lanes of a warp for 32 of them at a time: the first one that may
// end there is right. False where it waits.
DEVICE_RARE bool ask_listed(const Job& job, PartShared& shared, uint32_t first, uint2 open) {
    uint32_t place = open.x, lane = threadIdx.x & 31, behind = __ldg(job.ending_begins + open.y + 1);
    for (uint32_t item = __ldg(job.ending_begins + open.y) + lane;; item += 32) {
        uint32_t answer = MAY_NOT;
        uint2 token = {0, 0};
        if (item < behind) {
            token = __ldg(job.ending_listed + item);
            answer = ask_token(job, shared, first, place, token, item + 1 == behind);
        }
        uint32_t votes = __ballot_sync(ALL_LANES, answer != MAY_NOT);
        if (!votes) continue;
        uint32_t own = __shfl_sync(ALL_LANES, answer, lowest_bit(votes));
        if (lane == lowest_bit(votes) && own == MAY) note_last(shared, first, place, token.x & 0xFFFF, token.y & 0xFF);
        if (lane == 0 && own == NEVER) length_at(shared, place) = NEVER_KNOWN;
        return own != WAITS;
    }
}

// Letters behind the last certain border, at a place behind a letter that is no gap.
DEVICE uint32_t letters_behind(const PartShared& shared, uint32_t place) {
    uint32_t bits = certain_before(shared, place);
    return bits ? 32 - highest_bit(bits) : BEHIND_FAR;
}

// What the letters of a thread's places leave: BASES_THREADS apart, `place` the first one.
DEVICE void look_places_up(const Endings& endings, const PartShared& shared, uint32_t place, Remaining* remaining) {
    uint32_t codes[LETTERS_A_THREAD], behind[LETTERS_A_THREAD];
#pragma unroll
    for (uint32_t i = 0; i < LETTERS_A_THREAD; i++) {
        codes[i] = codes_before(shared, place + i * BASES_THREADS);
        behind[i] = letters_behind(shared, place + i * BASES_THREADS);
        remaining[i] = behind[i] < endings.k ? endings.by_few_letters(codes[i], behind[i]) : endings.by_letters(codes[i]);
    }
#pragma unroll
    for (uint32_t more = 1; more <= MOST_BEFORE / BEFORE_LETTERS; more++) {
        if (more > endings.levels) break;
        uint32_t letters = endings.k + BEFORE_LETTERS * more;
#pragma unroll
        for (uint32_t i = 0; i < LETTERS_A_THREAD; i++)
            if (remaining[i].is_open() && behind[i] >= letters)
                remaining[i] = endings.by_letters_before(remaining[i], codes[i], 32 - 2 * letters);
    }
}

// Notes what letters leave at a place; returns what is to be queued where that is one of two, else NOT_QUEUED.
DEVICE uint32_t note_left(PartShared& shared, const View& view, uint32_t first, uint32_t place, Remaining left, uint32_t k) {
    if (place > view.size) return NOT_QUEUED;
    bool is_letter = shared.lengths[place] < GAP_LENGTH;
    bool is_early = view.begin && place < 16 && letters_behind(shared, place) >= k;
    bool is_open = left.is_open() && !is_early, is_either = left.is_either() && !is_early;
    uint32_t classes = left.x & 0xFFFF, length = is_either ? left.y >> 20 & 15 : left.first_length();
    classes |= (is_either ? left.y : left.x) << 16;
    if (is_letter) shared.lengths[place] = static_cast<uint8_t>(is_early ? NEVER_KNOWN : length);
    if (is_early || is_open) classes = NO_CLASSES;
    classes_at(shared, first, place) = !is_letter || is_certain(shared, place) ? 0 : classes;
    if (is_letter && is_open) {
        uint32_t number = atomicAdd(&shared.num_open, 1u);
        if (number < MOST_LISTED) shared.open[number] = {place, left.x >> 2 * BEFORE_LETTERS};
    }
    if (!is_letter || !is_either) return NOT_QUEUED;
    return (place - first - 1) | left.first_length() << QUEUED_LENGTH | left.x >> 16 << QUEUED_RIGHT;
}

// Queues places of a warp's lanes. All lanes call it.
DEVICE void queue_places(PartShared& shared, const uint32_t* queued) {
    uint32_t votes[LETTERS_A_THREAD], count = 0, lane = threadIdx.x & 31, begin = 0;
#pragma unroll
    for (uint32_t i = 0; i < LETTERS_A_THREAD; i++) count += count_bits(votes[i] = __ballot_sync(ALL_LANES, queued[i] != NOT_QUEUED));
    if (lane == 0) begin = atomicAdd(&shared.num_queued, count);
    begin = __shfl_sync(ALL_LANES, begin, 0);
#pragma unroll
    for (uint32_t i = 0; i < LETTERS_A_THREAD; i++) {
        if (queued[i] != NOT_QUEUED) shared.queue[begin + count_bits(votes[i] & ((1u << lane) - 1))] = queued[i];
        begin += count_bits(votes[i]);
    }
}

// The place in front of a round's letters: of the round before, or of the view.
DEVICE void note_first(PartShared& shared, uint32_t first) {
    if (is_certain(shared, first)) {
        classes_at(shared, first, first) = 0;
    } else if (first == 0) {
        classes_at(shared, first, first) = NO_CLASSES;
        length_at(shared, first) = NEVER_KNOWN;
    }
}

// Keeps of a round what the next one asks for, and empties the queues.
DEVICE void begin_round(PartShared& shared) {
    if (threadIdx.x <= PAD) shared.classes[threadIdx.x] = shared.classes[ROUND + threadIdx.x];
    if (threadIdx.x == 0) shared.num_queued = shared.num_open = 0;
}

// Asks until all queued places are known. The lanes of a warp stay together.
DEVICE void ask_queues(const Job& job, PartShared& shared, uint32_t first) {
    uint32_t queued = shared.num_queued, listed = shared.num_open;
    uint32_t warp = (BASES_THREADS - 1 - threadIdx.x) / 32;  // The last ones have fewer places where one of two is.
    if (listed > MOST_LISTED) shared.is_left = IS_OTHER;
    uint32_t waiting = (1u << (queued + BASES_THREADS - 1 - threadIdx.x) / BASES_THREADS) - 1;
    uint32_t open = listed > MOST_LISTED ? 0 : (1u << (listed + 31 - warp) / 32) - 1;
    for (uint32_t asked = 0; __any_sync(ALL_LANES, (waiting | open) != 0); asked++) {
        if (asked > MOST_ASKED) shared.is_left = IS_OTHER;
        if (__any_sync(ALL_LANES, *const_cast<volatile uint32_t*>(&shared.is_left) != 0)) return;
        for (uint32_t bits = waiting; bits; bits &= bits - 1) {
            uint32_t queued_here = shared.queue[threadIdx.x + BASES_THREADS * lowest_bit(bits)];
            if (ask_either(job, shared, first, queued_here)) waiting &= ~(bits & (0 - bits));
        }
        __syncwarp();
        for (uint32_t bits = open; bits; bits &= bits - 1)
            if (ask_listed(job, shared, first, shared.open[warp + 32 * lowest_bit(bits)])) open &= ~(bits & (0 - bits));
        give_way();
    }
}

// The last tokens of the round that begins with letter `first`. The whole block calls it.
DEVICE void find_last(const Job& job, const Endings& endings, PartShared& shared, const View& view, uint32_t first) {
    uint32_t place = first + 1 + threadIdx.x;
    Remaining left[LETTERS_A_THREAD];
    look_places_up(endings, shared, place, left);
    uint32_t queued[LETTERS_A_THREAD];
#pragma unroll
    for (uint32_t i = 0; i < LETTERS_A_THREAD; i++)
        queued[i] = note_left(shared, view, first, place + i * BASES_THREADS, left[i], endings.k);
    queue_places(shared, queued);
    if (threadIdx.x == 0) note_first(shared, first);
    __syncthreads();
    ask_queues(job, shared, first);
}
