// A bridge while it is built, and how it ends: on a window of level 0 or on the next patch.
//
//     bridge     . . | . . . | . . |          ends where it has the same two borders
//     window             . . | . . | . . |    as what it reaches
//
// A patch is entered in its first half and left behind it if possible; where two bridges that do not know of
// each other get it the other way round, the second of them notices.
#pragma once
#include "cut_patch.cuh"
#include "walk_window.cuh"

constexpr uint64_t ONE_LOST = 1ull << 40;  // window_counts[1]: bridges that lead nowhere << 40 | seams.

struct BridgeShared {  // Of a warp.
    WarpColumns<32> columns;
    Borders borders[2];
};

// The window at the end of a bridge, which the whole warp builds.
struct Bridge {
    uint32_t patched, last;  // Windows of level 0: where it begins, the piece's last one.
    Ahead ahead;
    uint32_t begin, length;
    uint32_t from;           // The chain leaves the window here or later,
    uint32_t right;          // and from here on it is right.
    bool is_patch;
    uint32_t current;        // Number of `borders`.
    bool is_detour;          // All other bridges are there (cut_detour.cuh).
    uint32_t may_pass;       // Patches that it may leave behind without entering them.
    uint32_t cleared;        // Up to here a detour has taken back what others wrote; NO_PLACE of others.

    DEVICE_METHOD uint32_t end() const { return begin + length; }
    DEVICE_METHOD bool has_next() const { return ahead.next <= last; }
};

// Loads a patch's borders.
DEVICE void load_patch(Borders& borders, const Patch& patch) {
    uint32_t lane = threadIdx.x & 31;
    borders.words[lane] = lane < PATCH_WORDS ? patch.borders[lane] : 0;
    if (lane < 2) borders.words[WALK_WORDS + lane] = 0;
    __syncwarp();
}

// Notes where a patch is entered or left, by two warps: the second of them sees whether both fit.
DEVICE void note_end(const Job& job, Patch& patch, uint32_t end) {
    uint32_t ends = atomicAdd(&patch.ends, end) + end;
    if (ends >> 16 == 0 || (ends & 0xFFFF) < ends >> 16) return;
    patch.is_late = 1;
    atomic_add(job.window_counts + 1, ONE_LOST);
}

// Takes back what others wrote up to a place, before a detour writes there.
DEVICE void clear_up_to(const Job& job, Bridge& bridge, uint32_t place) {
    if (place <= bridge.cleared) return;
    clear_starts(job, bridge.cleared, place, threadIdx.x & 31, 32);
    bridge.cleared = place;
    __syncwarp();
}

// Ends the window at a place: the chain goes on in another one.
DEVICE void leave(const Job& job, Bridge& bridge, const Borders& borders, uint32_t place) {
    clear_up_to(job, bridge, place);
    Patch& patch = patch_of(job, bridge.patched);
    if (!bridge.is_patch) write_walk(job, borders, bridge.begin, bridge.from - bridge.begin, place - bridge.begin);
    if (threadIdx.x & 31) return;
    patch.written = place;
    if (!bridge.is_patch) return;
    patch.exit = place;
    if (!bridge.is_detour) note_end(job, patch, (place - patch.begin + 1) << 16);
}

// Where the chain leaves the window, of the places where it meets another one, which begins at `begin`: a
// patch behind its middle if possible, since bridges enter it in front.
DEVICE uint32_t place_to_leave(const Bridge& bridge, uint32_t met, uint32_t begin) {
    if (!bridge.is_patch) return begin + first_of(met);
    uint32_t middle = bridge.begin + bridge.length / 8 * 5;
    uint32_t place = first_of(met & ~bits_below(middle > begin ? middle - begin : 0));
    return begin + (place == NO_PLACE ? last_of(met) : place);
}

// Where the bridge meets a window of level 0 in front of that window's own end of the chain.
DEVICE uint32_t landing_on(const Job& job, const LongPiece& piece, const Bridge& bridge, const Borders& borders,
                           uint32_t window) {
    uint32_t begin = begin_of_window(piece, window), limit;
    uint64_t bits = long_bits_from(borders, begin - bridge.begin);
    if (bridge.from > begin) bits = bridge.from - begin < 64 ? bits & ~0ull << (bridge.from - begin) : 0;
    if (window != bridge.ahead.next) limit = STRIDE_0 + meeting_of_windows(job, window);
    else if (patch_of(job, window).joint == NO_PLACE) return NO_PLACE;
    else limit = patch_of(job, window).joint - begin;
    uint32_t place = meeting_place(bits, job.window_borders[window], limit);
    return place == NO_PLACE ? NO_PLACE : begin + place;
}

// Ends the bridge on a window of level 0, the last that it covers.
DEVICE bool land(const Job& job, const LongPiece& piece, Bridge& bridge, const Borders& borders) {
    if (bridge.length < WINDOW_0) return false;
    // A patch without a joint can be entered by a bridge only, if it is not too far.
    if (bridge.has_next() && patch_of(job, bridge.ahead.next).joint == NO_PLACE &&
        patch_of(job, bridge.ahead.next).begin - bridge.begin < 2 * WINDOW_1)
        return false;
    uint32_t window = piece.first_window + (bridge.end() - WINDOW_0 - piece.begin) / STRIDE_0;
    window = min_of(window, bridge.ahead.next);
    if (window < bridge.ahead.fine || window <= bridge.patched || begin_of_window(piece, window) < bridge.begin)
        return false;
    uint32_t place = landing_on(job, piece, bridge, borders, window);
    if (place == NO_PLACE) return false;
    leave(job, bridge, borders, place);
    if ((threadIdx.x & 31) == 0) patch_of(job, window).landing = place;
    pass_windows(job, bridge.patched + 1, window);
    return true;
}

// Up to where the next patch may be entered: in its first half, since it is left in its second if possible;
// a detour knows where.
DEVICE uint32_t latest_entry(const Bridge& bridge, const Patch& next) {
    bool is_left = bridge.is_detour && !next.is_lost;
    return is_left ? min_of(next.exit, middle_of(next)) : middle_of(next);
}

// What a bridge must know of the next patch to say that it cannot be entered.
DEVICE uint32_t last_of_entry(const Bridge& bridge, const Patch& next) {
    return min_of(latest_entry(bridge, next) + WINDOW_0, next.begin + next.length);
}

// Ends the bridge on the next patch.
DEVICE bool enter_next(const Job& job, Bridge& bridge, BridgeShared& shared) {
    const Borders& borders = shared.borders[bridge.current];
    Borders& others = shared.borders[!bridge.current];
    Patch& next = patch_of(job, bridge.ahead.next);
    load_patch(others, next);
    uint32_t from = bridge.from > next.begin ? bridge.from - next.begin : 0;
    uint32_t met = meetings(borders, others, next.begin - bridge.begin) & ~bits_below(from);
    met &= bits_below(latest_entry(bridge, next) - next.begin + 1);
    if (!__any_sync(ALL_LANES, met != 0)) return false;
    uint32_t place = place_to_leave(bridge, met, next.begin);
    leave(job, bridge, borders, place);
    if ((threadIdx.x & 31) == 0) {
        next.entry = place;
        if (!bridge.is_detour) {
            patch_of(job, bridge.patched).entered = bridge.ahead.next;
            note_end(job, next, place - next.begin);
        }
    }
    pass_windows(job, bridge.patched + 1, bridge.ahead.next + 1);
    return true;
}
