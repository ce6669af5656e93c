// Level 1 of cutting long pieces: windows of 512 bytes over the seams of level 0; and the chain at the end.
//
// A warp encodes a patch in rounds (cut_window.cuh), some ten of them whatever the text.
//
// A patch begins at a border of the window that fails. It is entered from that window, where both meet
// (`joint`), or by a bridge from the patch before; it is left where its bridge begins (cut_bridge.cuh),
// which may be at once the place where it meets window or patch that follows:
//
//     level 0    |----|    |----|----|  ...  |----|----|
//     patch         |-------------|
//     bridge                   |------------------|
//     chain      000111111111112222222222222220000000000
#pragma once
#include "cut_seams.cuh"
#include "walk_window.cuh"

constexpr uint32_t PATCH = 512, PATCH_WORDS = PATCH / 32 + 1;

struct Patch {  // Of the window of level 0 that has the same number; places in the batch.
    uint32_t begin, length;
    uint32_t joint;        // Where the chain goes from window to patch; NO_PLACE.
    uint32_t entry;        // Where a bridge enters the patch.
    uint32_t exit;         // Where the patch ends and its bridge begins.
    uint32_t landing;      // Where a bridge enters the window.
    uint32_t written;      // Up to where its bridge set start bits.
    uint32_t is_lost;      // Its bridge leads nowhere, see cut_detour.cuh.
    uint32_t entered;      // The window whose patch its bridge enters; NO_PLACE.
    uint32_t ends;         // Its exit + 1 and entry, in bytes from its beginning: exit << 16 | entry.
    uint32_t is_late;      // Bridges enter it behind its exit.
    uint32_t run_starts;   // One more than the number of its bridge's; 0 where it has none.
    uint32_t borders[PATCH_WORDS];  // Bits of places, the patch's end among them.
};

// Up to here bridges may enter a patch, and behind it its own leaves it if possible.
DEVICE uint32_t middle_of(const Patch& patch) { return patch.begin + patch.length / 8 * 5; }

// The patches lie where merged ids will.
DEVICE Patch& patch_of(const Job& job, uint32_t window) {
    return reinterpret_cast<Patch*>(job.merged_ids)[window];
}

// Where a window's patch begins: where it meets the window before, else a border amid its first half.
DEVICE uint32_t patch_place(const Job& job, const LongPiece& piece, uint32_t window) {
    if (window == piece.first_window) return 0;
    if (!fails(job, window - 1)) return meeting_of_windows(job, window - 1);
    uint64_t borders = job.window_borders[window] & 0xFFFF0000;
    return borders ? lowest_bit(borders) : 0;
}

// Writes down what follows from a patch's borders; `place` is where it begins in its window. That of a
// piece's first window is entered where the piece begins.
DEVICE void write_patch(const Job& job, uint32_t window, uint32_t place, uint32_t begin, uint32_t length,
                        bool is_first) {
    Patch& patch = patch_of(job, window);
    uint64_t borders = job.window_borders[window];
    uint64_t first = patch.borders[0] | static_cast<uint64_t>(patch.borders[1]) << 32;
    uint64_t left = place ? borders >> place | 1ull << (WINDOW_0 - place) : borders;
    first &= place ? (2ull << (WINDOW_0 - place)) - 1 : ~0ull;
    uint32_t joint = is_first ? 0 : meeting_place(left, first, WINDOW_0);
    patch.begin = begin;
    patch.length = length;
    patch.joint = joint == NO_PLACE ? NO_PLACE : begin + joint;
    patch.entry = begin;
    patch.entered = NO_PLACE;
    patch.written = patch.is_lost = patch.run_starts = patch.ends = patch.is_late = 0;
}

// The windows of a byte of patched_windows: what a warp takes in one step.
constexpr uint32_t WINDOWS_A_WARP = 8;
DEVICE uint32_t patched_of_warp(const Job& job, uint32_t first) {
    return patched_windows(job, first / 32) >> first % 32 & ((1u << WINDOWS_A_WARP) - 1);
}

// A patch to encode.
struct PatchPlace {
    uint32_t window, place, begin, length;  // Its place in the window; of no patch: length 0.
    bool is_first;
};

DEVICE PatchPlace patch_to_encode(const Job& job, uint32_t window) {
    LongPiece piece = piece_of_window(job, window);
    uint32_t place = patch_place(job, piece, window), begin = begin_of_window(piece, window) + place;
    return {window, place, begin, min_of(PATCH, piece.end - begin), begin == piece.begin};
}

// Encodes a patch, by the whole warp.
DEVICE void encode_patch(const Job& job, const PairCache& cache, Columns& columns, const PatchPlace& patch) {
    WarpColumns<PATCH / 32>& own = reinterpret_cast<WarpColumns<PATCH / 32>&>(columns);
    uint32_t bits = merge_window(merging(job, cache), own, job.text + patch.begin, patch.length, PATCH / 32);
    uint32_t word = words_of_places(bits, PATCH / 32), lane = threadIdx.x & 31;
    if (lane == patch.length / 32) word |= 1u << patch.length % 32;
    if (lane < PATCH_WORDS) patch_of(job, patch.window).borders[lane] = word;
    __syncwarp();
    if (lane == 0) write_patch(job, patch.window, patch.place, patch.begin, patch.length, patch.is_first);
    __syncwarp();
}

// Encodes the patches, a warp each.
DEVICE void patches_stage(const Job& job, MergeShared& shared, uint32_t block, uint32_t num_blocks) {
    uint32_t windows = static_cast<uint32_t>(job.window_counts[0]), warp = threadIdx.x / 32;
    if (!job.window_counts[1] || block * WINDOWS_A_WARP >= windows) return;
    PairCache cache = load_cache(job, shared.cache);
    uint32_t step = num_blocks * MERGE_WARPS * WINDOWS_A_WARP;
    for (uint32_t first = (warp * num_blocks + block) * WINDOWS_A_WARP; first < windows; first += step)
        for (uint32_t bits = patched_of_warp(job, first); bits; bits &= bits - 1)
            encode_patch(job, cache, shared.columns[warp], patch_to_encode(job, first + lowest_bit(bits)));
}

// Cuts where a window of level 0 says so; false where it is left before it is entered.
DEVICE bool write_window(const Job& job, const LongPiece& piece, uint32_t window, bool patched) {
    uint32_t begin = begin_of_window(piece, window), from = 0, to = WINDOW_0;
    if (window > piece.first_window) {
        bool lands = !is_live(job, window - 1) || is_patched(job, window - 1);
        from = lands ? patch_of(job, window).landing - begin : meeting_of_windows(job, window - 1);
    }
    if (patched) to = patch_of(job, window).joint - begin;
    else if (window < last_window(piece)) to = STRIDE_0 + meeting_of_windows(job, window);
    if (from > to || to > WINDOW_0) return false;
    uint64_t borders = job.window_borders[window] & (from < 64 ? ~0ull << from : 0);
    set_starts(job, begin, to < 64 ? borders & ((1ull << to) - 1) : borders);
    return true;
}

DEVICE bool write_patched(const Job& job, const Patch& patch, uint32_t from) {
    if (from > patch.exit) return false;
    from -= patch.begin;
    for (uint32_t i = 0, to = patch.exit - patch.begin; i < PATCH_WORDS && 32 * i < to; i++) {
        uint32_t bits = patch.borders[i];
        if (from > 32 * i) bits = from - 32 * i < 32 ? bits & 0xFFFFFFFFu << (from - 32 * i) : 0;
        if (to - 32 * i < 32) bits &= (1u << (to - 32 * i)) - 1;
        set_starts(job, patch.begin + 32 * i, bits);
    }
    return true;
}

// Repeats the start bits of a long run, the whole grid at once: 64 bytes a thread and step.
DEVICE void repeat_starts(const Job& job, const RunStarts& run, uint32_t thread, uint32_t threads) {
    for (uint64_t i = run.period + 64ull * thread; i < run.length; i += 64ull * threads) {
        uint32_t phase = i % run.period, left = run.period - phase;
        uint64_t bits = starts_from(job, run.place + phase);
        if (left < 64) bits = (bits & ((1ull << left) - 1)) | starts_from(job, run.place) << left;
        set_starts(job, run.place + i, run.length - i < 64 ? bits & ((1ull << (run.length - i)) - 1) : bits);
    }
}

// Cuts all pieces but those that failed: each window and patch of the chain gives its borders. Where
// the chain would go backwards the piece fails.
DEVICE void write_borders_stage(const Job& job, uint32_t block, uint32_t num_blocks) {
    uint32_t windows = static_cast<uint32_t>(job.window_counts[0]), runs = num_run_starts(job);
    for (uint32_t run = 0; run < runs; run++)
        repeat_starts(job, job.run_starts[run], block * BLOCK + threadIdx.x, num_blocks * BLOCK);
    for (uint32_t window = block * BLOCK + threadIdx.x; window < windows; window += num_blocks * BLOCK) {
        LongPiece& piece = piece_of_window(job, window);
        if (piece.failed) continue;
        bool live = is_live(job, window), patched = is_patched(job, window);
        bool is_right = !live || write_window(job, piece, window, patched);
        const Patch& patch = patch_of(job, window);
        if (is_right && patched) is_right = write_patched(job, patch, live ? patch.joint : patch.entry);
        if (!is_right) fail_piece(job, piece);
    }
}
