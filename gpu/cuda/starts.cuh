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
#pragma once
#include "expand.cuh"

constexpr uint32_t LETTER_TILE = 2048;
static_assert(LETTER_TILE == 32 * 64, "a lane a word");

// Neighbouring letters of a lane, eight bytes of them a load: lanes are 64 letters apart, and a load costs
// a warp a cycle for each of them, however little it fetches. The first one's number is a multiple of 8.
struct LetterReader {
    const uint64_t* words;
    uint64_t word = 0;
    uint32_t bits, left = 0;

    DEVICE_METHOD LetterReader(const Job& job, uint64_t first) : bits(job.letters ? 16 : 8) {
        const uint8_t* from = job.letters ? reinterpret_cast<const uint8_t*>(job.letters + first) : job.text + first;
        words = reinterpret_cast<const uint64_t*>(from);
    }

    DEVICE_METHOD uint32_t next() {
        if (left == 0) word = *words++, left = 64 / bits;
        uint32_t letter = static_cast<uint32_t>(word) & ((1u << bits) - 1);
        word >>= bits;
        left--;
        return letter;
    }
};

DEVICE uint64_t letter_tiles(const Job& job) { return (num_letters(job) + LETTER_TILE - 1) / LETTER_TILE; }

DEVICE uint32_t class_of(uint32_t entry) { return entry >> CLASS_SHIFT; }

DEVICE bool stands_alone(uint32_t letter_class) { return letter_class == SINGLE || letter_class == SPECIAL; }

DEVICE void mark_letter_rows_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint64_t stride = static_cast<uint64_t>(num_blocks) * BLOCK, end = num_letters(job);
    for (uint64_t row = static_cast<uint64_t>(block) * BLOCK + threadIdx.x; row < job.num_rows; row += stride) {
        uint64_t begin = job.letter_rows[row];
        if (begin < end) set_bit(job.breaks, begin);
        job.row_has_words[row] = 0;
    }
}

// Notes what a row may not have: white space makes words of it, and keeps a circle from closing.
DEVICE void note_space(const Job& job, uint64_t letter, uint32_t letter_class) {
    if (letter_class == OTHER || !(job.can_wrap || job.has_words)) return;
    uint64_t row = row_of_letter(job, letter);
    if (is_circle(job, row)) note_fault(job.row_refused, row, static_cast<uint32_t>(job.row_begins[row]));
    else if (job.has_words && letter_class == SPACE) job.row_has_words[row] = 1;
}

DEVICE void find_breaks_stage(const Job& job, uint32_t* table, uint32_t block, uint32_t num_blocks) {
    load_letters(job, table);
    uint32_t lane = threadIdx.x & 31, warps = num_blocks * (BLOCK / 32);
    uint64_t end = num_letters(job);
    for (uint64_t tile = block * (BLOCK / 32) + threadIdx.x / 32; tile < letter_tiles(job); tile += warps) {
        uint64_t begin = tile * LETTER_TILE + lane * 64, bits = 0;
        uint32_t before = begin && begin < end ? class_of(table[letter_at(job, begin - 1)]) : BASE;
        LetterReader reader(job, begin);
        for (uint32_t i = 0; i < 64 && begin + i < end; i++) {
            uint32_t own = class_of(table[reader.next()]);
            if (own != before || stands_alone(own)) bits |= 1ull << i;
            if (own >= SPACE) note_space(job, begin + i, own);
            before = own;
        }
        if (begin < end) bits |= job.breaks[begin / 64];
        if (begin < end) job.breaks[begin / 64] = bits;
        uint32_t last = bits ? static_cast<uint32_t>(begin) + highest_bit(bits) : 0;
        for (uint32_t distance = 16; distance; distance /= 2) {
            uint32_t other = __shfl_xor_sync(0xFFFFFFFF, last, distance);
            if (other > last) last = other;
        }
        if (lane == 0) job.letter_tiles[tile] = last;
    }
}

// The sum of the counts of this lane and all before it.
DEVICE uint32_t sum_of_counts(uint32_t count) {
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
        uint32_t other = __shfl_up_sync(0xFFFFFFFF, count, distance);
        if ((threadIdx.x & 31) >= distance) count += other;
    }
    return count;
}

// What all tiles before each one come to, by one block of SCAN_THREADS: the largest value of those
// before it, or their sum. values[tiles] is that of all.
constexpr uint32_t SCAN_THREADS = 1024;

template <class Join>
DEVICE void scan_letter_tiles(uint32_t* values, uint64_t tiles, uint32_t* scratch, Join join) {
    uint32_t lane = threadIdx.x & 31, warp = threadIdx.x / 32, all = 0;
    for (uint64_t first = 0; first <= tiles; first += SCAN_THREADS) {
        uint64_t tile = first + threadIdx.x;
        uint32_t inclusive = tile < tiles ? values[tile] : 0;
        for (uint32_t distance = 1; distance < 32; distance *= 2) {
            uint32_t other = __shfl_up_sync(0xFFFFFFFF, inclusive, distance);
            if (lane >= distance) inclusive = join(inclusive, other);
        }
        uint32_t exclusive = __shfl_up_sync(0xFFFFFFFF, inclusive, 1);
        if (lane == 0) exclusive = 0;
        if (lane == 31) scratch[warp] = inclusive;
        __syncthreads();
        uint32_t others = all;
        for (uint32_t i = 0; i < warp; i++) others = join(others, scratch[i]);
        if (tile <= tiles) values[tile] = join(others, exclusive);
        for (uint32_t i = 0; i < SCAN_THREADS / 32; i++) all = join(all, scratch[i]);
        __syncthreads();
    }
}

DEVICE void enter_tiles_stage(const Job& job, uint32_t* scratch) {
    scan_letter_tiles(job.letter_tiles, letter_tiles(job), scratch,
                      [](uint32_t a, uint32_t b) { return a < b ? b : a; });
}

DEVICE void sum_letter_tiles_stage(const Job& job, uint32_t* scratch) {
    scan_letter_tiles(job.letter_tile_ids, letter_tiles(job), scratch,
                      [](uint32_t a, uint32_t b) { return a + b; });
    if (threadIdx.x == 0) job.status[STATUS_NUM_IDS] = job.letter_tile_ids[letter_tiles(job)];
}

// Letters from one on to the first break behind it or the batch's end, `limit` where that is nearer.
DEVICE uint32_t letters_to_break(const Job& job, uint64_t letter, uint32_t limit) {
    uint64_t rest = num_letters(job) - letter;
    if (rest < limit) limit = static_cast<uint32_t>(rest);
    for (uint64_t at = letter + 1; at < letter + limit; at = (at / 64 + 1) * 64) {
        uint64_t bits = job.breaks[at / 64] >> at % 64;
        if (bits) return min_of(limit, static_cast<uint32_t>(at - letter) + lowest_bit(bits));
    }
    return limit;
}

// Bytes: where a letter's character begins in the batch, and where it ends.
DEVICE uint64_t byte_of(const Job& job, uint64_t letter) {
    return job.letters ? job.letter_places[letter] : letter;
}

DEVICE uint64_t byte_behind(const Job& job, uint64_t letter) {
    if (!job.letters) return letter + 1;
    uint64_t place = job.letter_places[letter];
    if (job.letters[letter] == SPECIAL_LETTER)
        return place + border_behind(job, place, special_limit(job, place));
    return place + bytes_of_character(job.text[place]);
}

// A word: its letters, one more than there may be where it is longer; and the special token that it is.
struct Word {
    uint32_t letters, special_id;
};

DEVICE Word word_at(const Job& job, uint64_t letter, uint32_t flags) {
    uint32_t count = letters_to_break(job, letter, MAX_SPECIAL + 1);
    Word word = {count, NO_ID};
    if (count > MAX_SPECIAL) return word;
    uint64_t begin = byte_of(job, letter), size = byte_behind(job, letter + count - 1) - begin;
    const uint32_t* text = reinterpret_cast<const uint32_t*>(job.text);
    for (uint32_t root = 0; root < 2 && size <= MAX_SPECIAL; root++) {
        SpecialMatch found = longest_special(job, root, text, begin, size);
        if (found.length != size) continue;
        if (!found.ordinary && flags & ROW_REFUSE_SPECIAL) word.letters = 0;
        if (found.ordinary || flags & ROW_MATCH_SPECIAL) word.special_id = job.special_nodes[found.node];
    }
    return word;
}

// What a row is, while its letters are walked; where rows are all alike, one for all.
struct LetterRow {
    uint64_t number, end;                  // `end` is the first letter behind it.
    uint32_t flags;
    bool is_circle, has_words;
};

DEVICE LetterRow letter_row(const Job& job, uint64_t letter) {
    if (!(job.can_wrap || job.has_words || job.own_spans)) return {0, ~0ull, 0, false, false};
    uint64_t number = row_of_letter(job, letter), end = job.letter_rows[number + 1];
    uint32_t flags = job.row_flags ? job.row_flags[number] : ROW_MATCH_SPECIAL;
    bool wraps = job.can_wrap && is_circle(job, number);
    return {number, end, flags, wraps, job.row_has_words[number] != 0};
}

// The breaks among the 63 letters behind letter i of a word, of which the end of the batch is one.
struct BreaksBehind {
    uint64_t own, next;

    DEVICE_METHOD BreaksBehind(const Job& job, uint64_t first) {
        uint64_t end = num_letters(job);
        own = job.breaks[first / 64];
        next = first + 64 < end ? job.breaks[first / 64 + 1] : 0;
        if (end < first + 64) own |= 1ull << (end - first);
        else if (end < first + 128) next |= 1ull << (end - first - 64);
    }

    // Letters from letter i on to the next break, at most k.
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
    if (rest == job.kmer_k) return phase == 0;
    return job.keeps_remainder && distance >= covered_letters(job, distance + rest);
}

// The start bits of a lane's letters, of which the first one lies in a run that begins with `begin`.
DEVICE uint64_t starts_of(const Job& job, const uint32_t* table, uint64_t first, uint64_t begin) {
    uint64_t end = num_letters(job), breaks = job.breaks[first / 64], starts = 0;
    uint32_t stride = job.kmer_stride, phase = (first - begin) % stride;
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
                if (word.special_id == NO_ID && word.letters != job.kmer_k)
                    note_fault(job.row_refused, row.number, static_cast<uint32_t>(byte_of(job, letter)));
            }
        } else if (!row.is_circle) {
            is_start = begins_id(job, letter - begin, behind.rest(i, job.kmer_k), phase, letter_class);
        }
        starts |= static_cast<uint64_t>(is_start) << i;
    }
    return starts;
}

DEVICE void find_places_stage(const Job& job, uint32_t* table, uint32_t block, uint32_t num_blocks) {
    load_letters(job, table);
    uint32_t lane = threadIdx.x & 31, warps = num_blocks * (BLOCK / 32);
    uint64_t end = num_letters(job);
    for (uint64_t tile = block * (BLOCK / 32) + threadIdx.x / 32; tile < letter_tiles(job); tile += warps) {
        uint64_t first = tile * LETTER_TILE + lane * 64;
        uint64_t breaks = first < end ? job.breaks[first / 64] : 0;
        uint32_t last = breaks ? static_cast<uint32_t>(first) + highest_bit(breaks) : 0;
        for (uint32_t distance = 1; distance < 32; distance *= 2) {
            uint32_t other = __shfl_up_sync(0xFFFFFFFF, last, distance);
            if (lane >= distance && other > last) last = other;
        }
        uint32_t begin = __shfl_up_sync(0xFFFFFFFF, last, 1), entry = job.letter_tiles[tile];
        if (lane == 0 || begin < entry) begin = entry;
        uint64_t starts = first < end ? starts_of(job, table, first, begin) : 0;
        if (first < end) job.starts[first / 64] = starts;
        uint32_t ids = __reduce_add_sync(0xFFFFFFFF, count_bits(starts));
        if (lane == 0) job.letter_tile_ids[tile] = ids;
    }
}

// id_offsets by a warp a row: the ids before its tile, and the starts before it in the tile. Rows that
// cannot be circles, and turned ones that are no sequences, are refused here.
DEVICE void letter_offsets_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint32_t lane = threadIdx.x & 31, warps = num_blocks * (BLOCK / 32);
    for (uint64_t row = block * (BLOCK / 32) + threadIdx.x / 32; row <= job.num_rows; row += warps) {
        uint64_t begin = job.letter_rows[row], tile = begin / LETTER_TILE, word = tile * 32 + lane;
        uint64_t bits = word * 64 < begin ? job.starts[word] : 0;
        if (word == begin / 64) bits &= (1ull << begin % 64) - 1;
        uint32_t ids = __reduce_add_sync(0xFFFFFFFF, count_bits(bits));
        if (lane) continue;
        job.id_offsets[row] = job.letter_tile_ids[tile] + ids;
        if (row == job.num_rows) continue;
        bool is_open = is_circle(job, row) && (!job.can_wrap || job.letter_rows[row + 1] - begin < job.kmer_k);
        if (is_open || is_no_sequence(job, row))
            note_fault(job.row_refused, row, static_cast<uint32_t>(job.row_begins[row]));
    }
}
