// Byte-pair encoding of bases in one launch: a text is divided into *parts*, each of which one block encodes.
//
// A block reads its part, the LEAD letters in front of it and the LOOK letters behind it; together these are the part's
// *view*. Places are places of the view: place p has p of its letters in front of it. No block waits for the path of
// another one (docs/internals/dna-bpe.md, Parts). Text and last tokens are handled in rounds of ROUND letters.
//
//     text     . . . . . . . . . . . . . . . . . .
//     view       . . . . . . . . . . .                   letters 0 .. size - 1
//     part           . . . . . . .                       letters lead .. end - 1
//
// Letters are bases or gaps. A part *fails* if it has other letters, or if its view does not decide its path; then the
// kernels of dna/ encode the whole batch.
#pragma once
#include "dna/windows/suffix_tables.cuh"
#include "batch/rows.cuh"
#include "common/async_load.cuh"

namespace warptok::dna {

constexpr uint32_t PART_THREADS = 1024;    // Threads of a block; one block a multiprocessor.
constexpr uint32_t LETTERS_A_THREAD = 4;   // Letters of a thread in a round.
constexpr uint32_t ROUND = LETTERS_A_THREAD * PART_THREADS;  // Letters of a round.
constexpr uint32_t VIEW = 5 * ROUND;       // Letters of a view, at most.
constexpr uint32_t LEAD = 256;             // Letters of a view in front of its part,
constexpr uint32_t LONG_LEAD = 2048;       // and where these were too few.
constexpr uint32_t LOOK = 64;              // Letters of a view behind its part.
constexpr uint32_t SEGMENT = 16;           // Letters whose path a thread finds.
constexpr uint32_t MOST_PART = SEGMENT * PART_THREADS;
constexpr uint32_t LEAST_PART = 256;
constexpr uint32_t PART_STEP = 128;        // A part has a multiple of so many letters.
constexpr uint32_t FALLBACK_PART = 1;      // A part cannot be encoded here: the kernels of dna/ encode the batch.
constexpr uint32_t EARLY = 20;             // Places at a view's begin of which nothing is known; more than MOST_LOOKED.
constexpr uint32_t PAD = 64;               // Places in front of a view, or of a round, that may be read.
static_assert(LEAD >= MAX_LETTERS && LEAST_PART >= LEAD, "tokens that end in a part begin in its view");
static_assert(MOST_PART + LONG_LEAD + LOOK <= VIEW, "a part fits into a view");

// Values of part_classes; those below are codes of bases.
constexpr uint32_t PART_CLASS_GAP = 4;     // A gap with an id.
constexpr uint32_t PART_CLASS_OTHER = 5;   // A letter that only other kernels know.
constexpr uint32_t PART_CLASS_DROPPED = 6;  // A gap without an id.
constexpr uint32_t PART_CLASS_MIXED = 7;   // A letter whose runs are replaced, or that merges (dna/parts/n_runs.cuh).

// The classes of a place whose last token is one of more than two are IS_LISTED | the number of a list. IS_AT_BORDER is
// set, too, where its border is certain: any token may begin there, whatever the last token is.
constexpr uint32_t IS_LISTED = 1u << 31, IS_AT_BORDER = 1u << 30;
constexpr uint32_t NO_CLASSES = ~IS_AT_BORDER;
constexpr uint32_t LEFT_CLASSES = 1 << 15;  // Left classes that a vocabulary may have, so that IS_LISTED is free.

// The length of a gap is GAP_LENGTH | its letter. Two values that would be letters of PART_CLASS_OTHER say more:
constexpr uint32_t GAP_LENGTH = 0x80;
constexpr uint32_t RUN_BEGINS = 0x9F;      // A run that is replaced begins here.
constexpr uint32_t NEVER_KNOWN = 0xFF;     // The view does not decide the last token.

constexpr uint32_t RUN_UNKNOWN = 0xFFFFFFFF;  // Of run_before: the run may begin in front of the view.

// Why a part fails:
constexpr uint32_t NEEDS_LONG_LEAD = 1;    // its path comes by a place that is NEVER_KNOWN;
constexpr uint32_t NOT_ENCODED = 2;        // anything else, which a longer lead does not change.

constexpr uint32_t REPEAT_FRONT = ROUND;   // Letters in front of a view that may repeat: fewer than these.

// The repeats that end with the last one of some letters (dna/parts/repeats.cuh). Letters are numbered
// from REPEAT_FRONT letters in front of the view on; 0 is none.
struct RepeatState {
    uint32_t border;                       // The last one that has a certain border in front of it.
    uint32_t mismatch4, mismatch3;         // The last one that is not the letter four, and three, before it.

    // The state of these letters and of others.
    DEVICE_METHOD RepeatState join(RepeatState other) const {
        return {max_of(border, other.border), max_of(mismatch4, other.mismatch4), max_of(mismatch3, other.mismatch3)};
    }

    // Whether all letters behind the border have period 4; the first four have none before them to differ from.
    DEVICE_METHOD bool has_period4() const { return border && mismatch4 < border + 4; }
    DEVICE_METHOD bool has_period3() const { return border && mismatch3 < border + 3; }
    DEVICE_METHOD bool has_period() const { return has_period4() || has_period3(); }
};

// The state of a block's part, without tables.
struct PartShared {
    uint8_t text[2][ROUND];                // The text of a round and of the next one, by turns.
    uint64_t barriers[2];                  // The barriers of their copies.
    // From PAD places in front of the round on: the left classes of the two tokens of which one is the last one, or of
    // the last one, twice. 0 at certain borders.
    uint32_t classes[PAD + ROUND + 1];
    uint32_t queue[ROUND];                 // Places whose last token is one of two, see dna/parts/part_last_tokens.cuh.
    uint32_t listed[ROUND / 32];           // Bits of places where tokens are listed.
    uint32_t num_queued;                   // Entries of `queue`.
    uint32_t num_listed_pairs;             // Listed places of the view that are directly behind listed ones.
    RepeatState repeat;                    // Of the letters in front of letter `repeat_end`, which is
    uint32_t repeat_end;                   // 0 where no repeat goes on in front of a round.
    uint32_t run_end, run_before;          // Letters of a run in front of letter `run_end`, see dna/parts/n_runs.cuh.
    uint32_t has_unresolved;               // Not 0: the round has letters of PART_CLASS_MIXED.
    uint32_t has_mixed;                    // Not 0: the view has mixed letters, which merge.
    uint8_t lengths[VIEW + 16];            // The letters of the last token at each place, or GAP_LENGTH.
    uint32_t codes[VIEW / 16 + 2];         // Two bits a letter, behind those of sixteen letters in front of the view.
    uint32_t certain[VIEW / 32 + 4];       // Bits of places, behind PAD others: the border there is certain.
    uint32_t mixed[VIEW / 32 + 4];         // Bits of places, behind PAD others: the letter in front is mixed.
    uint32_t ends[PART_THREADS];          // Bits of places behind a segment's first: a piece with an id ends there.
    uint32_t before[PART_THREADS];        // Pieces that end before a segment.
    uint32_t exits[PART_THREADS];         // The place where a segment's path leaves it.
    uint32_t scratch[PART_THREADS / 32 + 1];
    uint32_t failure;                      // NEEDS_LONG_LEAD, NOT_ENCODED; 0: the part has not failed.
    uint64_t first_row, rows_behind;       // The first row that begins in the view, and the first one behind it.
    uint64_t ids_before;                   // Ids of all parts in front.
    uint8_t letters[256];                  // part_classes
};

struct View {
    uint64_t begin;                        // The byte of the batch that it begins with.
    uint32_t number;                       // The number of its part.
    uint32_t lead, end, size;              // Places: the part's begin, the part's end, the view's end.
};

// The number of letters of a part, so that as many blocks as possible have a part.
DEVICE uint32_t part_size(const Job& job, uint32_t num_blocks) {
    uint64_t size = ((job.batch.num_bytes + num_blocks - 1) / num_blocks + PART_STEP - 1) / PART_STEP * PART_STEP;
    return size < LEAST_PART ? LEAST_PART : size < MOST_PART ? static_cast<uint32_t>(size) : MOST_PART;
}

DEVICE uint32_t num_parts(const Job& job, uint32_t size) {
    return job.batch.num_bytes ? static_cast<uint32_t>((job.batch.num_bytes + size - 1) / size) : 1;
}

DEVICE View view_of(const Job& job, uint32_t part, uint32_t part_size, uint32_t lead = LEAD) {
    uint64_t begin = static_cast<uint64_t>(part) * part_size, left = job.batch.num_bytes - begin;
    lead = begin < lead ? static_cast<uint32_t>(begin) : lead;
    uint32_t end = lead + static_cast<uint32_t>(left < part_size ? left : part_size);
    uint64_t rest = job.batch.num_bytes - begin + lead;
    return {begin - lead, part, lead, end, static_cast<uint32_t>(rest < end + LOOK ? rest : end + LOOK)};
}

// Starts to copy the letters of the round that begins with letter `first`, if there are any, from where the batch lies.
// It copies whole vectors of sixteen bytes, each of which lies in one page, so that it may read behind the text's end.
DEVICE void start_text_copy(const Job& job, PartShared& shared, TextCopies& copies, const View& view, uint32_t first) {
    if (first >= view.size) return;
    const uint8_t* text = job.host.host_text ? job.host.host_text : job.batch.text;
    uint32_t bytes = (min_of(view.size - first, ROUND) + 15) / 16 * 16;
    copies.start(shared.text[copies.started % 2], text + view.begin + first, bytes);
}

DEVICE void set_bit(uint32_t* bits, uint32_t place) { atomicOr(bits + (place + PAD) / 32, 1u << place % 32); }

DEVICE void set_certain(PartShared& shared, uint32_t place) { set_bit(shared.certain, place); }

DEVICE bool is_certain(const PartShared& shared, uint32_t place) {
    return shared.certain[(place + PAD) / 32] >> place % 32 & 1;
}

// Bits of the 32 places before one, the last one highest; no bit is set for places in front of the first one.
DEVICE uint32_t bits_before(const uint32_t* bits, uint32_t place) {
    const uint32_t* words = bits + (place + PAD) / 32;
    return shift_right(words[-1], words[0], place % 32);
}

DEVICE uint32_t certain_before(const PartShared& shared, uint32_t place) { return bits_before(shared.certain, place); }

// Letters behind the last certain border, at a place behind a letter that is no gap.
DEVICE uint32_t letters_behind(const PartShared& shared, uint32_t place) {
    uint32_t bits = certain_before(shared, place);
    return bits ? 32 - highest_bit(bits) : BEHIND_FAR;
}

// Sixteen letters before a place, the last one at the top.
DEVICE uint32_t codes_before(const PartShared& shared, uint32_t place) {
    return shift_right(shared.codes[place / 16], shared.codes[place / 16 + 1], 2 * (place % 16));
}

// The 64 letters before a place, the last one at the top.
DEVICE LongKey key_before(const PartShared& shared, uint32_t place) {
    uint64_t codes[4];
    for (uint32_t i = 0; i < 4; i++) codes[i] = place < 16 * i ? 0 : codes_before(shared, place - 16 * i);
    return {codes[0] << 32 | codes[1], codes[2] << 32 | codes[3]};
}

// Packs a thread's letters of the round that begins with letter `first`, whose text has arrived.
DEVICE void pack_part(PartShared& shared, const TextCopies& copies, const View& view, uint32_t first) {
    uint32_t place = first + LETTERS_A_THREAD * threadIdx.x, codes = 0;
    uint32_t word = reinterpret_cast<const uint32_t*>(shared.text[(copies.finished - 1) % 2])[threadIdx.x];
#pragma unroll
    for (uint32_t i = 0; i < LETTERS_A_THREAD; i++) {
        uint32_t letter = byte_of(word, i), type = shared.letters[letter];
        bool is_gap = type >= PART_CLASS_GAP && place + i < view.size;
        codes |= (type & 3) << 2 * i;
        shared.lengths[place + i + 1] = static_cast<uint8_t>(is_gap ? GAP_LENGTH | letter : 0);
        if (!is_gap) continue;
        if (type == PART_CLASS_OTHER) shared.failure = NOT_ENCODED;
        if (type == PART_CLASS_MIXED) {
            shared.has_unresolved = 1;     // resolve_mixed sets its borders.
            continue;
        }
        set_certain(shared, place + i);
        set_certain(shared, place + i + 1);
    }
    reinterpret_cast<uint8_t*>(shared.codes + 1)[place / 4] = static_cast<uint8_t>(codes);
}

// Clears the state of a view, and notes where rows begin. The whole block calls it.
DEVICE void begin_view(const Job& job, PartShared& shared, const View& view) {
    for (uint32_t i = threadIdx.x; i < VIEW / 32 + 4; i += PART_THREADS) shared.certain[i] = shared.mixed[i] = 0;
    if (threadIdx.x < 64) {
        uint64_t place = threadIdx.x < 32 ? view.begin : view.begin + view.size + 1;
        uint64_t row = first_not_before_by_warp(job.rows.row_begins, job.batch.num_rows + 1, place);
        if (threadIdx.x % 32 == 0) (threadIdx.x ? shared.rows_behind : shared.first_row) = row;
    }
    if (threadIdx.x == 0) {
        shared.codes[0] = shared.num_listed_pairs = shared.repeat_end = 0;
        shared.failure = shared.has_unresolved = shared.has_mixed = 0;
    }
    __syncthreads();
    if (threadIdx.x == 0 && view.begin == 0) set_certain(shared, 0);
    for (uint64_t row = shared.first_row + threadIdx.x; row <= job.batch.num_rows; row += PART_THREADS) {
        uint64_t place = job.rows.row_begins[row] - view.begin;
        if (place > view.size) break;
        set_certain(shared, static_cast<uint32_t>(place));
    }
    __syncthreads();
    if (threadIdx.x == 0) shared.run_end = 0, shared.run_before = is_certain(shared, 0) ? 0 : RUN_UNKNOWN;
}

}  // namespace warptok::dna
