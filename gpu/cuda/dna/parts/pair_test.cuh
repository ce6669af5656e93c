// Tests whether a token may follow the last token of a place, as far as this last token is known in a round.
//
//     last token at place 4     token that begins there     may_begin
//     ca                        t                           MAY, if (ca, t) is compatible, else MAY_NOT
//     ca or a                   t                           the same, if both give the same, else WAITS
//
// Invariant: MAY and MAY_NOT are right whenever they are returned, whatever other threads write meanwhile.
#pragma once
#include "dna/parts/n_runs.cuh"

namespace warptok::dna {

// Whether a token may follow the last token of a place. WAITS: that is not known yet. NEVER: it will not be known.
constexpr uint32_t MAY_NOT = 0, MAY = 1, WAITS = 2, NEVER = 3;

// The classes at a place of a round that begins with letter `first`.
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

// Whether a token of a right class may begin at a place: MAY_NOT, MAY, WAITS or NEVER.
DEVICE uint32_t may_begin(const Job& job, PartShared& shared, uint32_t first, uint32_t place, uint32_t right) {
    uint32_t classes = classes_at(shared, first, place);
    if ((classes & (IS_LISTED | IS_AT_BORDER)) == (IS_LISTED | IS_AT_BORDER)) classes = 0;
    if (classes < IS_LISTED) {
        uint32_t one = classes & 0xFFFF, other = classes >> 16;
        bool may = may_follow(job, one, right);
        if (one == other || may == may_follow(job, other, right)) return may;
    }
    return length_at(shared, place) == NEVER_KNOWN ? NEVER : WAITS;
}

// Whether a token of so many letters that ends at a place has a certain border in it.
DEVICE bool has_certain(const PartShared& shared, uint32_t place, uint32_t length) {
    if (length < 2) return false;
    uint32_t count = min_of(length - 1, 32), bits = certain_before(shared, place) >> (32 - count);
    if (length > 33) bits |= certain_before(shared, place - 32) >> (65 - length);
    return bits;
}

}  // namespace warptok::dna
