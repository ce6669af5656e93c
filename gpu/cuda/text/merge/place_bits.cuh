// A set of places of a piece of up to 128 bytes, a bit for each place.
#pragma once
#include "text/merge/piece_state.cuh"

namespace warptok::text {

struct Places {
    uint64_t low, high;
};

DEVICE bool any_of(const Places& places) { return (places.low | places.high) != 0; }
DEVICE Places operator&(const Places& a, const Places& b) { return {a.low & b.low, a.high & b.high}; }

// The lowest place; there must be one.
DEVICE uint32_t lowest_of(const Places& places) {
    return places.low ? lowest_bit(places.low) : 64 + lowest_bit(places.high);
}

DEVICE Places without_lowest(const Places& places) {
    return {places.low & (places.low - 1), places.low ? places.high : places.high & (places.high - 1)};
}

// Moves every place down by `count`, which is below 128.
DEVICE Places moved_down(const Places& places, uint32_t count) {
    if (count >= 64) return {places.high >> (count - 64), 0};
    if (count == 0) return places;
    return {places.low >> count | places.high << (64 - count), places.high >> count};
}

// Moves every place up by one.
DEVICE Places moved_up(const Places& places) {
    return {places.low << 1, places.high << 1 | places.low >> 63};
}

DEVICE bool has_place(const Places& places, uint32_t place) { return moved_down(places, place).low & 1; }

// The places before `end`, up to 128.
DEVICE Places places_before(uint32_t end) {
    return {end >= 64 ? ~0ull : (1ull << end) - 1, end >= 128 ? ~0ull : end > 64 ? (1ull << (end - 64)) - 1 : 0};
}

// The places of all lanes of a group together.
template <uint32_t LANES> DEVICE Places of_group(Places places) {
#pragma unroll
    for (uint32_t distance = 1; distance < LANES; distance *= 2) {
        places.low |= __shfl_xor_sync(ALL_LANES, places.low, distance);
        places.high |= __shfl_xor_sync(ALL_LANES, places.high, distance);
    }
    return places;
}

// The four bits of a slot among the places of a piece.
DEVICE Places four_places(uint32_t first, uint32_t bits) {
    uint64_t four = static_cast<uint64_t>(bits) << first % 64;
    return {first < 64 ? four : 0, first < 64 ? 0 : four};
}

DEVICE uint32_t four_of(const Places& places, uint32_t first) {
    return (first < 64 ? places.low : places.high) >> first % 64 & 0xF;
}

}  // namespace warptok::text
