// Level 0 of cutting long pieces: windows of 512 bytes, a warp each, in rounds (text/merge/merge_by_warp_rounds.cuh).
//
//     windows    |-------|-------|
//                        |-------|-------|       each begins about in the middle of the one before
//     chain      0000000000001111111222 ...      from joint to joint, as long as windows meet
//
// A window that would begin in a run of one byte begins a little earlier, where the run's own tokens do if none lies
// across its front (gpu/text/byte_run_period.py). So it is mostly right at once, and meets its neighbours.
//
//     text       . . x a a a a a a a a a a a a a       tokens of four, a window that would begin at the tenth a
//     windows        |       |       |   ^             begins at the ninth
//
// Behind a seam the chain is a bridge's (text/split/bridge.cuh), from the window's exit to another one's entry.
#pragma once
#include "text/split/seams.cuh"
#include "common/bit_masks.cuh"

constexpr uint32_t BACK_LOADS = 8;  // Of 512 bytes: how far back a warp looks for a run's first byte.

// Where the run of one byte begins that goes up to `place`, but not in front of its piece; by the whole warp.
// `place` itself if that is too far.
DEVICE uint32_t first_of_run(const Job& job, const LongPiece& piece, uint32_t place, uint32_t byte) {
    uint32_t lane = threadIdx.x & 31, four = byte * 0x01010101u, chunk = place / 16;
    for (uint32_t i = 0; i < BACK_LOADS; i++, chunk -= 32) {
        uint32_t others = 0xFFFF;  // Bytes that are not of the run, a bit for each.
        if (lane <= chunk) {
            uint4 bytes = reinterpret_cast<const uint4*>(job.text)[chunk - lane];
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
    uint32_t before = job.text[first - 1], byte = job.text[first], across = job.byte_pairs[byte << 8 | before];
    bool is_sooner = across < job.byte_pairs[byte * 0x101] && across < job.byte_pairs[before * 0x101];
    return is_sooner ? first + 1 : first;
}

// Where a window begins; the last one reaches to its piece's end.
DEVICE uint32_t begin_of_window(const Job& job, const LongPiece& piece, uint32_t window) {
    uint32_t place = piece.begin + (window - piece.first_window) * STRIDE_0, byte = job.text[place];
    uint32_t step = job.run_steps[byte];
    if (window == piece.first_window || !step) return place;
    uint32_t first = first_of_run(job, piece, place, byte);
    if (first < place) first = first_token_of_run(job, piece, first);
    uint32_t begin = place - (place - first) % step;
    return window == last_window(piece) && piece.end - begin > WINDOW_0 ? begin + step : begin;
}

// A word that begins at any byte.
DEVICE uint32_t word_at(const uint8_t* text) {
    uint64_t address = reinterpret_cast<uint64_t>(text);
    const uint32_t* aligned = reinterpret_cast<const uint32_t*>(address & ~3ull);
    return shift_right(__ldg(aligned), __ldg(aligned + 1), (address & 3) * 8);
}

// Up to where a text repeats its first `period` bytes, looking at every `step`th word from number `first` on.
DEVICE uint32_t repeats_up_to(const uint8_t* text, uint32_t length, uint32_t period, uint32_t first, uint32_t step) {
    for (uint32_t i = 4 * first; i + period < length; i += 4 * step) {
        uint32_t different = word_at(text + i) ^ word_at(text + i + period), left = length - period - i;
        if (left < 4) different &= (1u << 8 * left) - 1;
        if (different) return i + period + lowest_bit(different) / 8;
    }
    return length;
}

// The period of a text that repeats up to MAX_RUN_PERIOD bytes three times or more, 0 where it has none; by a warp, 32
// periods at a time, a lane each. The lowest one that the text's first bytes have is followed up to where it ends:
//
//     text     a b a b a b a b c a b a b a b a b c ...     period 2 up to `front`, 8: next are those from 7 on
//
// *Proof* that no period q in between is the text's, where p is the lowest one that its first `front` bytes have: from
// p + q <= front it follows that the greatest common divisor of both is a period of these (Fine and Wilf), which then is p.
// So p divides q, and a text that repeats its first q bytes would repeat p everywhere.
DEVICE uint32_t period_of_text(const uint8_t* text, uint32_t length) {
    uint32_t lane = threadIdx.x & 31, first = 1;
#pragma unroll 1
    while (first <= MAX_RUN_PERIOD && 3 * first <= length) {
        uint32_t period = first + lane, front = min_of(length, 2 * (first + 31));
        bool of_front = period <= MAX_RUN_PERIOD && 3 * period <= length;
        of_front = of_front && repeats_up_to(text, front, period, 0, 1) == front;
        uint32_t found = __ballot_sync(ALL_LANES, of_front);
        first += 32;
        if (!found) continue;
        period = first - 32 + lowest_bit(found);
        front = __reduce_min_sync(ALL_LANES, repeats_up_to(text, length, period, lane, 32));
        if (front == length) return period;
        first = front - period + 1;
    }
    return 0;
}

// Encodes a window, by the whole warp.
DEVICE void encode_window_0(const Merging& how, WarpColumns<WINDOW_0 / 32>& columns, uint32_t number) {
    uint32_t number_of_piece = find_piece(how.job, number), lane = threadIdx.x & 31;
    LongPiece piece = how.job.long_pieces[number_of_piece];
    if (lane == 0) window_of(how.job, number).piece = number_of_piece;
    uint32_t begin = begin_of_window(how.job, piece, number), length = min_of(WINDOW_0, piece.end - begin);
    uint32_t places = length <= WINDOW_0 / 2 ? WINDOW_0 / 64 : WINDOW_0 / 32;
    const uint8_t* text = how.job.text + begin;
    uint32_t word = words_of_places(merge_window(how, columns, text, length, places), places);
    uint32_t period = period_of_text(text, length);
    if (lane == length / 32) word |= 1u << length % 32;
    Window& window = window_of(how.job, number);
    if (lane < WORDS_0) window.borders[lane] = word;
    if (lane) return;
    window.begin = window.joint = window.entry = begin;
    window.length = length;
    window.period = period;
    window.exit = window.target = NO_PLACE;
    window.passed = 0;
}

DEVICE void windows_stage(const Job& job, MergeShared& shared, uint32_t block, uint32_t num_blocks) {
    uint32_t windows = all_windows(job), warp = threadIdx.x / 32;
    if (block >= windows) return;
    Merging how = merging(job, load_cache(job, shared.cache));
    auto& columns = reinterpret_cast<WarpColumns<WINDOW_0 / 32>&>(shared.columns[warp]);
    for (uint32_t window = warp * num_blocks + block; window < windows; window += num_blocks * MERGE_WARPS) {
        encode_window_0(how, columns, window);
        __syncwarp();
    }
}
