// Letters that repeat up to four of them from a certain border on, such as a row of poly-A: the latest ones and how many
// are behind the border tell the last token (gpu/dna/repeat_table.py), so that no place waits for those in front of it.
//
//     row      C A C A C A C G A          a border in front of it
//     place    1 2 3 4 5 6 7 8 9          4 to 7 are told: (CACA, 4), (ACAC, 5), (CACA, 6), (ACAC, 7)
#pragma once
#include "dna/parts/pair_test.cuh"

constexpr uint32_t REPEAT_PLACES = 256;    // Columns of the table; last tokens of later places repeat those of the last ones.
constexpr uint32_t REPEAT_ROWS = 256 + 64; // By the four latest letters where four repeat, then by three.
constexpr uint32_t REPEATED = 4;           // Letters behind a border that the table begins with.
constexpr uint32_t IN_REPEAT = 32;         // So many letters that repeat are a repeat, wherever it begins.
constexpr uint32_t MOST_FRONT = 4092;      // Letters of a row in front of a view that are looked at.
constexpr uint32_t FRONT = 4096;           // What is added to a place, so that there are such.
static_assert(MOST_FRONT + 3 < 4 * BASES_THREADS && MOST_FRONT + 3 < sizeof(PartShared::queue), "a word a thread");

// What the letters up to one end, as places + FRONT; 0: nothing.
struct Reach {
    uint32_t border;                       // The last certain border,
    uint32_t other4, other3;               // and the last letter that is not the one four, and three, before it.

    // Takes the next letter.
    DEVICE_METHOD void take(uint32_t letter, uint32_t is_border, uint32_t is_other4, uint32_t is_other3) {
        if (is_border) border = letter + FRONT;
        if (is_other4) other4 = letter + FRONT;
        if (is_other3) other3 = letter + FRONT;
    }

    DEVICE_METHOD Reach and_then(Reach next) const {
        return {max_of(border, next.border), max_of(other4, next.other4), max_of(other3, next.other3)};
    }
};

// Nothing repeats up to a letter.
DEVICE Reach no_reach(uint32_t letter) { return {0, letter + FRONT - 1, letter + FRONT - 1}; }

// Whether four letters in a row are those before them, as they lie in memory; a thread's of the round that is there.
DEVICE bool are_repeated(const PartShared& shared, const TextCopies& copies) {
    const uint32_t* words = reinterpret_cast<const uint32_t*>(shared.text[(copies.taken - 1) % 2]);
    uint32_t before = threadIdx.x ? words[threadIdx.x - 1] : 0, word = words[threadIdx.x];
    return word == before || word == shift_right(before, word, 8);
}

// Notes whether so many do in a row that it is worth to settle what repeats: 64. All lanes call it.
DEVICE void note_repeats(PartShared& shared, const TextCopies& copies) {
    uint32_t votes = __ballot_sync(ALL_LANES, are_repeated(shared, copies));
    bool is_worth = (votes & 0xFFFF) == 0xFFFF || votes >= 0xFFFF0000;
    if (is_worth && threadIdx.x % 32 == 0) shared.has_repeats = 1;
}

// The same as `Reach` of the row's letters in front of a view, of which all must be bases; their latest four are left in
// `codes`. The whole block calls it.
DEVICE Reach reach_in_front(const Job& job, PartShared& shared, const View& view) {
    uint64_t begin = shared.first_row ? job.row_begins[shared.first_row - 1] : 0;
    if (is_certain(shared, 0) || view.begin - begin > MOST_FRONT) return no_reach(0);
    uint32_t letters = static_cast<uint32_t>(view.begin - begin), own = LETTERS_A_THREAD * threadIdx.x;
    const uint32_t* words = reinterpret_cast<const uint32_t*>(text_of(job, view) - (letters + begin % 4));
    if (own < letters + begin % 4) shared.queue[threadIdx.x] = words[threadIdx.x];
    __syncthreads();
    const uint8_t* text = reinterpret_cast<const uint8_t*>(shared.queue) + begin % 4;
    uint32_t others = 0;
#pragma unroll 1
    for (uint32_t letter = own; letter < min_of(own + LETTERS_A_THREAD, letters); letter++) {
        uint32_t code = shared.letters[text[letter]];
        if (letter >= 4 && code != shared.letters[text[letter - 4]]) others |= 1;
        if (letter >= 3 && code != shared.letters[text[letter - 3]]) others |= 2;
        if (code >= BASES_GAP) others |= 4;
        if (letter + 4 >= letters) atomicOr(&shared.codes[0], (code & 3) << (32 - 2 * (letters - letter)));
    }
    bool has_other4 = __syncthreads_or(others & 1), has_other3 = __syncthreads_or(others & 2);
    if (__syncthreads_or(others & 4)) return no_reach(0);
    uint32_t last = FRONT - 1;
    return {FRONT - letters, has_other4 ? last : 0, has_other3 ? last : 0};
}

// What the letters of all threads before this one end, behind what is in front of them; what all do is kept for the next
// round. The whole block calls it.
DEVICE Reach reach_before(PartShared& shared, Reach front, Reach own, uint32_t end) {
    uint32_t lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    Reach* totals = reinterpret_cast<Reach*>(shared.ends);
    Reach sum = own;
#pragma unroll 1
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
        Reach other = {__shfl_up_sync(ALL_LANES, sum.border, distance), __shfl_up_sync(ALL_LANES, sum.other4, distance),
                       __shfl_up_sync(ALL_LANES, sum.other3, distance)};
        if (lane >= distance) sum = other.and_then(sum);
    }
    if (lane == 31) totals[warp] = sum;
    Reach before = {__shfl_up_sync(ALL_LANES, sum.border, 1), __shfl_up_sync(ALL_LANES, sum.other4, 1),
                    __shfl_up_sync(ALL_LANES, sum.other3, 1)};
    __syncthreads();
    if (lane == 0) before = front;
    else before = front.and_then(before);
#pragma unroll 1
    for (uint32_t other = 0; other < warp; other++) before = before.and_then(totals[other]);
    if (threadIdx.x == BASES_THREADS - 1) {
        Reach all = before.and_then(own);
        shared.reach[0] = all.border, shared.reach[1] = all.other4, shared.reach[2] = all.other3;
        shared.reach_end = end;
    }
    return before;
}

// The last token of a text of so many letters that repeats the latest ones: left class | letters << 16; 0: not known.
// `latest` are eight letters, of which the last one is number `last`.
DEVICE uint32_t last_of_repeat(const Job& job, uint32_t latest, uint32_t last, uint32_t length, bool is_four) {
    uint32_t number = is_four ? latest >> 2 * (last - 3) & 0xFF : 256 + (latest >> 2 * (last - 2) & 0x3F);
    const uint32_t* row = job.bases_repeats + number * REPEAT_PLACES;
    if (length < REPEAT_PLACES) return __ldg(row + length);
    uint32_t period = __ldg(row);
    return period ? __ldg(row + REPEAT_PLACES - period + (length - REPEAT_PLACES) % period) : 0;
}

// Settles what repeats in the round that begins with letter `first`. The whole block calls it. A view by reference would
// lie in memory for all that calls it, which cost normal batches 4 %.
DEVICE_RARE void settle_repeats(const Job& job, PartShared& shared, View view, uint32_t first) {
    Reach front = no_reach(first), own = {0, 0, 0};
    if (first == 0) front = reach_in_front(job, shared, view);
    else if (shared.reach_end == first) front = {shared.reach[0], shared.reach[1], shared.reach[2]};
    if (threadIdx.x < ROUND / 32) shared.repeated()[threadIdx.x] = 0;
    uint32_t letter = first + LETTERS_A_THREAD * threadIdx.x;
    const uint8_t* codes = reinterpret_cast<const uint8_t*>(shared.codes + 1) + letter / 4;
    uint32_t latest = codes[-1] | codes[0] << 8, other4 = latest ^ latest >> 8, other3 = latest >> 8 ^ latest >> 2;
    uint32_t borders = shared.certain[(letter + PAD) / 32] >> letter % 32;
    for (uint32_t i = 0; i < LETTERS_A_THREAD; i++)
        own.take(letter + i, borders >> i & 1, other4 >> 2 * i & 3, other3 >> 2 * i & 3);
    Reach reach = reach_before(shared, front, own, first + ROUND);
    uint32_t unsettled = 0, from = LETTERS_A_THREAD * threadIdx.x;
#pragma unroll 1
    for (uint32_t i = 0; i < LETTERS_A_THREAD && letter + i < view.size; i++) {
        reach.take(letter + i, borders >> i & 1, other4 >> 2 * i & 3, other3 >> 2 * i & 3);
        uint32_t place = letter + i + 1, length = place + FRONT - reach.border;
        bool is_four = reach.other4 < reach.border + 4, is_three = reach.other3 < reach.border + 3;
        if (length < REPEATED || shared.lengths[place] >= GAP_LENGTH) continue;
        uint32_t last = is_four || is_three ? last_of_repeat(job, latest, i + 4, length, is_four) : 0;
        if (last) note_last(shared, first, place, last & 0xFFFF, last >> 16);
        else unsettled |= (place + FRONT > min_of(reach.other4, reach.other3) + IN_REPEAT) << i;
    }
    if (unsettled) atomicOr(shared.repeated() + from / 32, unsettled << from % 32);
    __syncthreads();
}
