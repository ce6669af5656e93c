// Replaces letters by others, one for one, before they are merged, such as lower case by upper case and U by T.
//
// This runs between the two rounds of special tokens: special tokens of the first round keep their letters, and motifs,
// which are tokens of the second round, are found in the replaced letters.
//
//     text    a c U [SEP] g       becomes    A C T [SEP] G
#pragma once
#include "dna/packed_text.cuh"
#include "special/find.cuh"

namespace warptok::dna {

// A bit for each of 64 places that lies in an accepted special token, which begins at most four words in front of them.
DEVICE uint64_t special_among(const Job& job, uint64_t word) {
    constexpr uint64_t BACK = MAX_SPECIAL / 64;
    uint64_t inside = 0, place = word * 64;
    for (uint64_t at = word < BACK ? 0 : word - BACK; at <= word; at++) {
        for (uint64_t bits = job.special.special[at]; bits; bits &= bits - 1) {
            uint64_t begin = at * 64 + lowest_bit(bits);
            uint64_t end = begin + border_behind(job, begin, special_limit(job, begin));
            if (end <= place) continue;
            uint64_t behind = end - place;
            inside |= (behind < 64 ? (1ull << behind) - 1 : ~0ull) & (begin > place ? ~0ull << (begin - place) : ~0ull);
        }
    }
    return inside;
}

// Replaces the letters of a batch; a thread has 64 letters. Characters beyond ASCII stay, as they have no ids.
DEVICE void map_letters_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint8_t* text = const_cast<uint8_t*>(job.batch.text);
    uint64_t words = (job.batch.num_bytes + 63) / 64, stride = static_cast<uint64_t>(num_blocks) * BLOCK;
    for (uint64_t word = static_cast<uint64_t>(block) * BLOCK + threadIdx.x; word < words; word += stride) {
        uint64_t kept = job.special.special_counts[COUNT_ACCEPTED] ? special_among(job, word) : 0;
        for (uint32_t part = 0; part < 16 && word * 64 + 4 * part < job.batch.num_bytes; part++) {
            uint32_t* to = reinterpret_cast<uint32_t*>(text + word * 64) + part;
            uint32_t letters = *to, made = 0;
            for (uint32_t i = 0; i < 4; i++) {
                uint32_t letter = letters >> 8 * i & 0xFF, number = 4 * part + i;
                bool is_kept = kept >> number & 1;
                made |= (is_kept ? letter : __ldg(job.dna.letter_map + letter)) << 8 * i;
                if (letter < 0xC0 || is_kept || word * 64 + number >= job.batch.num_bytes) continue;
                uint32_t character = character_at(job.batch.text + word * 64 + number);
                if (is_among(job.dna.uncovered_letters, job.dna.num_uncovered, character))
                    job.answer.status[STATUS_NOT_COVERED] = 1;
            }
            if (made != letters) *to = made;
        }
    }
}

}  // namespace warptok::dna
