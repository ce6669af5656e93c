// Gives runs of one byte in a piece a head start: their first merges come from a table. Such runs are lines of dashes,
// stars or zeros.
//
// A run of one byte enters the columns as the symbols that its own merges make of it, if no merge with a neighbour can
// come before these merges (docs/internals/text-bpe.md, Head start). gpu/text/byte_runs.py makes the tables of the
// symbols and of the safe neighbours:
//
//     place   0  1 2 3 4 5 6 7  8      row of seven '-': ---- -- -, ranks (----, --) and (--, -),
//     before  |  - - - - - - -  +      unsafe behind ' ' and others, safe behind '|' and in
//     after   |  ----    --  -  +      front of '+'
//
// The pairs at both ends of a run are looked up.
//
// Invariant: a run gets a head start only where nothing beside it can merge earlier
// (docs/internals/text-bpe.md, Head start).
#pragma once
#include "text/merge/place_bits.cuh"

namespace warptok::text {

constexpr uint32_t MIN_RUN = 4, MAX_RUN = 128;
constexpr uint32_t RUN_LENGTHS = MAX_RUN + 1 - MIN_RUN;
constexpr uint32_t RUN_SYMBOLS = 12;  // Of a row, and as many ranks.
constexpr uint32_t RUN_BEHIND = 2 * RUN_SYMBOLS, RUN_IN_FRONT = RUN_BEHIND + 4, RUN_WORDS = RUN_IN_FRONT + 4;

// The bits of the bytes of a word that equal the same bytes of another one.
DEVICE uint32_t equal_bytes(uint32_t word, uint32_t other) {
    uint32_t difference = word ^ other;
    uint32_t equal = ~(((difference & 0x7F7F7F7F) + 0x7F7F7F7F) | difference) & 0x80808080;
    return (equal >> 7) * 0x01020408 >> 24 & 0xF;
}

// Where runs of MIN_RUN or more begin, by the places whose byte is also the next one.
DEVICE Places run_begins(const Places& same) {
    Places long_enough = same & moved_down(same, 1) & moved_down(same, 2), inner = moved_up(same);
    return {long_enough.low & ~inner.low, long_enough.high & ~inner.high};
}

// The places of a lane whose byte is also the next one of the piece.
template <uint32_t LANES, uint32_t SLOTS>
DEVICE Places same_places(const Group<LANES>& group, const uint8_t* text, uint32_t length) {
    Places same = {0, 0};
#pragma unroll
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        uint32_t place = group.first_of(slot);
        if (place + 1 >= length) continue;
        FiveBytes bytes = five_bytes(text, place);
        uint32_t equal = equal_bytes(bytes.four, bytes.four >> 8 | bytes.fifth << 24);
        equal &= (1u << min_of(4, length - place - 1)) - 1;
        Places four = four_places(place, equal);
        same = {same.low | four.low, same.high | four.high};
    }
    return same;
}

// Whether one of a lane's fours lies inside of a run: all runs of eight have such a four.
template <uint32_t LANES, uint32_t SLOTS> DEVICE bool has_run(const Group<LANES>& group, const Places& same) {
    bool found = false;
#pragma unroll
    for (uint32_t slot = 0; slot < SLOTS; slot++) found |= four_of(same, group.first_of(slot)) == 0xF;
    return found;
}

// A run with a head start; its length is 0 where there is none.
struct Run {
    const uint32_t* row;
    uint32_t place, length;
};

// The run that begins at a place, if its neighbours let it have a head start.
DEVICE Run run_at(const Job& job, const uint8_t* text, uint32_t length, const Places& same, uint32_t place) {
    Places rest = moved_down(same, place);
    uint32_t count = 1 + (~rest.low ? lowest_bit(~rest.low) : 64 + lowest_bit(~rest.high));
    uint32_t byte = text[place], number = byte < 128 ? job.text.run_numbers[byte] : 0, end = place + count;
    if (number == 0) return {nullptr, 0, 0};
    const uint32_t* row = job.text.run_rows + ((number - 1) * RUN_LENGTHS + count - MIN_RUN) * RUN_WORDS;
    uint32_t behind = place ? text[place - 1] & 0x7F : 0, in_front = end < length ? text[end] & 0x7F : 0;
    bool unsafe = row[0] == 0;
    if (place) unsafe |= row[RUN_BEHIND + behind / 32] >> behind % 32 & 1;
    if (end < length) unsafe |= row[RUN_IN_FRONT + in_front / 32] >> in_front % 32 & 1;
    if (unsafe) return {nullptr, 0, 0};
    return {row, place, count};
}

// The run of this lane: that of lane i is number i of the piece; further ones have no head start.
template <uint32_t LANES>
DEVICE Run run_of_lane(const Job& job, const Group<LANES>& group, const uint8_t* text, uint32_t length,
                       const Places& same) {
    Places begins = run_begins(same);
    for (uint32_t before = 0; before < group.member; before++) begins = without_lowest(begins);
    return any_of(begins) ? run_at(job, text, length, same, lowest_of(begins)) : Run{nullptr, 0, 0};
}

// The places of a group's runs.
template <uint32_t LANES> DEVICE Places covered_places(const Run& run) {
    Places before = places_before(run.place), inside = places_before(run.place + run.length);
    return of_group<LANES>({inside.low & ~before.low, inside.high & ~before.high});
}

// Writes a run's symbols and the keys of its pairs; returns where the last symbol begins.
template <uint32_t LANES> DEVICE uint32_t write_run(Group<LANES>& group, const Run& run) {
    const uint4* fours = reinterpret_cast<const uint4*>(run.row);
    uint32_t place = run.place, last = place;
    for (uint32_t four = 0; four < RUN_SYMBOLS / 4; four++) {
        uint4 w = __ldg(fours + four), r = __ldg(fours + RUN_SYMBOLS / 4 + four);
        const uint32_t words[4] = {w.x, w.y, w.z, w.w}, ranks[4] = {r.x, r.y, r.z, r.w};
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            if (words[i] == 0) return last;
            last = place;
            place += length_of(words[i]);
            group.word(last) = group.word(place - 1) = words[i];
            group.key(last) = key_of(ranks[i], last);
        }
    }
    return last;
}

// The key of the symbol at `place` and the one at `next`.
template <uint32_t LANES>
DEVICE uint32_t key_of_symbols(const PairRanks& table, const PairFilter* filter, Group<LANES>& group,
                               uint32_t place, uint32_t next) {
    Pair pair = pair_of(table, symbol_of(group.word(place)), symbol_of(group.word(next)));
    bool is_needed = may_merge(filter, pair);
    return key_of(rank_in(table, pair, load_bucket(table, pair, is_needed), is_needed), place);
}

// Puts the lanes' runs into the columns, which hold the bytes of the piece, and no keys at the places of runs. All
// lanes of the warp call it. All runs are written before the pairs at their ends are looked up; a pair between two runs
// is looked up once.
template <uint32_t LANES>
DEVICE void start_runs(const PairRanks& table, const PairFilter* filter, Group<LANES>& group, const Run& run,
                       const Places& covered, uint32_t length) {
    uint32_t end = run.place + run.length, last = run.length ? write_run(group, run) : 0;
    __syncwarp();
    if (run.length && end < length) group.key(last) = key_of_symbols(table, filter, group, last, end);
    if (run.length && run.place && !has_place(covered, run.place - 1)) {
        uint32_t before = run.place - 1;
        group.key(before) = key_of_symbols(table, filter, group, before, run.place);
    }
    __syncwarp();
}

}  // namespace warptok::text
