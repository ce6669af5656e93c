// Finds the last token at every place of a view, for all places of a round at the same time.
//
// The latest letters (dna/windows/suffix_tables.cuh) leave one token, or two, or a list. The first of two is the last
// token if it may follow the last token of the place where it begins. If that is one of two as well, mostly both give
// the same answer, so that the place need not wait. A place waits only for earlier ones, so that none waits for ever.
//
// Threads deliberately read places while other threads write them. The classes of a place are one word: a thread that
// still reads two classes gets an answer that holds for both, or waits and tries again. A race checker reports the
// reads of `may_begin` beside the writes of `note_last`, and nothing else.
//
//     place   the letters leave      depends on          compatible pairs: ca-t, a-t and g-t
//     4       ca or a                place 2
//     5       t or gt                place 4             t may follow ca and a: it is t, whatever place 4 is
#pragma once
#include "dna/parts/listed.cuh"
#include "dna/parts/repeats.cuh"

namespace warptok::dna {

constexpr uint32_t MOST_TRIES = 4096;      // Tries of a thread in a round, at most.
constexpr uint32_t MOST_LISTED_PAIRS = 1024;  // Listed places of a view that are directly behind listed ones.

// A queued place, whose last token is one of two: its number in the round | letters of the first token << QUEUED_LENGTH
// | right class of the first token << QUEUED_RIGHT. `lengths` has the letters of the second one until it is resolved.
constexpr uint32_t QUEUED_LENGTH = 12, QUEUED_RIGHT = 16, NOT_QUEUED = 0xFFFFFFFF;
static_assert(ROUND <= 1 << QUEUED_LENGTH, "places of a round have so many bits");

// Finds the last token of a queued place; false where it waits.
DEVICE bool resolve_either(const Job& job, PartShared& shared, uint32_t first, uint32_t queued) {
    uint32_t place = first + 1 + queued % ROUND, length = queued >> QUEUED_LENGTH & 15;
    uint32_t answer = may_begin(job, shared, first, place - length, queued >> QUEUED_RIGHT);
    if (answer == WAITS) return false;
    if (answer == NEVER) {
        length_at(shared, place) = NEVER_KNOWN;
    } else {
        uint32_t classes = classes_at(shared, first, place), left = answer ? classes & 0xFFFF : classes >> 16;
        note_last(shared, first, place, left, answer ? length : length_at(shared, place));
    }
    return true;
}

// Makes a place near a mixed letter a listed one. At other places, only the letters behind the tail of the mixed letter
// count.
DEVICE void note_near_mixed(const Endings& endings, const PartShared& shared, uint32_t place, uint32_t& behind,
                            Remaining& remaining) {
    uint32_t bases = bases_behind(shared, place);
    if (bases >= behind) return;
    bool is_near = bases < endings.k + endings.tail;
    if (is_near) remaining = {NEAR_MIXED << 2 * BEFORE_LETTERS, Remaining::OPEN};
    behind = is_near ? 0 : bases - endings.tail;
}

// Looks up the tokens that the latest letters leave at a thread's places, which are PART_THREADS apart from `place` on.
DEVICE void look_places_up(const Endings& endings, const PartShared& shared, uint32_t place, Remaining* remaining) {
    uint32_t codes[LETTERS_A_THREAD], behind[LETTERS_A_THREAD];
#pragma unroll
    for (uint32_t i = 0; i < LETTERS_A_THREAD; i++) {
        codes[i] = codes_before(shared, place + i * PART_THREADS);
        behind[i] = letters_behind(shared, place + i * PART_THREADS);
        remaining[i] =
            behind[i] < endings.k ? endings.by_short_text(codes[i], behind[i]) : endings.by_letters(codes[i]);
    }
    if (shared.has_mixed) {
#pragma unroll
        for (uint32_t i = 0; i < LETTERS_A_THREAD; i++)
            note_near_mixed(endings, shared, place + i * PART_THREADS, behind[i], remaining[i]);
    }
#pragma unroll
    for (uint32_t more = 1; more <= COPIED_BEFORE / BEFORE_LETTERS; more++) {
        if (more > endings.levels) break;
        uint32_t letters = endings.k + BEFORE_LETTERS * more;
#pragma unroll
        for (uint32_t i = 0; i < LETTERS_A_THREAD; i++)
            if (remaining[i].is_open() && behind[i] >= letters)
                remaining[i] = endings.by_letters_before(remaining[i], codes[i], 32 - 2 * letters);
    }
}

// Notes what the latest letters leave at a place; returns its entry of the queue if these are two tokens, else
// NOT_QUEUED.
DEVICE uint32_t note_remaining(PartShared& shared, const View& view, uint32_t first, uint32_t place,
                               Remaining remaining, uint32_t k, bool& is_listed) {
    is_listed = false;
    if (place > view.size) return NOT_QUEUED;
    bool is_letter = shared.lengths[place] < GAP_LENGTH, is_border = is_certain(shared, place);
    bool is_early = view.begin && place < EARLY && letters_behind(shared, place) >= k;
    bool is_open = remaining.is_open() && !is_early, is_either = remaining.is_either() && !is_early;
    uint32_t classes = remaining.x & 0xFFFF;
    uint32_t length = is_either ? remaining.y >> 20 & 15 : remaining.is_open() ? 0 : remaining.first_length();
    classes |= (is_either ? remaining.y : remaining.x) << 16;
    if (is_letter) shared.lengths[place] = static_cast<uint8_t>(is_early ? NEVER_KNOWN : length);
    if (is_early) classes = NO_CLASSES;
    if (!is_letter || is_border) classes = 0;
    is_listed = is_letter && is_open;
    if (is_listed) classes = IS_LISTED | (is_border ? IS_AT_BORDER : 0) | remaining.x >> 2 * BEFORE_LETTERS;
    classes_at(shared, first, place) = classes;
    if (!is_letter || !is_either) return NOT_QUEUED;
    return (place - first - 1) | remaining.first_length() << QUEUED_LENGTH | remaining.x >> 16 << QUEUED_RIGHT;
}

// Queues the places of a warp's lanes. All lanes call it.
DEVICE void queue_places(PartShared& shared, const uint32_t* queued) {
    uint32_t votes[LETTERS_A_THREAD], count = 0, lane = threadIdx.x & 31, begin = 0;
#pragma unroll
    for (uint32_t i = 0; i < LETTERS_A_THREAD; i++)
        count += count_bits(votes[i] = __ballot_sync(ALL_LANES, queued[i] != NOT_QUEUED));
    if (lane == 0) begin = atomicAdd(&shared.num_queued, count);
    begin = __shfl_sync(ALL_LANES, begin, 0);
#pragma unroll
    for (uint32_t i = 0; i < LETTERS_A_THREAD; i++) {
        if (queued[i] != NOT_QUEUED) shared.queue[begin + count_bits(votes[i] & ((1u << lane) - 1))] = queued[i];
        begin += count_bits(votes[i]);
    }
}

// Notes the place in front of a round's letters, unless the round before has noted it.
DEVICE void note_first(PartShared& shared, uint32_t first) {
    if (is_certain(shared, first)) {
        classes_at(shared, first, first) = 0;
    } else if (first == 0) {
        classes_at(shared, first, first) = NO_CLASSES;
        length_at(shared, first) = NEVER_KNOWN;
    }
}

// Keeps the classes of a round that the next one reads, and empties the queue.
DEVICE void begin_round(PartShared& shared) {
    if (threadIdx.x <= PAD) shared.classes[threadIdx.x] = shared.classes[ROUND + threadIdx.x];
    if (threadIdx.x == 0) shared.num_queued = 0;
}

// Makes the part fail where too many neighbouring places are listed, as in poly-A behind other letters of its row: each
// waits for the one in front of it. A warp calls it.
DEVICE void fail_many_listed_pairs(PartShared& shared) {
    uint32_t count = 0, lane = threadIdx.x & 31;
    for (uint32_t i = lane; i < ROUND / 32; i += 32) count += count_bits(shared.listed[i] & shared.listed[i] << 1);
    count = __reduce_add_sync(ALL_LANES, count);
    if (lane == 0) shared.num_listed_pairs += count;
    if (lane == 0 && shared.num_listed_pairs > MOST_LISTED_PAIRS) shared.failure = NOT_ENCODED;
}

// Resolves all queued and listed places, or makes the part fail. The lanes of a warp stay together.
DEVICE void resolve_queues(const Job& job, PartShared& shared, uint32_t first) {
    uint32_t queued = shared.num_queued;
    ListedPlaces listed(shared, (PART_THREADS - 1 - threadIdx.x) / 32);  // The last warps have fewer queued places.
    if (listed.dense > MOST_DENSE && !shared.has_mixed) shared.failure = NOT_ENCODED;
    if (!shared.has_mixed && threadIdx.x < 32) fail_many_listed_pairs(shared);
    uint32_t waiting = (1u << (queued + PART_THREADS - 1 - threadIdx.x) / PART_THREADS) - 1;
    for (uint32_t tries = 0; listed.any() || __any_sync(ALL_LANES, waiting != 0); tries++) {
        if (tries > MOST_TRIES) shared.failure = NOT_ENCODED;
        if (__any_sync(ALL_LANES, *const_cast<volatile uint32_t*>(&shared.failure) != 0)) return;
        for (uint32_t bits = waiting; bits; bits &= bits - 1) {
            uint32_t queued_here = shared.queue[threadIdx.x + PART_THREADS * lowest_bit(bits)];
            if (resolve_either(job, shared, first, queued_here)) waiting &= ~(bits & (0 - bits));
        }
        __syncwarp();
        listed.resolve(job, shared, first);
        give_way();
    }
}

// Finds the last tokens of the round that begins with letter `first`. The whole block calls it.
DEVICE void find_last(const Job& job, const Endings& endings, PartShared& shared, const View& view, uint32_t first) {
    uint32_t place = first + 1 + threadIdx.x;
    Remaining remaining[LETTERS_A_THREAD];
    look_places_up(endings, shared, place, remaining);
    uint32_t queued[LETTERS_A_THREAD];
#pragma unroll
    for (uint32_t i = 0; i < LETTERS_A_THREAD; i++) {
        bool is_listed;
        queued[i] = note_remaining(shared, view, first, place + i * PART_THREADS, remaining[i], endings.k, is_listed);
        uint32_t votes = __ballot_sync(ALL_LANES, is_listed);
        if (threadIdx.x % 32 == 0) shared.listed[(i * PART_THREADS + threadIdx.x) / 32] = votes;
    }
    queue_places(shared, queued);
    if (threadIdx.x == 0) note_first(shared, first);
    if (__syncthreads_or(has_repeat(shared, first))) resolve_repeats(job, shared, view, first);
    resolve_queues(job, shared, first);
}

}  // namespace warptok::dna
