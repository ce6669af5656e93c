// Joins the paths of neighbouring windows where they meet.
//
// Window w begins at w x CHUNK. It meets window w + 1 where both have the same token, that is the same two neighbouring
// borders, or at a certain border. The path of window w counts up to there, and that of window w + 1 from there on
// (docs/internals/text-bpe.md, Stitching).
//
//     window w       | . . | . . | . . . | . .          meetings[w + 1] = 4
//     window w + 1           | . . . | . . . | . .
//                            0       4       8
//
// Windows may meet only at the first 64 places of the second one, so that only the first word of a chunk has pieces of
// two windows.
//
// This folder has the stages that find these paths; dna/kernels.cu has their kernels. A batch launches forward_windows
// or forward_windows_copied (last_tokens.cuh), if the vocabulary has the tables for it; then walk_windows (walk.cuh),
// for the deferred windows or for all; then meet_windows.
//
// Invariant: after walk_windows the bits of each window are a path through it: neighbouring tokens are compatible.
#pragma once
#include "dna/windows/walk.cuh"
#include "common/lookback_scan.cuh"

namespace warptok::dna {

constexpr uint32_t NO_MEETING = 255;
constexpr uint32_t FALLBACK_UNMET = 1;     // Windows do not meet, so they have to be repaired.
constexpr uint32_t LARGE_CHUNK = 512;
constexpr uint32_t SMALL_CHUNK = 128;

// Whether chunks are small. With small chunks a small batch has more threads, and each walks a shorter way; but more
// letters lie in two windows.
DEVICE bool has_small_chunks(const Job& job) { return job.batch.num_bytes <= job.dna.dna_small_bytes; }

template <uint32_t CHUNK>
DEVICE uint32_t num_windows(const Job& job) {
    return static_cast<uint32_t>((job.batch.num_bytes + CHUNK - 1) / CHUNK);
}

// The borders of a window at the 64 places from one on.
template <uint32_t CHUNK>
DEVICE uint64_t borders_from(const Job& job, uint32_t window, uint32_t place) {
    const uint32_t* words = job.dna.window_bits + static_cast<uint64_t>(place / 32) * num_windows<CHUNK>(job) + window;
    return words[0] | static_cast<uint64_t>(words[num_windows<CHUNK>(job)]) << 32;
}

template <uint32_t CHUNK>
DEVICE void write_window(const Job& job, uint32_t window, const Columns& columns) {
    uint32_t* to = job.dna.window_bits + window;
    for (uint32_t i = 0; i < Window<CHUNK>::WORDS; i++, to += num_windows<CHUNK>(job))
        *to = columns.borders[i * columns.stride];
}

// Returns where the first common token of two lists of borders begins, if it begins in the lower word; else NO_MEETING.
DEVICE uint32_t first_in_common(uint64_t left, uint64_t left_behind, uint64_t right, uint64_t right_behind) {
    uint64_t common = left & right, any = left | right;
    uint64_t common_behind = left_behind & right_behind, any_behind = left_behind | right_behind;
    for (; common; common &= common - 1) {
        uint32_t place = lowest_bit(common);
        uint64_t next = place == 63 ? 0 : any >> (place + 1) << (place + 1);
        if (next ? common >> lowest_bit(next) & 1 : any_behind && common_behind >> lowest_bit(any_behind) & 1)
            return place;
    }
    return NO_MEETING;
}

// Certain borders among a window's first 64 places, or the 64 behind them.
template <uint32_t CHUNK>
DEVICE uint64_t certain_in(const Job& job, uint32_t window, uint32_t word) {
    return job.dna.certain[static_cast<uint64_t>(window) * CHUNK / 64 + word];
}

// Returns where a window meets the one before it; `left` and `left_behind` are the borders of the one before at the
// window's first 128 places.
template <uint32_t CHUNK>
DEVICE uint32_t meeting_with(const Job& job, uint32_t window, uint64_t left, uint64_t left_behind) {
    uint64_t certain = certain_in<CHUNK>(job, window, 0), behind = certain_in<CHUNK>(job, window, 1);
    if (certain) return lowest_bit(certain);
    return first_in_common(left, left_behind | behind, borders_from<CHUNK>(job, window, 0),
                           borders_from<CHUNK>(job, window, 64) | behind);
}

// Where a window meets the one before it, which is not the first one.
template <uint32_t CHUNK>
DEVICE uint32_t meeting_of(const Job& job, uint32_t window) {
    return meeting_with<CHUNK>(job, window, borders_from<CHUNK>(job, window - 1, CHUNK),
                               borders_from<CHUNK>(job, window - 1, CHUNK + 64));
}

// Counts a window that does not meet the one before, by round.
DEVICE void note_unmet(const Job& job, uint32_t round) {
    atomicAdd(job.dna.unmet_counts + round, 1u);
    job.answer.status[STATUS_FALLBACK] = FALLBACK_UNMET;
}

template <uint32_t CHUNK>
DEVICE void meet_windows_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint32_t windows = num_windows<CHUNK>(job), stride = num_blocks * BLOCK;
    for (uint32_t window = block * BLOCK + threadIdx.x; window < windows; window += stride) {
        uint32_t meeting = window ? meeting_of<CHUNK>(job, window) : 0;
        job.dna.meetings[window] = meeting;
        if (meeting == NO_MEETING) note_unmet(job, 0);
    }
}

// The start bits of the tokens, and of the gaps with ids, at 64 places.
template <uint32_t CHUNK>
DEVICE uint64_t starts_in(const Job& job, uint64_t word) {
    uint32_t window = word / (CHUNK / 64), place = word % (CHUNK / 64) * 64;
    uint64_t bits = borders_from<CHUNK>(job, window, place);
    uint32_t meeting = job.dna.meetings[window];
    if (place == 0 && meeting && meeting != NO_MEETING) {  // Where windows do not meet, no id is used.
        uint64_t before = (1ull << meeting) - 1;
        bits = (bits & ~before) | (borders_from<CHUNK>(job, window - 1, CHUNK) & before);
    }
    if (64 * word + 64 > job.batch.num_bytes) bits &= ~0ull >> (64 * word + 64 - job.batch.num_bytes);
    return bits | job.text.starts[word];
}

DEVICE uint64_t starts_in(const Job& job, uint64_t word) {
    return has_small_chunks(job) ? starts_in<SMALL_CHUNK>(job, word) : starts_in<LARGE_CHUNK>(job, word);
}

// Whether a window has letters that merge and are no bases.
template <uint32_t CHUNK>
DEVICE bool has_mixed(const Job& job, uint32_t window) {
    if (!job.dna.num_mixed) return false;
    uint64_t first = static_cast<uint64_t>(window) * (CHUNK / 64), words = (job.batch.num_bytes + 63) / 64;
    for (uint64_t word = first; word <= first + CHUNK / 64 && word < words; word++)
        if (job.dna.mixed_words[word]) return true;
    return false;
}

// Walks through windows, a thread each; the lanes of a warp walk together. Where forward_windows runs, these are only
// the windows that it defers. Where there are fewer windows than threads, all warps have the same number of them.
template <uint32_t CHUNK>
DEVICE void walk_windows_stage(const Job& job, const Columns& columns, uint32_t block, uint32_t num_blocks) {
    const uint32_t* deferred = job.dna.ending_k ? job.dna.deferred_windows : nullptr;
    uint32_t windows = deferred ? *job.dna.num_deferred : num_windows<CHUNK>(job), warps = blockDim.x / 32 * num_blocks;
    uint32_t lane = threadIdx.x & 31, lanes = min_of((windows + warps - 1) / warps, 32);
    for (uint32_t first = lanes * (threadIdx.x / 32 * num_blocks + block); first < windows; first += lanes * warps) {
        uint32_t number = first + lane;
        bool walking = lane < lanes && number < windows;
        uint32_t window = walking && deferred ? deferred[number] : number;
        clear_columns<CHUNK>(columns);
        walk_window<CHUNK, WalkBy::WARP>(job, columns, static_cast<uint64_t>(window) * CHUNK, {0, NO_TOKEN, false},
                                         walking);
        if (walking) write_window<CHUNK>(job, window, columns);
    }
}

}  // namespace warptok::dna
