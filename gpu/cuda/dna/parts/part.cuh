// Byte-pair encoding of bases in one launch: a text is cut into *parts*, of which a block takes one.
//
// A part is encoded with the LEAD letters in front of it and the LOOK letters behind it, which together are
// its *view*. Places are those of the view: place p has p of its letters in front of it. No block waits for
// the path of another one (docs/internals/dna-bpe.md, Parts).
//
//     text     . . . . . . . . . . . . . . . . . .
//     view       . . . . . . . . . . .                   letters 0 .. size - 1
//     part           . . . . . . .                       letters lead .. end - 1
//
// Letters are bases or gaps. A part that has others, or that more than the view's letters decide on, is left to
// other kernels, as then is the whole batch.
#pragma once
#include "dna/windows/suffix_tables.cuh"
#include "batch/rows.cuh"
#include "common/async_load.cuh"

namespace warptok::dna {

constexpr uint32_t BASES_THREADS = 1024;   // Of a block, one a multiprocessor.
constexpr uint32_t LETTERS_A_THREAD = 4;   // Of a round.
constexpr uint32_t ROUND = LETTERS_A_THREAD * BASES_THREADS;
constexpr uint32_t VIEW = 5 * ROUND;       // Letters of a view, at most.
constexpr uint32_t LEAD = 256;
constexpr uint32_t LONG_LEAD = 2048;       // Where a lead is too short.
constexpr uint32_t LOOK = 64;
constexpr uint32_t SEGMENT = 16;           // Letters whose path a thread finds.
constexpr uint32_t MOST_PART = SEGMENT * BASES_THREADS;
constexpr uint32_t LEAST_PART = 256;
constexpr uint32_t PART_STEP = 128;        // A part has a multiple of so many letters.
constexpr uint32_t FALLBACK_PART = 1;      // A part cannot be encoded here: the kernels of dna/ encode the batch.
// Places of a view of which nothing is known: more than letters are looked at.
constexpr uint32_t EARLY = 20;
constexpr uint32_t PAD = 64;               // Places in front of a view, or of a round, that may be asked for.
static_assert(LEAD >= MAX_LETTERS && LEAST_PART >= LEAD, "tokens that end in a part begin in its view");
static_assert(MOST_PART + LONG_LEAD + LOOK <= VIEW, "a part fits into a view");

constexpr uint32_t BASES_GAP = 4;          // bases_classes: below it are codes of bases. A gap with an id,
constexpr uint32_t BASES_OTHER = 5;        // what other kernels know,
constexpr uint32_t BASES_DROPPED = 6;      // a gap without an id,
constexpr uint32_t BASES_MIXED = 7;        // a letter whose runs are replaced, or that merges (dna/parts/n_runs.cuh).

// Classes of a place whose last token is one of more than two: this bit and the number of a list; the other bit where
// its border is certain, as whatever begins there asks for no more.
constexpr uint32_t IS_LISTED = 1u << 31, IS_AT_BORDER = 1u << 30;
constexpr uint32_t NO_CLASSES = ~IS_AT_BORDER;
constexpr uint32_t LEFT_CLASSES = 1 << 15;  // So many leave the bit alone.

constexpr uint32_t GAP_LENGTH = 0x80;      // A length with this bit is a gap's, the rest its letter, but for two that
constexpr uint32_t RUN_BEGINS = 0x9F;      // are BASES_OTHER: a run that is replaced begins here;
constexpr uint32_t NEVER_KNOWN = 0xFF;     // the view does not tell.

constexpr uint32_t RUN_UNKNOWN = 0xFFFFFFFF;  // Letters of a run in front of a view.

constexpr uint32_t IS_LOST = 1;            // The path comes by a place whose last token the view does not tell;
constexpr uint32_t IS_OTHER = 2;           // there is more that a part does not know.

constexpr uint32_t REPEAT_FRONT = ROUND;   // Letters in front of a view that may repeat: fewer than these.

// What letters say about repeats that end with the last one of them (dna/parts/repeats.cuh). Letters are numbered
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

// Everything about a part but the tables.
struct PartShared {
    uint8_t text[2][ROUND];                // Of a round, and of the next one; by turns.
    uint64_t barriers[2];                  // Of these.
    uint32_t classes[PAD + ROUND + 1];     // Left classes of the two tokens that may be the last one, or of it, twice;
                                           // 0 at certain borders. From PAD places in front of the round on.
    uint32_t queue[ROUND];                 // Places where one of two is, see dna/parts/last_tokens.cuh.
    uint32_t listed[ROUND / 32];           // Bits of places where tokens are listed.
    uint32_t num_queued;
    uint32_t num_listed_pairs;             // Listed places of the view that are directly behind listed ones.
    RepeatState repeat;                    // Of the letters in front of letter `repeat_end`, which is
    uint32_t repeat_end;                   // 0 where no repeat goes on in front of a round.
    uint32_t run_end, run_before;          // Letters of a run in front of letter `run_end`, see dna/parts/n_runs.cuh.
    uint32_t is_unsettled;                 // Whether a round has BASES_MIXED,
    uint32_t has_mixed;                    // and the view letters that merge.
    uint8_t lengths[VIEW + 16];            // Of the last token at each place.
    uint32_t codes[VIEW / 16 + 2];         // Sixteen letters a word, those of PAD / 4 places in front.
    uint32_t certain[VIEW / 32 + 4];       // Bits of places, those of PAD in front.
    uint32_t mixed[VIEW / 32 + 4];         // The same of those behind a mixed letter.
    uint32_t ends[BASES_THREADS];          // Bits of places behind a segment's first: a piece with an id ends here.
    uint32_t before[BASES_THREADS];        // Pieces that end before a segment.
    uint32_t exits[BASES_THREADS];         // Where a segment's path leaves it.
    uint32_t scratch[BASES_THREADS / 32 + 1];
    uint32_t is_left;                      // IS_LOST, IS_OTHER; not 0: left to other kernels.
    uint64_t first_row, rows_behind;       // That begins in the view, and behind it.
    uint64_t ids_before;
    uint8_t letters[256];                  // bases_classes
};

struct View {
    uint64_t begin;                        // In the text.
    uint32_t number, lead, end, size;
};

// Letters of a part where as many blocks as can be have one.
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

// Asks for the letters of a round that begins with letter `first`, if there are any, from where the batch lies: by
// sixteen bytes that begin at a multiple of as many, and so lie in one page, whatever ends among them.
DEVICE void ask_for_text(const Job& job, PartShared& shared, TextCopies& copies, const View& view, uint32_t first) {
    if (first >= view.size) return;
    const uint8_t* text = job.host.host_text ? job.host.host_text : job.batch.text;
    uint32_t bytes = (min_of(view.size - first, ROUND) + 15) / 16 * 16;
    copies.ask(shared.text[copies.started % 2], text + view.begin + first, bytes);
}

DEVICE void set_bit(uint32_t* bits, uint32_t place) { atomicOr(bits + (place + PAD) / 32, 1u << place % 32); }

DEVICE void set_certain(PartShared& shared, uint32_t place) { set_bit(shared.certain, place); }

DEVICE bool is_certain(const PartShared& shared, uint32_t place) {
    return shared.certain[(place + PAD) / 32] >> place % 32 & 1;
}

// Bits of the 32 places before one, the last one's the highest; of those before the first one none is set.
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

// Packs a thread's letters of the round that begins with letter `first`, whose text is taken.
DEVICE void pack_bases(PartShared& shared, const TextCopies& copies, const View& view, uint32_t first) {
    uint32_t place = first + LETTERS_A_THREAD * threadIdx.x, codes = 0;
    uint32_t word = reinterpret_cast<const uint32_t*>(shared.text[(copies.taken - 1) % 2])[threadIdx.x];
#pragma unroll
    for (uint32_t i = 0; i < LETTERS_A_THREAD; i++) {
        uint32_t letter = byte_of(word, i), type = shared.letters[letter];
        bool is_gap = type >= BASES_GAP && place + i < view.size;
        codes |= (type & 3) << 2 * i;
        shared.lengths[place + i + 1] = static_cast<uint8_t>(is_gap ? GAP_LENGTH | letter : 0);
        if (!is_gap) continue;
        if (type == BASES_OTHER) shared.is_left = IS_OTHER;
        if (type == BASES_MIXED) {
            shared.is_unsettled = 1;       // Its borders are set when its run is known.
            continue;
        }
        set_certain(shared, place + i);
        set_certain(shared, place + i + 1);
    }
    reinterpret_cast<uint8_t*>(shared.codes + 1)[place / 4] = static_cast<uint8_t>(codes);
}

// Nothing is known of a view but where rows begin. The whole block calls it.
DEVICE void begin_view(const Job& job, PartShared& shared, const View& view) {
    for (uint32_t i = threadIdx.x; i < VIEW / 32 + 4; i += BASES_THREADS) shared.certain[i] = shared.mixed[i] = 0;
    if (threadIdx.x < 64) {
        uint64_t place = threadIdx.x < 32 ? view.begin : view.begin + view.size + 1;
        uint64_t row = first_not_before_by_warp(job.rows.row_begins, job.batch.num_rows + 1, place);
        if (threadIdx.x % 32 == 0) (threadIdx.x ? shared.rows_behind : shared.first_row) = row;
    }
    if (threadIdx.x == 0) {
        shared.codes[0] = shared.num_listed_pairs = shared.repeat_end = 0;
        shared.is_left = shared.is_unsettled = shared.has_mixed = 0;
    }
    __syncthreads();
    if (threadIdx.x == 0 && view.begin == 0) set_certain(shared, 0);
    for (uint64_t row = shared.first_row + threadIdx.x; row <= job.batch.num_rows; row += BASES_THREADS) {
        uint64_t place = job.rows.row_begins[row] - view.begin;
        if (place > view.size) break;
        set_certain(shared, static_cast<uint32_t>(place));
    }
    __syncthreads();
    if (threadIdx.x == 0) shared.run_end = 0, shared.run_before = is_certain(shared, 0) ? 0 : RUN_UNKNOWN;
}

}  // namespace warptok::dna
