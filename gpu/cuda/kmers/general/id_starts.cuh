// Where ids begin in any batch: rows of several runs, special tokens, circles, words.
//
// A warp takes a tile of LETTER_TILE letters, a lane 64 of them, whose bits are one word.
//
//     mark_letter_rows  a break where a row begins
//     find_breaks       a break where a letter is of another class than the one before, or stands alone
//     enter_tiles       the last break before each tile
//     find_places       a start bit where an id begins
//     sum_letter_tiles  the ids before each tile
//     letter_offsets    the ids before each row
//     write_places      the ids
//
// Example, Nucleotide Transformer, where k-mers begin anew in every run:
//
//     letters   A C G T A N N A x y A
//     breaks    1 0 0 0 0 1 1 1 1 0 1
//     starts    1 0 0 1 1 1 1 1 1 0 1     k = 3: ACG T A N N A other A
//
// A row with white space is read as words where the vocabulary `has_words`: each run of other letters
// must be one k-mer, or a special token.
//
// kmers/kernels.cu declares these kernels. They run in this order where plain kernels set STATUS_FALLBACK or are not
// tried. A text that is not plain ASCII is rewritten before them (kmers/general/expand_text.cuh).
//
// Invariant: each start bit is one id, so letter_tile_ids and id_offsets follow from these bits alone.
#pragma once
#include "kmers/general/breaks.cuh"

namespace warptok::kmers {

// The number of letters from one on up to the first break behind it or the batch's end, at most `limit`.
DEVICE uint32_t letters_to_break(const Job& job, uint64_t letter, uint32_t limit) {
    uint64_t rest = num_letters(job) - letter;
    if (rest < limit) limit = static_cast<uint32_t>(rest);
    for (uint64_t at = letter + 1; at < letter + limit; at = (at / 64 + 1) * 64) {
        uint64_t bits = job.kmers.breaks[at / 64] >> at % 64;
        if (bits) return min_of(limit, static_cast<uint32_t>(at - letter) + lowest_bit(bits));
    }
    return limit;
}

// The byte of the batch where a letter's character begins.
DEVICE uint64_t first_byte_of(const Job& job, uint64_t letter) {
    return job.kmers.letters ? job.kmers.letter_places[letter] : letter;
}

DEVICE uint64_t byte_behind(const Job& job, uint64_t letter) {
    if (!job.kmers.letters) return letter + 1;
    uint64_t place = job.kmers.letter_places[letter];
    if (job.kmers.letters[letter] == SPECIAL_LETTER)
        return place + border_behind(job, place, special_limit(job, place));
    return place + bytes_of_character(job.batch.text[place]);
}

// A word: the number of its letters, or one more than is allowed where it has more; and the special token that it is.
struct Word {
    uint32_t letters, special_id;
};

DEVICE Word word_at(const Job& job, uint64_t letter, uint32_t flags) {
    uint32_t count = letters_to_break(job, letter, MAX_SPECIAL + 1);
    Word word = {count, NO_ID};
    if (count > MAX_SPECIAL) return word;
    uint64_t begin = first_byte_of(job, letter), size = byte_behind(job, letter + count - 1) - begin;
    const uint32_t* text = reinterpret_cast<const uint32_t*>(job.batch.text);
    for (uint32_t root = 0; root < 2 && size <= MAX_SPECIAL; root++) {
        SpecialMatch found = longest_special(job, root, text, begin, size);
        if (found.length != size) continue;
        if (!found.ordinary && flags & ROW_REFUSE_SPECIAL) word.letters = 0;
        if (found.ordinary || flags & ROW_MATCH_SPECIAL) word.special_id = job.special.special_nodes[found.node];
    }
    return word;
}

// The row whose letters are read; where all rows are alike, one stands for all.
struct LetterRow {
    uint64_t number, end;                  // `end` is the first letter behind it.
    uint32_t flags;
    bool is_circle, has_words;
};

DEVICE LetterRow letter_row(const Job& job, uint64_t letter) {
    if (!(job.kmers.can_wrap || job.kmers.has_words || job.kmers.own_spans)) return {0, ~0ull, 0, false, false};
    uint64_t number = row_of_letter(job, letter), end = job.kmers.letter_rows[number + 1];
    uint32_t flags = job.rows.row_flags ? job.rows.row_flags[number] : ROW_MATCH_SPECIAL;
    bool wraps = job.kmers.can_wrap && is_circle(job, number);
    return {number, end, flags, wraps, job.kmers.row_has_words[number] != 0};
}

// The breaks among the 63 letters behind letter i of a word, of which the end of the batch is one.
struct BreaksBehind {
    uint64_t own, next;

    DEVICE_METHOD BreaksBehind(const Job& job, uint64_t first) {
        uint64_t end = num_letters(job);
        own = job.kmers.breaks[first / 64];
        next = first + 64 < end ? job.kmers.breaks[first / 64 + 1] : 0;
        if (end < first + 64) own |= 1ull << (end - first);
        else if (end < first + 128) next |= 1ull << (end - first - 64);
    }

    // The number of letters from letter i on up to the next break, at most k.
    DEVICE_METHOD uint32_t rest(uint32_t i, uint32_t k) const {
        uint64_t behind = i < 63 ? own >> (i + 1) | next << (63 - i) : next;
        return behind ? min_of(k, lowest_bit(behind) + 1) : k;
    }
};

// Whether an id begins at a letter that is `distance` behind the begin of its run and has `rest` letters
// up to the run's end, or k where there are more; phase is the distance modulo the stride.
DEVICE bool begins_id(const Job& job, uint64_t distance, uint32_t rest, uint32_t phase, uint32_t letter_class) {
    if (letter_class == SPACE) return false;
    if (letter_class != BASE) return distance == 0;  // Those that stand alone are breaks.
    if (rest == job.kmers.kmer_k) return phase == 0;
    return job.kmers.keeps_remainder && distance >= covered_letters(job, distance + rest);
}

// Returns the start bits of a lane's letters, letter by letter, where rows may be circles or words. The first letter
// lies in a run that begins with letter `begin`.
DEVICE uint64_t starts_of_rows(const Job& job, const uint32_t* table, uint64_t first, uint64_t begin) {
    uint64_t end = num_letters(job), breaks = job.kmers.breaks[first / 64], starts = 0;
    uint32_t stride = job.kmers.kmer_stride, phase = (first - begin) % stride;
    BreaksBehind behind(job, first);
    LetterRow row = letter_row(job, first);
    LetterReader reader(job, first);
    for (uint32_t i = 0; i < 64 && first + i < end; i++, phase = phase + 1 == stride ? 0 : phase + 1) {
        uint64_t letter = first + i;
        if (breaks >> i & 1) begin = letter, phase = 0;
        if (letter >= row.end) row = letter_row(job, letter);
        uint32_t letter_class = class_of(table[reader.next()]);
        bool is_start = row.is_circle;
        if (row.has_words) {
            is_start = letter == begin && letter_class != SPACE;
            if (is_start) {
                Word word = word_at(job, letter, row.flags);
                if (word.special_id == NO_ID && word.letters != job.kmers.kmer_k)
                    note_fault(job.rows.row_refused, row.number, static_cast<uint32_t>(first_byte_of(job, letter)));
            }
        } else if (!row.is_circle) {
            is_start = begins_id(job, letter - begin, behind.rest(i, job.kmers.kmer_k), phase, letter_class);
        }
        starts |= static_cast<uint64_t>(is_start) << i;
    }
    return starts;
}

// The bits begin <= i < end of a word.
DEVICE uint64_t bits_between(uint32_t begin, uint32_t end) {
    if (begin >= end) return 0;
    return (end < 64 ? 1ull << end : 0) - (1ull << begin);
}

// The letters begin <= i < end of a word, which are of one run. The run begins with letter `run` of the batch and ends
// behind letter `behind` of the word; FAR, if it ends so far behind that no id of these letters depends on it.
struct Stretch {
    uint64_t run;
    uint32_t begin, end, behind;
};

constexpr uint32_t FAR = 128;

// The start bits of a stretch of the class BASE; every stride-th bit of `every` is set. Letter 0 of the word
// is `first`.
DEVICE uint64_t starts_of_bases(const Job& job, const Stretch& stretch, uint64_t first, uint64_t every) {
    uint32_t stride = job.kmers.kmer_stride, k = job.kmers.kmer_k;
    uint32_t phase = (first + stretch.begin - stretch.run) % stride;
    uint32_t next = stretch.begin + (phase ? stride - phase : 0);
    uint32_t kmers_end = stretch.behind < k ? 0 : min_of(stretch.end, stretch.behind - k + 1);
    uint64_t starts = next < kmers_end ? every << next & bits_between(next, kmers_end) : 0;
    if (!job.kmers.keeps_remainder || stretch.behind == FAR) return starts;
    uint64_t rest = stretch.run + covered_letters(job, first + stretch.behind - stretch.run);
    uint32_t rest_begin = rest > first + stretch.begin ? min_of(rest - first, 64) : stretch.begin;
    return starts | bits_between(rest_begin, stretch.end);
}

// Returns the start bits of a lane's letters, stretch by stretch, where rows are neither circles nor words.
DEVICE uint64_t starts_of_runs(const Job& job, const uint32_t* table, uint64_t first, uint64_t run, uint64_t every) {
    uint64_t breaks = job.kmers.breaks[first / 64], starts = 0;
    uint32_t end = min_of(num_letters(job) - first, 64);
    BreaksBehind behind(job, first);
    for (Stretch stretch = {run, 0, 0, 0}; stretch.begin < end; stretch.begin = stretch.end) {
        if (breaks >> stretch.begin & 1) stretch.run = first + stretch.begin;
        uint64_t breaks_behind = stretch.begin < 63 ? behind.own >> (stretch.begin + 1) : 0;
        stretch.behind = behind.next ? 64 + lowest_bit(behind.next) : FAR;
        if (breaks_behind) stretch.behind = stretch.begin + 1 + lowest_bit(breaks_behind);
        stretch.end = min_of(stretch.behind, end);
        uint32_t letter_class = class_of(table[letter_at(job, first + stretch.begin)]);
        if (letter_class == BASE) starts |= starts_of_bases(job, stretch, first, every);
        else if (letter_class != SPACE && stretch.run == first + stretch.begin) starts |= 1ull << stretch.begin;
    }
    return starts;
}

// The bits 0, stride, 2 stride, ...
DEVICE uint64_t every_bit(uint32_t stride) {
    uint64_t bits = 0;
    for (uint32_t i = 0; i < 64; i += stride) bits |= 1ull << i;
    return bits;
}

DEVICE void find_places_stage(const Job& job, uint32_t* table, uint32_t block, uint32_t num_blocks) {
    load_letters(job, table);
    uint32_t lane = threadIdx.x & 31, warps = num_blocks * (BLOCK / 32);
    uint64_t end = num_letters(job), every = every_bit(job.kmers.kmer_stride);
    bool by_letters = job.kmers.can_wrap || job.kmers.has_words;
    for (uint64_t tile = block * (BLOCK / 32) + threadIdx.x / 32; tile < letter_tiles(job); tile += warps) {
        uint64_t first = tile * LETTER_TILE + lane * 64;
        uint64_t breaks = first < end ? job.kmers.breaks[first / 64] : 0;
        uint32_t last = breaks ? static_cast<uint32_t>(first) + highest_bit(breaks) : 0;
        for (uint32_t distance = 1; distance < 32; distance *= 2) {
            uint32_t other = __shfl_up_sync(ALL_LANES, last, distance);
            if (lane >= distance && other > last) last = other;
        }
        uint32_t begin = __shfl_up_sync(ALL_LANES, last, 1), entry = job.kmers.letter_tiles[tile];
        if (lane == 0 || begin < entry) begin = entry;
        uint64_t starts = 0;
        if (first < end) {
            starts = by_letters ? starts_of_rows(job, table, first, begin)
                                : starts_of_runs(job, table, first, begin, every);
            job.text.starts[first / 64] = starts;
        }
        uint32_t ids = __reduce_add_sync(ALL_LANES, count_bits(starts));
        if (lane == 0) job.kmers.letter_tile_ids[tile] = ids;
    }
}

// Writes id_offsets, a warp per row: the ids before its tile and the starts before it in the tile. Rows that cannot be
// circles, and reversed ones that are no sequences, are refused here.
DEVICE void letter_offsets_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint32_t lane = threadIdx.x & 31, warps = num_blocks * (BLOCK / 32);
    for (uint64_t row = block * (BLOCK / 32) + threadIdx.x / 32; row <= job.batch.num_rows; row += warps) {
        uint64_t begin = job.kmers.letter_rows[row], tile = begin / LETTER_TILE, word = tile * 32 + lane;
        uint64_t bits = word * 64 < begin ? job.text.starts[word] : 0;
        if (word == begin / 64) bits &= (1ull << begin % 64) - 1;
        uint32_t ids = __reduce_add_sync(ALL_LANES, count_bits(bits));
        if (lane) continue;
        job.answer.id_offsets[row] = job.kmers.letter_tile_ids[tile] + ids;
        if (row == job.batch.num_rows) continue;
        bool is_open =
            is_circle(job, row) && (!job.kmers.can_wrap || job.kmers.letter_rows[row + 1] - begin < job.kmers.kmer_k);
        if (is_open || is_no_sequence(job, row))
            note_fault(job.rows.row_refused, row, static_cast<uint32_t>(job.rows.row_begins[row]));
    }
}

}  // namespace warptok::kmers
