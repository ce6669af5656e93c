// Level 1 of cutting long pieces: a bridge leads from a seam to where the chain goes on.
//
// That is the next window with a bridge or one behind the last that fails. Windows of up to WINDOW_1 bytes follow
// the one of level 0, each from a border of the one before it. One in a run slides along it (text/split/bridge_repeat.cuh).
//
//     text       x a a a a a a a a a a a a a ... a a a a b . . .
//     level 0  |---------|
//     bridge       |-------|=======> slides ====> |-------|
//                                                     |-------|     meets level 0
//
// A block takes one bridge after the other. Its first warp decides (begin_bridge, try_to_end, slide, choose_next, go_over),
// all warps encode the window that it has chosen:
//
//     begin_bridge --> try_to_end --> LEADS: it enters a window of level 0, or is at the piece's end
//                       ^      |
//                       |      +----> slide --> choose_next --> encode_by_block --> go_over --> LOST: the two do not meet
//                       |                           |                                  |
//                       |                           +--> LOST: none follows            |
//                       +--------------------------------------------------------------+
#pragma once
#include "text/split/bridge_repeat.cuh"

constexpr uint32_t MOST_LOST = 64;     // Bridges of a batch, before pieces are given up.
constexpr uint32_t MAX_WALKED = 128;  // Windows of level 0 in front of a run's end; where there are more only a slide may pass.

// Whether the window at the end is in a run that is too long to be walked through, and did not slide.
DEVICE bool is_amid_run(const Job& job, const LongPiece& piece, const Bridge& bridge) {
    uint32_t window = window_reached(piece, bridge);
    return bridge.length == WINDOW_1 && end_of_run(job, window, bridge.last + 1) - window > MAX_WALKED;
}

// Chooses the window that follows: it begins at the last border from `right` up to the middle of this one, so that the two
// overlap by half, and not behind the begin of the next window with a bridge; where there is no such border, at `right`.
// False where it would be this window again, or a run is too long.
DEVICE bool choose_next(const Job& job, const LongPiece& piece, const Bridge& bridge, BridgeShared& shared) {
    const Borders& borders = shared.borders[bridge.current];
    if (is_amid_run(job, piece, bridge)) return false;
    uint32_t right = bridge.right - bridge.begin, reach = bridge.length / 2;
    if (bridge.has_next()) reach = min_of(reach, window_of(job, bridge.ahead.next).begin - bridge.begin);
    uint32_t place = last_of(borders.words[threadIdx.x & 31] & bits_below(reach + 1) & ~bits_below(right));
    if (place < right) place = right;
    if (place == 0 && bridge.length == WINDOW_1) return false;
    bool is_short = bridge.is_first && place && !is_in_run(job, window_reached(piece, bridge));
    __syncwarp();  // All have read what stands in `shared`.
    if (threadIdx.x) return true;
    shared.begin = bridge.begin + place;
    shared.length = min_of(piece.end - shared.begin, is_short ? WINDOW_0 : WINDOW_1);
    shared.number = !bridge.current;
    return true;
}

// Goes over to the window that was chosen and is encoded now; false where it does not meet the last one.
DEVICE bool go_over(const Job& job, Bridge& bridge, const BridgeShared& shared) {
    const Borders& borders = shared.borders[bridge.current];
    uint32_t begin = shared.begin, place = begin - bridge.begin, from = bridge.from - bridge.begin;
    uint32_t met = meetings(borders, shared.borders[!bridge.current], place);
    if (from > place) met &= ~bits_below(from - place);
    if (!__any_sync(ALL_LANES, met != 0)) return false;
    uint32_t meeting = place_to_leave(bridge, met, begin);
    leave(job, bridge, borders, meeting);
    bridge.begin = begin;
    bridge.length = shared.length;
    bridge.from = bridge.right = meeting;
    bridge.is_first = false;
    bridge.current = !bridge.current;
    return true;
}

// Begins the bridge of a window.
DEVICE Bridge begin_bridge(const Job& job, const LongPiece& piece, BridgeShared& shared, uint32_t number) {
    const Window& window = window_of(job, number);
    uint32_t last = last_window(piece);
    load_window(shared.borders[0], window);
    Ahead ahead = look_ahead(job, number, last + 1);
    return {number, last, ahead, window.begin, window.length, window.joint, window.joint, true, 0, 0};
}

// Leads past the next window with a bridge without entering it; false where that is one too many.
DEVICE bool pass_next(const Job& job, Bridge& bridge) {
    if (bridge.passed == MAX_PASSED) return false;
    uint32_t passed = bridge.ahead.next;
    bridge.passed++;
    bridge.ahead = look_ahead(job, passed, bridge.last + 1);
    if (bridge.ahead.fine == passed) bridge.ahead.fine++;
    return true;
}

constexpr uint32_t GOES_ON = 0, LEADS = 1, LOST = 2;  // What becomes of a bridge.

// Ends the bridge with its last window if that can be.
DEVICE uint32_t try_to_end(const Job& job, const LongPiece& piece, Bridge& bridge, BridgeShared& shared) {
    for (;;) {
        if (!bridge.has_next() && bridge.end() == piece.end) {
            leave(job, bridge, shared.borders[bridge.current], piece.end);
            end_at(job, bridge, bridge.last + 1, piece.end);
            return LEADS;
        }
        if (land(job, piece, bridge, shared)) return LEADS;
        if (!is_past_next(job, piece, bridge)) return GOES_ON;
        if (!pass_next(job, bridge)) return LOST;
    }
}

// Whether a piece is level 2's already, as other blocks say meanwhile.
DEVICE bool is_given_up(const LongPiece& piece) { return static_cast<const volatile uint32_t&>(piece.failed) != 0; }

// Gives a piece up of which a bridge is lost, that of number `number`, if a quarter of those up to it are.
DEVICE void note_lost(const Job& job, LongPiece& piece, uint32_t number) {
    if (is_given_up(piece)) return;
    uint64_t lost = atomic_add(job.window_counts + COUNT_LOST, 1);
    if (lost >= MOST_LOST && 4 * lost >= number) fail_piece(job, piece);
}

// Builds a bridge to its end, by the whole block. The first warp writes `shared` in front of the barrier; that all have read
// it before it writes again the barriers of encode_by_block see to, and behind the last window another one.
DEVICE uint32_t build(const Job& job, const LongPiece& piece, BridgeShared& shared, Bridge& bridge) {
    for (bool is_begun = true;; is_begun = false) {
        if (threadIdx.x < 32) {
            bool goes_on = is_begun ? !__any_sync(ALL_LANES, is_given_up(piece_of_window(job, bridge.first))) : go_over(job, bridge, shared);
            uint32_t fate = goes_on ? try_to_end(job, piece, bridge, shared) : LOST;
            if (fate == GOES_ON) {
                slide(job, piece, bridge, shared.borders[bridge.current]);
                if (!choose_next(job, piece, bridge, shared)) fate = LOST;
            }
            if (threadIdx.x == 0) shared.fate = fate;
            __syncwarp();
        }
        __syncthreads();
        uint32_t fate = shared.fate;
        if (fate == GOES_ON) {
            encode_by_block(job, shared.rounds, shared.borders[shared.number], shared.begin, shared.length);
            continue;
        }
        __syncthreads();  // All know it before the next one begins.
        return fate;
    }
}

// Calls `work` for those windows with bridges of which this block (or warp, if these are counted) has the turn, with the
// bridge's number; each warp finds the same ones for itself.
//
//     bridged      . 1 . . 1 1 . 1 . . 1        three blocks: block 0 has the first and the fourth, block 1
//     number         0     1 2   3     4        the second and the fifth, block 2 the third
template <class Work> DEVICE void for_own_bridges(const Job& job, uint32_t block, uint32_t num_blocks, Work work) {
    uint32_t words = (static_cast<uint32_t>(job.window_counts[COUNT_WINDOWS]) + 31) / 32, lane = threadIdx.x & 31, next = block;
    for (uint32_t first = 0, before = 0; first < words; first += 32) {
        uint32_t bits = first + lane < words ? bridged_windows(job, first + lane) : 0, count = count_bits(bits);
        uint32_t up_to = before + sum_of_lanes(count);  // Bridges up to this lane's.
        before = __shfl_sync(ALL_LANES, up_to, 31);
        for (; next < before; next += num_blocks) {
            uint32_t found = lowest_bit(__ballot_sync(ALL_LANES, next < up_to));
            uint32_t word = __shfl_sync(ALL_LANES, bits, found);
#pragma unroll 1
            for (uint32_t left = next - __shfl_sync(ALL_LANES, up_to - count, found); left; left--) word &= word - 1;
            work((first + found) * 32 + lowest_bit(word), next);
        }
    }
}

DEVICE void build_bridge(const Job& job, BridgeShared& shared, uint32_t window, uint32_t number) {
    LongPiece piece = piece_of_window(job, window);
    Bridge bridge = {};
    if (threadIdx.x < 32) bridge = begin_bridge(job, piece, shared, window);
    uint32_t fate = build(job, piece, shared, bridge);
    if (threadIdx.x) return;
    if (fate == LOST) note_lost(job, piece_of_window(job, window), number);
    if (!bridge.passed) return;
    window_of(job, window).passed = bridge.passed;
    atomic_add(job.window_counts + COUNT_SEAMS, ONE_ABOVE);
}

DEVICE void bridges_stage(const Job& job, BridgeShared& shared, uint32_t block, uint32_t num_blocks) {
    if (!job.window_counts[COUNT_SEAMS]) return;
    for_own_bridges(job, block, num_blocks, [&](uint32_t window, uint32_t number) { build_bridge(job, shared, window, number); });
}
