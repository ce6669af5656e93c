// Packs letters into two bits, and classifies every byte of a text before any merge.
//
// Up to four of the letters that merge are *bases*; the others that merge are *mixed*. All other letters are *gaps*. A
// gap is a piece of its own, or has no id where the pretokenizer drops it. No token crosses a *certain* border: the
// begin or end of a row, of a special token or of a gap. A *stop* is a certain border or a mixed letter.
//
//     text        A C G T - A C N A _ A        '-' and the blank are gaps, N is mixed
//     codes       0 1 2 3 . 0 1 . 0 . 0
//     gap         . . . . 1 . . . . 1 .
//     certain     1 . . . 1 1 . . . 1 1
//     stop        1 . . . 1 1 . 1 . 1 1
//     starts      . . . . 1 . . . . . .        of gaps only: the blank is dropped
#pragma once
#include "special/trie.cuh"

namespace warptok::dna {

constexpr uint32_t LETTER_MIXED = 4;       // dna_classes: below it are codes of bases.
constexpr uint32_t LETTER_GAP = 5;         // Of characters beyond ASCII, too.
constexpr uint32_t LETTER_DROPPED = 6;     // A gap without an id.
constexpr uint32_t LETTER_UNKNOWN = 7;     // It is dropped and its neighbours merge, which kernels do not cover.
constexpr uint32_t NO_TOKEN = 0xFFFF;

DEVICE uint32_t class_of(const Job& job, uint64_t place) { return __ldg(job.dna.dna_classes + job.batch.text[place]); }

DEVICE bool bit_of(const uint64_t* words, uint64_t place) { return words[place / 64] >> place % 64 & 1; }

// Whether a letter is in a run that is replaced: run_length or more of run_letter.
DEVICE bool is_in_run(const Job& job, uint64_t place) {
    uint32_t length = 1;
    for (uint64_t at = place; length < job.dna.run_length; at--, length++)
        if (at == 0 || bit_of(job.batch.hard, at) || job.batch.text[at - 1] != job.dna.run_letter) break;
    for (uint64_t at = place + 1; length < job.dna.run_length; at++, length++)
        if (at >= job.batch.num_bytes || bit_of(job.batch.hard, at) || job.batch.text[at] != job.dna.run_letter) break;
    return length >= job.dna.run_length;
}

// Whether a run of run_letter begins at a place.
DEVICE bool begins_run(const Job& job, uint64_t place) {
    return place == 0 || bit_of(job.batch.hard, place) || job.batch.text[place - 1] != job.dna.run_letter;
}

// The character that begins at a byte of well-formed UTF-8.
DEVICE uint32_t character_at(const uint8_t* text) {
    uint32_t first = text[0];
    if (first < 0x80) return first;
    if (first < 0xE0) return (first & 0x1F) << 6 | (text[1] & 0x3F);
    if (first < 0xF0) return (first & 0xF) << 12 | (text[1] & 0x3F) << 6 | (text[2] & 0x3F);
    return (first & 7) << 18 | (text[1] & 0x3F) << 12 | (text[2] & 0x3F) << 6 | (text[3] & 0x3F);
}

DEVICE bool is_among(const uint32_t* characters, uint64_t count, uint32_t character) {
    for (uint64_t i = 0; i < count; i++)
        if (characters[i] == character) return true;
    return false;
}

// Whether a gap has an id: not where it is dropped or continues a character.
DEVICE bool has_id(const Job& job, uint64_t place, uint32_t letter, uint32_t type) {
    bool has_one = type == LETTER_GAP && __ldg(job.dna.dna_letter_ids + letter) != NO_TOKEN;
    if (type == LETTER_DROPPED || letter >> 6 == 2) return false;
    if (letter >= 0x80 && is_among(job.dna.dropped_letters, job.dna.num_dropped, character_at(job.batch.text + place)))
        return false;
    if (!has_one) job.answer.status[STATUS_NOT_COVERED] = 1;
    return has_one;
}

// What up to 64 letters are: codes, and bits of places.
struct DnaLetters {
    uint32_t codes[4];
    uint64_t gaps, mixed, starts;
};

DEVICE void add_gap(DnaLetters& letters, uint32_t i, bool starts) {
    letters.gaps |= 1ull << i;
    if (starts) letters.starts |= 1ull << i;
}

// A letter that is no base.
DEVICE void add_other(const Job& job, DnaLetters& letters, uint64_t place, uint32_t i) {
    uint32_t letter = job.batch.text[place], type = class_of(job, place);
    if (letter == job.dna.run_letter && is_in_run(job, place))
        add_gap(letters, i, begins_run(job, place) && job.dna.run_id != NO_TOKEN);
    else if (type == LETTER_MIXED) letters.mixed |= 1ull << i;
    else if (type >= LETTER_GAP) add_gap(letters, i, has_id(job, place, letter, type));
}

// Whether 64 letters are all the same one.
DEVICE bool are_all(const Job& job, uint64_t begin, uint32_t letter) {
    const uint4* vectors = reinterpret_cast<const uint4*>(job.batch.text + begin);
    uint32_t word = letter * 0x01010101u, differ = 0;
    for (uint32_t i = 0; i < 4; i++)
        differ |= (vectors[i].x ^ word) | (vectors[i].y ^ word) | (vectors[i].z ^ word) | (vectors[i].w ^ word);
    return !differ;
}

// Packs 64 letters that are no bases if all of them are one letter: they are part of a run that is replaced, or 64
// gaps. Returns false if they differ.
DEVICE bool same_letters(const Job& job, uint64_t begin, DnaLetters& letters) {
    uint32_t letter = job.batch.text[begin], type = class_of(job, begin);
    bool is_run = letter && letter == job.dna.run_letter;
    if (is_run ? (job.batch.hard[begin / 64] & ~1ull) != 0 : type < LETTER_GAP || letter >= 0x80) return false;
    if (!are_all(job, begin, letter)) return false;
    bool starts = is_run ? begins_run(job, begin) && job.dna.run_id != NO_TOKEN : has_id(job, begin, letter, type);
    letters = {{0, 0, 0, 0}, ~0ull, 0, !starts ? 0 : is_run ? 1 : ~0ull};
    return true;
}

// Packs the letters `begin` to `begin + 63`; places behind the text have no bits.
DEVICE DnaLetters dna_letters_at(const Job& job, uint64_t begin) {
    DnaLetters letters = {{0, 0, 0, 0}, 0, 0, 0};
    uint64_t others = 0, run = job.dna.run_letter;
#pragma unroll
    for (uint32_t part = 0; part < 4; part++) {
        if (begin + 16 * part >= job.batch.num_bytes) break;
        uint4 vector = *reinterpret_cast<const uint4*>(job.batch.text + begin + 16 * part);
        uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w}, codes = 0;
#pragma unroll
        for (uint32_t i = 0; i < 16; i++) {
            uint32_t letter = words[i / 4] >> (i % 4 * 8) & 0xFF, type = __ldg(job.dna.dna_classes + letter);
            codes |= (type & 3) << 2 * i;
            others |= static_cast<uint64_t>(type >= LETTER_MIXED || letter == run) << (16 * part + i);
        }
        letters.codes[part] = codes;
    }
    if (begin + 64 > job.batch.num_bytes)
        others &= begin < job.batch.num_bytes ? ~0ull >> (64 - (job.batch.num_bytes - begin)) : 0;
    if (others == ~0ull && same_letters(job, begin, letters)) return letters;
    for (; others; others &= others - 1) add_other(job, letters, begin + lowest_bit(others), lowest_bit(others));
    return letters;
}

// Whether the letter before a place is a gap.
DEVICE bool gap_before(const Job& job, uint64_t place) {
    if (place == 0) return false;
    uint32_t letter = job.batch.text[place - 1], type = class_of(job, place - 1);
    return type >= LETTER_GAP || (letter == job.dna.run_letter && is_in_run(job, place - 1));
}

// Writes base_words, `certain` and the starts of gaps; a thread has 64 letters.
DEVICE void pack_letters_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint64_t words = (job.batch.num_bytes + 63) / 64 + 1, stride = static_cast<uint64_t>(num_blocks) * BLOCK;
    for (uint64_t word = static_cast<uint64_t>(block) * BLOCK + threadIdx.x; word < words; word += stride) {
        uint64_t begin = word * 64;
        DnaLetters letters = dna_letters_at(job, begin);
        uint64_t certain = ~0ull;
        if (begin < job.batch.num_bytes) {
            certain = job.batch.hard[word] | letters.gaps | letters.gaps << 1;
            if (gap_before(job, begin)) certain |= 1;
            if (begin + 64 > job.batch.num_bytes) certain |= ~0ull << (job.batch.num_bytes - begin);
            job.text.starts[word] = letters.starts;
            job.dna.mixed_words[word] = letters.mixed != 0;
        }
        job.dna.certain[word] = certain;
        uint64_t stops = certain | letters.mixed;
        BaseWord* to = job.dna.base_words + word * 4;
#pragma unroll
        for (uint32_t part = 0; part < 4; part++)
            to[part] = {letters.codes[part], static_cast<uint32_t>(stops >> 16 * part & 0xFFFF) |
                                                 static_cast<uint32_t>(letters.gaps >> 16 * part) << 16};
    }
}

// Letters from a place on.
struct Ahead {
    uint32_t codes;                        // Sixteen.
    uint32_t stops;                        // Bit i: the letter i places behind the first is a stop; at least 17 bits.
    bool is_gap;                           // The first one is a gap.
};

DEVICE Ahead letters_from(BaseWord first, BaseWord second, uint32_t place) {
    uint32_t stops = (first.flags & 0xFFFF) | second.flags << 16;
    return {shift_right(first.codes, second.codes, 2 * (place % 16)), stops >> place % 16,
            (first.flags >> (16 + place % 16) & 1) != 0};
}

DEVICE Ahead letters_from(const Job& job, uint64_t place) {
    const BaseWord* words = job.dna.base_words + place / 16;
    return letters_from(words[0], words[1], static_cast<uint32_t>(place));
}

// Letters from the first one to the next stop, 17 at most.
DEVICE uint32_t bases_ahead(const Ahead& ahead) { return lowest_bit(ahead.stops >> 1 | 1u << 16) + 1; }

// Letters from a place to the first certain border behind it, 64 at most.
DEVICE uint32_t to_certain(const Job& job, uint64_t place) {
    uint64_t at = place + 1, word = at / 64, bits = job.dna.certain[word] >> at % 64;
    if (at % 64) bits |= job.dna.certain[word + 1] << (64 - at % 64);
    return bits ? 1 + lowest_bit(bits) : 64;
}

}  // namespace warptok::dna
