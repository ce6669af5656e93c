// Rows that repeat one to four letters from their begin on, such as poly-A and (CA)n.
//
// Letters have a period p if each is the same as the one p letters before it. Letters of period 1 or 2 also have period
// 4, so only the periods 4 and 3 are looked for. Behind a certain border, the number of letters and the latest p of
// them determine all letters, and so the last token. A table has it (gpu/dna/repeat_table.py), so that no place waits
// for those in front of it. Repeats that begin behind other letters of their row are not in the table.
//
//     row      C A C A C A C G A          a certain border in front of it
//     place    1 2 3 4 5 6 7 8 9          the table has 4 to 7: (CACA, 4), (ACAC, 5), (CACA, 6), (ACAC, 7)
#pragma once
#include "dna/parts/pair_test.cuh"

namespace warptok::dna {

constexpr uint32_t REPEAT_LENGTHS = 256;   // Columns of the table; behind them last tokens have a period as well.
constexpr uint32_t REPEAT_LATEST = 4;      // Letters of the shortest texts that the table has.
constexpr uint32_t REPEAT_BEGIN = 16;      // Letters behind a border that must have a period to be found.
static_assert(REPEAT_BEGIN <= PAD && REPEAT_BEGIN % LETTERS_A_THREAD == 0, "bits of borders are there, four a word");
static_assert(LEAD % 4 == 0 && LONG_LEAD % 4 == 0 && PART_STEP % 4 == 0, "a view begins with a word of the text");

// Whether a repeat goes on in the round that begins with letter `first`, or becomes REPEAT_BEGIN letters long at one of
// the thread's places.
DEVICE bool has_repeat(const PartShared& shared, uint32_t first) {
    uint32_t letter = first + LETTERS_A_THREAD * threadIdx.x - REPEAT_BEGIN;
    uint32_t begins = shared.certain[(letter + PAD) / 32] >> letter % 32 & 15;
    if (letter == 0) begins |= 1;          // Of one that began in front of the view.
    bool is_found = first && shared.repeat_end == first;
    for (; begins; begins &= begins - 1) {
        uint32_t place = letter + lowest_bit(begins) + REPEAT_BEGIN, codes = codes_before(shared, place);
        bool has_period4 = !((codes ^ codes >> 8) << 8), has_period3 = !((codes ^ codes >> 6) << 6);
        is_found |= (has_period4 || has_period3) && letters_behind(shared, place) >= REPEAT_BEGIN;
    }
    return is_found;
}

// Four letters, and the four before them.
struct FourLetters {
    uint32_t number;                       // The number of the first of the four, as in RepeatState.
    uint32_t codes;                        // The codes of all eight; the last one's bits are the highest.
    uint32_t borders;                      // Bits of the letters of the four with a certain border in front of them,
    uint32_t others;                       // and of the letters of the four that are no bases.

    // The state behind letter i of the four, from the state in front of it.
    DEVICE_METHOD RepeatState behind(RepeatState state, uint32_t i) const {
        uint32_t letter = number + i;
        bool is_other = others >> i & 1, differs4 = (codes ^ codes >> 8) >> 2 * i & 3;
        bool differs3 = (codes >> 8 ^ codes >> 2) >> 2 * i & 3;
        // A letter that is no base ends all repeats, also those of fewer than p letters.
        uint32_t mismatch4 = is_other ? letter + 4 : differs4 ? letter : 0;
        uint32_t mismatch3 = is_other ? letter + 3 : differs3 ? letter : 0;
        return state.join({borders >> i & 1 ? letter : 0, mismatch4, mismatch3});
    }
};

// Four letters of the view, from a round that is packed.
DEVICE FourLetters four_letters(const PartShared& shared, uint32_t letter) {
    const uint8_t* codes = reinterpret_cast<const uint8_t*>(shared.codes + 1) + letter / 4;
    uint32_t borders = shared.certain[(letter + PAD) / 32] >> letter % 32 & 15;
    uint32_t mixed = bits_before(shared.mixed, letter + 5) >> 28;
    return {letter + REPEAT_FRONT, codes[-1] | static_cast<uint32_t>(codes[0]) << 8, borders, mixed};
}

// Appends the next four letters, a word of the text.
DEVICE void append_word(const PartShared& shared, uint32_t word, FourLetters& four) {
    four.codes >>= 8;
    four.others = 0;
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t code = shared.letters[byte_of(word, i)];
        four.codes |= (code & 3) << (8 + 2 * i);
        four.others |= (code >= PART_CLASS_GAP ? 1u : 0u) << i;
    }
}

// The joined states of a warp's lanes.
DEVICE RepeatState join_lanes(RepeatState own) {
    return {__reduce_max_sync(ALL_LANES, own.border), __reduce_max_sync(ALL_LANES, own.mismatch4),
            __reduce_max_sync(ALL_LANES, own.mismatch3)};
}

// The state of the lane `distance` lanes before this one; an empty state where there is no such lane.
DEVICE RepeatState of_lane_before(RepeatState own, uint32_t distance) {
    RepeatState other = {__shfl_up_sync(ALL_LANES, own.border, distance),
                         __shfl_up_sync(ALL_LANES, own.mismatch4, distance),
                         __shfl_up_sync(ALL_LANES, own.mismatch3, distance)};
    return (threadIdx.x & 31) < distance ? RepeatState{0, 0, 0} : other;
}

// The joined states of all threads before this one; `all` are those of all threads. The whole block calls it.
DEVICE RepeatState join_before(PartShared& shared, RepeatState own, RepeatState& all) {
    uint32_t lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    RepeatState* warps = reinterpret_cast<RepeatState*>(shared.ends);  // Unused until the path is found.
    RepeatState before = own;
#pragma unroll 1
    for (uint32_t distance = 1; distance < 32; distance *= 2) before = before.join(of_lane_before(before, distance));
    if (lane == 31) warps[warp] = before;
    before = of_lane_before(before, 1);
    __syncthreads();
    RepeatState other = warps[lane];
    all = join_lanes(other);
    before = before.join(join_lanes(lane < warp ? other : RepeatState{0, 0, 0}));
    __syncthreads();
    return before;
}

// The state in front of a view, from the text of the row in which it begins; without a border where the row has too
// many letters in front of it. Keeps the latest letters in `codes`. The whole block calls it.
DEVICE RepeatState state_before_view(const Job& job, PartShared& shared, const View& view) {
    uint64_t letters = view.begin - (shared.first_row ? job.rows.row_begins[shared.first_row - 1] : 0);
    if (is_certain(shared, 0) || letters >= REPEAT_FRONT) return {0, 0, 0};
    uint32_t begin = REPEAT_FRONT - static_cast<uint32_t>(letters), from = LETTERS_A_THREAD * (threadIdx.x + 1);
    const uint32_t* words = reinterpret_cast<const uint32_t*>(text_of(job, view)) - from / 4;
    FourLetters four = {REPEAT_FRONT - from, 0, 0, 0};
    RepeatState own = {begin, 0, 0}, all;
    if (from < letters) append_word(shared, words[-1], four);
    if (from < letters + LETTERS_A_THREAD) append_word(shared, words[0], four);
    for (uint32_t i = 0; i < LETTERS_A_THREAD; i++)
        if (four.number + i >= begin) own = four.behind(own, i);
    if (threadIdx.x == 0) shared.codes[0] = four.codes << 16;
    join_before(shared, own, all);
    return all;
}

// The state in front of the round that begins with letter `first`. The whole block calls it.
DEVICE RepeatState state_before_round(const Job& job, PartShared& shared, const View& view, uint32_t first) {
    if (first == 0) return state_before_view(job, shared, view);
    if (shared.repeat_end == first) return shared.repeat;
    // A repeat that began before these letters would have been found in the round before.
    uint32_t letter = first - REPEAT_BEGIN + threadIdx.x % REPEAT_BEGIN;
    return join_lanes(four_letters(shared, letter / 4 * 4).behind({0, 0, 0}, letter % 4));
}

// The last token of a text of `length` letters that have a period, as left class | letters << 16; 0 if it is not known.
// `latest` has the latest four letters in its highest bits.
DEVICE uint32_t last_of_repeat(const Job& job, uint32_t latest, uint32_t length, bool is_period4) {
    uint32_t number = is_period4 ? latest >> 24 : 256 + (latest >> 26);
    const uint32_t* row = job.parts.part_repeats + number * REPEAT_LENGTHS;
    if (length < REPEAT_LENGTHS) return __ldg(row + length);
    uint32_t period = __ldg(row);
    return period ? __ldg(row + REPEAT_LENGTHS - period + (length - REPEAT_LENGTHS) % period) : 0;
}

// Notes the last tokens of the places in repeats, in the round that begins with letter `first`, and removes these
// places from the list; resolving queued places finds the same tokens. The whole block calls it. The view is passed by
// value: by reference it would lie in memory in all callers, which cost normal batches 4 %.
DEVICE_NOINLINE void resolve_repeats(const Job& job, PartShared& shared, View view, uint32_t first) {
    uint32_t own = LETTERS_A_THREAD * threadIdx.x, resolved = 0;
    RepeatState state = state_before_round(job, shared, view, first), of_four = {0, 0, 0}, of_round;
    FourLetters four = four_letters(shared, first + own);
    for (uint32_t i = 0; i < LETTERS_A_THREAD; i++) of_four = four.behind(of_four, i);
    RepeatState before = join_before(shared, of_four, of_round), next = state.join(of_round);
    state = state.join(before);
    if (threadIdx.x == 0) shared.repeat = next, shared.repeat_end = next.has_period() ? first + ROUND : 0;
#pragma unroll 1
    for (uint32_t i = 0; i < LETTERS_A_THREAD && first + own + i < view.size; i++) {
        state = four.behind(state, i);
        uint32_t place = first + own + i + 1, length = place + REPEAT_FRONT - state.border;
        if (length < REPEAT_LATEST || !state.has_period()) continue;
        uint32_t last = last_of_repeat(job, four.codes << (22 - 2 * i), length, state.has_period4());
        if (!last) continue;
        note_last(shared, first, place, last & 0xFFFF, last >> 16);
        resolved |= 1u << i;
    }
    if (resolved) atomicAnd(shared.listed + own / 32, ~(resolved << own % 32));
    __syncthreads();
}

}  // namespace warptok::dna
