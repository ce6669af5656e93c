// Runs of letters where k-mers begin anew in each of them (Nucleotide Transformer), in batches whose bytes are letters.
//
// What kmers/general/id_starts.cuh says holds here, too, but a run is known by its length: nothing is kept of a letter but its ids,
// and a tile without breaks is written as one of a plain batch (kmers/any_rows.cuh).
//
//     load_run_tile    the letters of a tile, and the breaks among them
//     part_of_tile     its first and its last break, and the ids of the runs between them
//     kmers/runs/block_sums.cuh    the last break before the tile, and the ids up to there
//     kmers/runs/write.cuh   the ids, and where those of the rows begin
//
// A warp takes a tile. Here all letters of the class BASE are among the four, and no others are.
//
// Example, k = 3, a tile ACGTANNACG in a run that began with GG before it: its breaks are the letters 5, 6 and 7, and
// the runs between have the ids N and N. What GGACGTA becomes is known once the tiles before are, what ACG.. by the next.
#pragma once
#include "kmers/general/breaks.cuh"
#include "kmers/tile_rows.cuh"
#include "kmers/vectors.cuh"

constexpr uint32_t NO_BREAK = 0xFFFFFFFF;
constexpr uint32_t SPAN_WORDS = KMER_TILE / 32 + 2;         // Words of the bits of a tile and of what is behind it.
constexpr uint32_t PART_WORDS = 32;                         // A lane a word.
constexpr uint32_t PART_LETTERS = 32 * PART_WORDS;

constexpr uint32_t MOST_RUN_IDS = 704;     // On their way at a time; a tile of one run has fewer where k-mers are six apart.

// What a warp has in shared memory.
struct RunTile : PackedLetters<TILE_LETTERS> {
    uint32_t breaks[SPAN_WORDS + 1];       // Bits of letters, of which the end of the batch is one.
    uint32_t singles[4];                   // As those of a StagedTile.
    uint32_t runs[KMER_ROWS + 1];          // Where runs begin, and where the last one ends.
    RowIds rows[KMER_ROWS];                // The same runs by their ids.
    StridedPart parts[KMER_ROWS];
    bool any_strange, any_breaks, any_spaces;
    bool is_gap;                           // All of it, and the letters behind, is one letter that stands alone, such as N.
};

// The same with ids on their way to memory, or with the letters that begin ids, of a part.
template <class Id>
struct RunIdsTile : RunTile {
    static constexpr uint32_t MOST_IDS = MOST_RUN_IDS;
    union {
        alignas(16) Id ids[MOST_RUN_IDS];
        uint16_t starts[PART_LETTERS];
    };
};

// A tile more where the last one is full: rows may begin at the end.
DEVICE uint32_t run_tiles(const Job& job) { return static_cast<uint32_t>(job.num_bytes) / KMER_TILE + 1; }

DEVICE void set_break(RunTile& tile, uint32_t letter) { atomicOr(tile.breaks + letter / 32, 1u << letter % 32); }

// Whether a letter of the tile, of which some are none of the four, is none of them.
DEVICE bool is_strange(const RunTile& tile, uint32_t letter) {
    uint32_t at = letter + AROUND;
    return tile.strange[at / 16] << at % 16 & 0x8000;
}

// Whether a letter of the tile is of the class BASE.
DEVICE bool is_base(const RunTile& tile, uint32_t letter) { return !tile.any_strange || !is_strange(tile, letter); }

// Whether sixteen letters and the one before are so, and are one run.
DEVICE bool are_in_case_run(const FourLetters& four, uint32_t place) {
    if (!four.job.four_case_alike || place == 0 || place + 16 > four.num_bytes) return false;
    return have_other_case(four, sixteen_letters(four, place)) && has_other_case(four, four.text[place - 1] * 0x01010101u);
}

// Bit i: all letters of the i-th word that a lane looks for breaks in, and of the word before, are of the four in another
// case, and are one run. Such words are those that the lane has packed (`cased`), the last one that of the next lane.
DEVICE uint32_t words_in_case_runs(const FourLetters& four, uint32_t cased) {
    constexpr uint32_t PACKED = (1u << RunTile::WORDS / 32) - 1;
    uint32_t left = __shfl_up_sync(ALL_LANES, cased, 1), right = __shfl_down_sync(ALL_LANES, cased, 1);
    uint32_t last = __shfl_sync(ALL_LANES, cased, 31) << 1, own = (cased & PACKED) | (right & ~PACKED);
    uint32_t before = (threadIdx.x & 31) ? (left & PACKED) | (cased & ~PACKED) : last;
    return four.job.four_case_alike ? own & before : 0;
}

// The breaks among sixteen letters, and the one before, that are all one letter, such as N; false where they are not.
DEVICE bool find_breaks_of_one_letter(const FourLetters& four, const uint32_t* table, RunTile& tile, uint32_t begin, uint32_t first) {
    uint32_t place = begin + first;
    if (place == 0 || place + 16 > four.num_bytes) return false;
    uint4 letters = sixteen_letters(four, place);
    if (!is_one_letter(letters) || four.text[place - 1] != (letters.x & 0xFF)) return false;
    uint32_t own = class_of(table[letters.x & 0xFF]);
    if (own == SPACE) tile.any_spaces = true;
    if (stands_alone(own)) atomicOr(tile.breaks + first / 32, 0xFFFFu << first % 32);
    return true;
}

// The class of a letter of a tile of which some are none of the four.
DEVICE uint32_t class_here(const FourLetters& four, const uint32_t* table, const RunTile& tile, uint32_t begin, uint32_t letter) {
    return is_strange(tile, letter) ? class_of(table[four.text[begin + letter]]) : BASE;
}

// The breaks among sixteen letters from letter `first` of the tile on, some of which, or the one before, are no BASE: at
// such letters, and behind them. Whether all of them, and the one before, are one letter that stands alone.
DEVICE bool find_class_breaks(const FourLetters& four, const uint32_t* table, RunTile& tile, uint32_t begin, uint32_t first) {
    uint32_t place = begin + first, strange = tile.strange[first / 16 + 1], before = tile.strange[first / 16] & 1;
    if (place >= four.num_bytes || (strange == 0xFFFF && are_in_case_run(four, place))) return false;
    if (strange == 0xFFFF && find_breaks_of_one_letter(four, table, tile, begin, first))
        return stands_alone(class_of(table[four.text[place]]));
    for (uint32_t rest = strange | strange >> 1 | before << 15; rest; rest &= rest - 1) {
        uint32_t letter = first + 15 - lowest_bit(rest), own = class_here(four, table, tile, begin, letter);
        if (own == SPACE) tile.any_spaces = true;
        if (own != class_here(four, table, tile, begin, letter - 1) || stands_alone(own)) set_break(tile, letter);
    }
    return false;
}

// The breaks where rows begin, from `row` on, the first one that does not begin before the tile.
DEVICE bool mark_rows(const Job& job, RunTile& tile, uint32_t begin, uint64_t row) {
    uint64_t lane = threadIdx.x & 31, end = begin + static_cast<uint64_t>(32 * SPAN_WORDS);
    if (end > job.num_bytes + 1) end = job.num_bytes + 1;
    bool any = false;
    while (true) {
        uint64_t place = row + lane <= job.num_rows ? job.row_begins[row + lane] : end;
        uint32_t here = count_bits(__ballot_sync(ALL_LANES, place < end));
        if (place < end) set_break(tile, static_cast<uint32_t>(place) - begin);
        any |= here != 0;
        if (here < 32) return any;
        uint64_t last = __shfl_sync(ALL_LANES, place, 31);  // Rows that begin together, however many, are one break.
        row = last == __shfl_sync(ALL_LANES, place, 0) ? first_not_before_by_warp(job.row_begins, job.num_rows, last + 1) : row + 32;
    }
}

// Fills a tile; returns the first row that does not begin before it.
DEVICE uint64_t load_run_tile(const Job& job, const FourLetters& four, const uint32_t* table, uint32_t begin, RunTile& tile,
                              uint32_t& seen) {
    uint32_t lane = threadIdx.x & 31;
    if (lane == 0) tile.any_spaces = false;
    for (uint32_t i = lane; i <= SPAN_WORDS; i += 32) tile.breaks[i] = 0;
    uint32_t cased = 0;
    bool any_strange = pack_text(four, table, begin, tile, seen, [] {}, cased), is_gap = any_strange;
    uint32_t in_runs = words_in_case_runs(four, cased);
    for (uint32_t i = lane; any_strange && i < SPAN_WORDS * 2; i += 32, in_runs >>= 1) {
        bool any_here = (tile.strange[i + 1] || tile.strange[i] & 1) && !(in_runs & 1);
        is_gap &= any_here && find_class_breaks(four, table, tile, begin, 16 * i);
    }
    is_gap = __all_sync(ALL_LANES, is_gap);
    if (lane == 0) tile.any_strange = any_strange, tile.is_gap = is_gap;
    uint64_t row = first_row_not_before(job, begin);
    bool any_rows = mark_rows(job, tile, begin, row);
    if (lane == 0) tile.any_breaks = any_rows || any_strange;
    __syncwarp();
    return row;
}

// Ids of a run of a class from letter `begin` of the batch to `end`, of which the first `letters` count.
DEVICE uint32_t ids_of_run(const Job& job, const FourLetters& four, uint32_t letter_class, uint32_t begin, uint32_t end,
                           uint32_t letters) {
    if (letters == 0) return 0;
    if (letter_class != BASE) return letter_class != SPACE;
    return ids_of_first(job, four, {0, 0, begin, end - begin, false}, letters);
}

// The last break before a lane's word, as the letter behind it: 0 where there is none.
DEVICE uint32_t break_before(uint32_t breaks, uint32_t first, uint32_t entry) {
    uint32_t last = breaks ? first + highest_bit(breaks) + 1 : 0;
    last = join_lanes(last, [](uint32_t a, uint32_t b) { return a < b ? b : a; });
    uint32_t before = __shfl_up_sync(ALL_LANES, last, 1);
    return (threadIdx.x & 31) == 0 || before < entry ? entry : before;
}

// The class of a run that begins in the tile.
DEVICE uint32_t class_of_run(const FourLetters& four, const uint32_t* table, const RunTile& tile, uint32_t begin, uint32_t run) {
    return is_base(tile, run - begin) ? BASE : class_of(table[four.text[run]]);
}

// Whether a letter of the tile that is no BASE has an id where a run begins with it.
DEVICE bool has_own_id(const FourLetters& four, const uint32_t* table, const RunTile& tile, uint32_t letter) {
    return !tile.any_spaces || class_of(table[four.text[letter]]) != SPACE;
}

// The same of a whole run that begins in the tile.
DEVICE uint32_t ids_of_run_here(const Job& job, const FourLetters& four, const uint32_t* table, const RunTile& tile,
                                uint32_t begin, uint32_t run, uint32_t length) {
    if (is_base(tile, run - begin)) return ids_of_first(job, four, {0, 0, run, length, false}, length);
    return has_own_id(four, table, tile, run);
}

// Whether each of the 32 letters of a word, and the one before it, is a run with an id, such as an N.
DEVICE bool are_all_runs(const RunTile& tile, uint32_t word, uint32_t breaks) {
    uint32_t letter = 32 * word, at = letter + AROUND;
    bool are_strange = tile.any_strange && !tile.any_spaces && (tile.strange[at / 16] & tile.strange[at / 16 + 1]) == 0xFFFF;
    return breaks == ALL_LANES && are_strange && letter > 0 && !is_base(tile, letter - 1) && tile.breaks[word - 1] >> 31;
}

// A part of the batch: its first and its last break, as letters of the batch, and the ids of the runs between them.
struct RunPart {
    uint32_t first, last, ids;             // `first` is NO_BREAK where there is none.
    uint32_t last_class;                   // Of the letters from the last break on.
};

// What a tile is; every lane gets the same.
DEVICE RunPart part_of_tile(const Job& job, const FourLetters& four, const uint32_t* table, const RunTile& tile, uint32_t begin) {
    if (tile.is_gap) return {begin, begin + KMER_TILE - 1, KMER_TILE - 1, class_of(table[four.text[begin]])};
    uint32_t lane = threadIdx.x & 31, entry = 0, first_break = NO_BREAK, ids = 0;
    for (uint32_t word = lane; tile.any_breaks && word < KMER_TILE / 32; word += PART_WORDS) {
        uint32_t first = begin + 32 * word, breaks = tile.breaks[word];
        uint32_t before = break_before(breaks, first, entry), own = 0, rest = breaks;
        if (are_all_runs(tile, word, breaks)) own = 32, before = first + 32, rest = 0;
        for (; rest; rest &= rest - 1) {
            uint32_t place = first + lowest_bit(rest);
            if (before) own += ids_of_run_here(job, four, table, tile, begin, before - 1, place - before + 1);
            else first_break = place;
            before = place + 1;
        }
        ids += __reduce_add_sync(ALL_LANES, own);
        entry = __shfl_sync(ALL_LANES, before, 31);
    }
    uint32_t last_class = entry ? class_of_run(four, table, tile, begin, entry - 1) : BASE;
    return {__reduce_min_sync(ALL_LANES, first_break), entry ? entry - 1 : 0, ids, last_class};
}
