// The windows of long pieces: 512 bytes, a warp each, in rounds (text/split/window_rounds.cuh).
//
//     windows    |-------|-------|
//                        |-------|-------|       each begins about in the middle of the one before
//     chain      0000000000001111111222 ...      from joint to joint, as long as windows meet
//
// Any window may begin anywhere; where it begins only decides whether it meets its neighbours.
//
// A window that would begin in a run of one byte begins a little earlier, where the run's own tokens do if none lies
// across its front (gpu/text/byte_run_period.py). So it is mostly right at once, and meets its neighbours.
//
//     text       . . x a a a a a a a a a a a a a       tokens of four, a window that would begin at the tenth a
//     windows        |       |       |   ^             begins at the ninth
//
// Invariant: the boundaries of a window are those of enc of its bytes, its begin and its end among them.
#pragma once
#include "common/bit_masks.cuh"
#include "text/split/window_rounds.cuh"
#include "text/split/windows_common.cuh"

namespace warptok::text {

constexpr uint32_t BACK_LOADS = 8;  // Of 512 bytes: how far back a warp looks for a run's first byte.

// Where the run of one byte that ends at `place` begins, within its piece; `place` itself if that is too far away. The
// whole warp calls it.
DEVICE uint32_t first_of_run(const Job& job, const LongPiece& piece, uint32_t place, uint32_t byte) {
    uint32_t lane = threadIdx.x & 31, four = byte * 0x01010101u, chunk = place / 16;
    for (uint32_t i = 0; i < BACK_LOADS; i++, chunk -= 32) {
        uint32_t others = 0xFFFF;  // Bytes that are not of the run, a bit for each.
        if (lane <= chunk) {
            uint4 bytes = reinterpret_cast<const uint4*>(job.batch.text)[chunk - lane];
            const uint32_t words[4] = {nonzero_bytes(bytes.x ^ four), nonzero_bytes(bytes.y ^ four),
                                       nonzero_bytes(bytes.z ^ four), nonzero_bytes(bytes.w ^ four)};
            others = upper_bits(words);
        }
        if (i == 0 && lane == 0) others &= (1u << place % 16) - 1;
        uint32_t filled = __ballot_sync(ALL_LANES, others != 0), found = filled ? lowest_bit(filled) : 0;
        uint32_t first = (chunk - found) * 16 + highest_bit(__shfl_sync(ALL_LANES, others, found) | 1) + 1;
        if (filled) return first > piece.begin ? first : piece.begin;
        if (chunk * 16 <= piece.begin + 31 * 16) return piece.begin;  // What lies before is another piece's.
    }
    return place;
}

// Where the tokens of a run begin that begins at `first`: behind its first byte where that merges with the byte in
// front of it sooner than either merges with its like.
DEVICE uint32_t first_token_of_run(const Job& job, const LongPiece& piece, uint32_t first) {
    if (first == piece.begin) return first;
    uint32_t before = job.batch.text[first - 1], byte = job.batch.text[first],
             across = job.text.byte_pairs[byte << 8 | before];
    bool is_sooner = across < job.text.byte_pairs[byte * 0x101] && across < job.text.byte_pairs[before * 0x101];
    return is_sooner ? first + 1 : first;
}

// Where a window begins; the last one reaches to its piece's end.
DEVICE uint32_t begin_of_window(const Job& job, const LongPiece& piece, uint32_t window) {
    uint32_t place = piece.begin + (window - piece.first_window) * WINDOW_STEP, byte = job.batch.text[place];
    uint32_t step = job.text.run_steps[byte];
    if (window == piece.first_window || !step) return place;
    uint32_t first = first_of_run(job, piece, place, byte);
    if (first < place) first = first_token_of_run(job, piece, first);
    uint32_t begin = place - (place - first) % step;
    return window == last_window(piece) && piece.end - begin > WINDOW_BYTES ? begin + step : begin;
}

// This lane's word of 32 boundaries, made of the boundaries that lanes have at their 8 or 16 places. The whole warp
// calls it.
DEVICE uint32_t words_of_places(uint32_t bits, uint32_t places) {
    uint32_t lane = threadIdx.x & 31, lanes = 32 / places, word = bits << (places * (lane % lanes));  // Of a word.
    for (uint32_t distance = 1; distance < lanes; distance *= 2) word |= __shfl_xor_sync(ALL_LANES, word, distance);
    word = __shfl_sync(ALL_LANES, word, lane * lanes % 32);
    return lane < places ? word : 0;
}

// Encodes a window; the whole warp calls it.
DEVICE void encode_window(const Merging& how, WarpColumns& columns, uint32_t number) {
    uint32_t number_of_piece = find_piece(how.job, number), lane = threadIdx.x & 31;
    LongPiece piece = how.job.text.long_pieces[number_of_piece];
    if (lane == 0) window_of(how.job, number).piece = number_of_piece;
    uint32_t begin = begin_of_window(how.job, piece, number), length = min_of(WINDOW_BYTES, piece.end - begin);
    uint32_t places = length <= WINDOW_BYTES / 2 ? WINDOW_BYTES / 64 : WINDOW_BYTES / 32;
    const uint8_t* text = how.job.batch.text + begin;
    uint32_t word = words_of_places(merge_window(how, columns, text, length, places), places);
    if (lane == length / 32) word |= 1u << length % 32;
    Window& window = window_of(how.job, number);
    if (lane < WORDS_A_WINDOW) window.borders[lane] = word;
    if (lane) return;
    window.begin = window.joint = begin;
    window.length = length;
}

// The columns come last: a block of fewer warps asks for fewer of them.
struct WindowsShared {
    PairFilter filter;
    WarpColumns columns[MERGE_WARPS];
};
constexpr uint32_t WINDOWS_SHARED = 96 * 1024;
static_assert(sizeof(WindowsShared) <= WINDOWS_SHARED, "the launch asks for so much");

DEVICE void windows_stage(const Job& job, WindowsShared& shared, uint32_t block, uint32_t num_blocks) {
    uint32_t windows = all_windows(job), warp = threadIdx.x / 32;
    if (block >= windows) return;
    load_filter(job, shared.filter);
    Merging how = merging(job, &shared.filter);
    for (uint32_t window = warp * num_blocks + block; window < windows; window += num_blocks * (blockDim.x / 32)) {
        encode_window(how, shared.columns[warp], window);
        __syncwarp();
    }
}

}  // namespace warptok::text
