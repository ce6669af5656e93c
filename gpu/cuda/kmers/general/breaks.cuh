// Finds where runs of letters begin, and the last such place before each tile; see kmers/general/id_starts.cuh.
//
// Where sixteen letters are all of the four that most texts consist of (kmers/packed_tile.cuh), they are tested
// together.
#pragma once
#include "kmers/general/expand_text.cuh"
#include "kmers/packed_tile.cuh"

namespace warptok::kmers {

constexpr uint32_t LETTER_TILE = 2048;
static_assert(LETTER_TILE == 32 * 64, "a lane a word");

// Reads neighbouring letters of a lane, eight bytes at a time: lanes are 64 letters apart, and a load costs a warp one
// clock cycle for each lane, however little it fetches. The number of the first letter is a multiple of 8.
struct LetterReader {
    const uint64_t* words;
    uint64_t word = 0;
    uint32_t bits, left = 0;

    DEVICE_METHOD LetterReader(const Job& job, uint64_t first) : bits(job.kmers.letters ? 16 : 8) {
        const uint8_t* from =
            job.kmers.letters ? reinterpret_cast<const uint8_t*>(job.kmers.letters + first) : job.batch.text + first;
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
    for (uint64_t row = static_cast<uint64_t>(block) * BLOCK + threadIdx.x; row < job.batch.num_rows; row += stride) {
        uint64_t begin = job.kmers.letter_rows[row];
        if (begin < end) set_bit(job.kmers.breaks, begin);
        job.kmers.row_has_words[row] = 0;
    }
}

// Notes white space in a row. White space divides the row into words, and a row with white space cannot be a circle.
DEVICE void note_space(const Job& job, uint64_t letter, uint32_t letter_class) {
    if (letter_class == OTHER || !(job.kmers.can_wrap || job.kmers.has_words)) return;
    uint64_t row = row_of_letter(job, letter);
    if (is_circle(job, row)) note_fault(job.rows.row_refused, row, static_cast<uint32_t>(job.rows.row_begins[row]));
    else if (job.kmers.has_words && letter_class == SPACE) job.kmers.row_has_words[row] = 1;
}

// Whether sixteen letters from a place on, a multiple of 16, are of the four and in the text. Then all of them are of
// the class BASE, and none is a break.
DEVICE bool are_four(const Job& job, const FourLetters& four, uint64_t place) {
    if (job.kmers.letters || !job.kmers.four_letters || place + 16 > four.num_bytes) return false;
    uint32_t differ = 0;
    pack_sixteen(four, __ldg(reinterpret_cast<const uint4*>(job.batch.text + place)), differ);
    return differ == 0;
}

// Returns the breaks among a lane's 64 letters; `before` is the class of the letter in front of them. `seen` collects
// the table's entries of letters that are none of the four; the four have no flags.
DEVICE uint64_t breaks_of(const Job& job, const FourLetters& four, const uint32_t* table, uint64_t first,
                          uint32_t before, uint32_t& seen) {
    uint64_t end = num_letters(job), bits = 0;
    for (uint32_t part = 0; part < 64 && first + part < end; part += 16) {
        if (are_four(job, four, first + part)) {
            if (before != BASE) bits |= 1ull << part;
            before = BASE;
            continue;
        }
        LetterReader reader(job, first + part);
        for (uint32_t i = part; i < part + 16 && first + i < end; i++) {
            uint32_t entry = table[reader.next()], own = class_of(entry);
            seen |= entry;
            if (own != before || stands_alone(own)) bits |= 1ull << i;
            if (own >= SPACE) note_space(job, first + i, own);
            before = own;
        }
    }
    return bits;
}

DEVICE void find_breaks_stage(const Job& job, uint32_t* table, uint32_t block, uint32_t num_blocks) {
    load_letters(job, table);
    FourLetters four(job);
    uint32_t lane = threadIdx.x & 31, warps = num_blocks * (BLOCK / 32), seen = 0;
    uint64_t end = num_letters(job);
    for (uint64_t tile = block * (BLOCK / 32) + threadIdx.x / 32; tile < letter_tiles(job); tile += warps) {
        uint64_t begin = tile * LETTER_TILE + lane * 64, bits = 0;
        if (begin < end) {
            uint32_t before = begin ? class_of(table[letter_at(job, begin - 1)]) : BASE;
            bits = breaks_of(job, four, table, begin, before, seen) | job.kmers.breaks[begin / 64];
            job.kmers.breaks[begin / 64] = bits;
        }
        uint32_t last = bits ? static_cast<uint32_t>(begin) + highest_bit(bits) : 0;
        for (uint32_t distance = 16; distance; distance /= 2) {
            uint32_t other = __shfl_xor_sync(ALL_LANES, last, distance);
            if (other > last) last = other;
        }
        if (lane == 0) job.kmers.letter_tiles[tile] = last;
    }
    note_fallback(job, seen);              // No other kernel has noted it if plain kernels were not tried.
}

// The values of neighbouring tiles; those from tile `end` on are 0.
constexpr uint32_t TILES_A_THREAD = 8;

struct TileValues {
    uint32_t items[TILES_A_THREAD];

    DEVICE_METHOD TileValues(const uint32_t* values, uint64_t first, uint64_t end) {
#pragma unroll
        for (uint32_t i = 0; i < TILES_A_THREAD; i += 4) {
            uint4 four = first + i < end ? *reinterpret_cast<const uint4*>(values + first + i) : uint4{0, 0, 0, 0};
            items[i] = four.x;
            items[i + 1] = first + i + 1 < end ? four.y : 0;
            items[i + 2] = first + i + 2 < end ? four.z : 0;
            items[i + 3] = first + i + 3 < end ? four.w : 0;
        }
    }

    // Writes the joined values before each tile, given those before the first one.
    template <class Join>
    DEVICE_METHOD void write_before(uint32_t* values, uint64_t first, uint64_t end, uint32_t before, Join join) const {
        uint32_t all[TILES_A_THREAD];
#pragma unroll
        for (uint32_t i = 0; i < TILES_A_THREAD; i++) {
            all[i] = before;
            before = join(before, items[i]);
        }
#pragma unroll
        for (uint32_t i = 0; i < TILES_A_THREAD; i += 4)
            if (first + i <= end)
                *reinterpret_cast<uint4*>(values + first + i) = {all[i], all[i + 1], all[i + 2], all[i + 3]};
    }
};

// The joined values of this lane and all lanes before it; 0 changes nothing.
template <class Join>
DEVICE uint32_t join_lanes(uint32_t value, Join join) {
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
        uint32_t other = __shfl_up_sync(ALL_LANES, value, distance);
        if ((threadIdx.x & 31) >= distance) value = join(value, other);
    }
    return value;
}

// Replaces each tile's value by the joined values of all tiles before it, the largest or the sum, by one block of
// SCAN_THREADS. values[tiles] becomes that of all tiles; there is room up to a multiple of four.
constexpr uint32_t SCAN_THREADS = 1024;

template <class Join>
DEVICE void scan_letter_tiles(uint32_t* values, uint64_t tiles, uint32_t* scratch, Join join) {
    constexpr uint32_t STEP = SCAN_THREADS * TILES_A_THREAD;
    uint32_t lane = threadIdx.x & 31, warp = threadIdx.x / 32, all = 0;
    TileValues next(values, threadIdx.x * TILES_A_THREAD, tiles);
    for (uint64_t first = 0; first <= tiles; first += STEP) {
        uint64_t place = first + threadIdx.x * TILES_A_THREAD;
        TileValues own = next;
        next = TileValues(values, place + STEP, tiles);  // Loaded while the present values are summed.
        uint32_t sum = 0;
#pragma unroll
        for (uint32_t i = 0; i < TILES_A_THREAD; i++) sum = join(sum, own.items[i]);
        uint32_t lanes = join_lanes(sum, join), lanes_before = __shfl_up_sync(ALL_LANES, lanes, 1);
        if (lane == 31) scratch[warp] = lanes;
        __syncthreads();
        uint32_t warps = join_lanes(scratch[lane], join);
        uint32_t warps_before = __shfl_sync(ALL_LANES, warps, (warp + 31) & 31);
        uint32_t before = join(warp ? warps_before : 0, lane ? lanes_before : 0);
        own.write_before(values, place, tiles, join(all, before), join);
        all = join(all, __shfl_sync(ALL_LANES, warps, 31));
        __syncthreads();
    }
}

DEVICE void enter_tiles_stage(const Job& job, uint32_t* scratch) {
    scan_letter_tiles(job.kmers.letter_tiles, letter_tiles(job), scratch,
                      [](uint32_t a, uint32_t b) { return a < b ? b : a; });
}

DEVICE void sum_letter_tiles_stage(const Job& job, uint32_t* scratch) {
    scan_letter_tiles(job.kmers.letter_tile_ids, letter_tiles(job), scratch,
                      [](uint32_t a, uint32_t b) { return a + b; });
    if (threadIdx.x == 0) job.answer.status[STATUS_NUM_IDS] = job.kmers.letter_tile_ids[letter_tiles(job)];
}

}  // namespace warptok::kmers
