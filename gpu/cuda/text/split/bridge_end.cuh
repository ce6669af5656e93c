// A bridge while it is built, and how it ends: on a window of level 0.
//
//     bridge     . . | . . . | . . |          ends where it has the same two borders
//     window             . . | . . | . . |    as what it reaches
//
// A window with a bridge of its own is entered up to its middle only, and left behind it if possible, so that
// bridges need not know of each other. Where one is entered behind its exit all the same, its piece fails.
//
// A window may begin wrong: in "...aaaabbbb..." at a place amid the a's that their run may not be cut at. Mostly it is
// right from the b's on; where that is too late for a bridge to enter it, the bridge leads past it.
#pragma once
#include "text/split/bridge_parts.cuh"
#include "text/split/merge_by_block.cuh"

constexpr uint32_t MAX_PASSED = 4;         // Windows with bridges that a bridge leads past.

struct BridgeShared {  // Of a block. The first warp writes what follows `borders`, in front of a barrier for all of them.
    RoundShared rounds;              // Of encode_by_block.
    Borders borders[2];              // Of the window at the bridge's end and of another one, by turns.
    uint32_t fate;                   // Of the bridge, see build.
    uint32_t begin, length, number;  // Of the window that comes next; which of the borders are its.
};

// The window at the end of a bridge. The first warp of a block builds it, so that only its lanes know of one, all the same;
// all warps encode its windows. What is in front of `from` is cut: the exit of the window of level 0, and parts.
//
//     text       . . . . . . . . . . . . . . . . .
//     window       |  |    |     |  |    |  |          begin, borders, begin + length
//     from                 ^                           where it meets the window before it
struct Bridge {
    uint32_t first, last;    // Windows of level 0: where it begins, the piece's last one.
    Ahead ahead;             // Where it may end.
    uint32_t begin, length;
    uint32_t from;           // The chain has come into the window here, so that it leaves it here or later.
    uint32_t right;          // From here on its borders are right; the next window begins here or later.
    bool is_first;           // It is still the window of level 0 that the bridge begins with.
    uint32_t current;        // Its borders are shared.borders[current]; the others are the next window's.
    uint32_t passed;         // Windows with bridges that it leads past.

    DEVICE_METHOD uint32_t end() const { return begin + length; }
    DEVICE_METHOD bool has_next() const { return ahead.next <= last; }
};

// The "middle" of a window: up to here bridges may enter a window with a bridge, and behind it its own leaves it if possible.
// Five eighths of it, since fewer bridges were lost than with a half.
DEVICE uint32_t middle_of(uint32_t begin, uint32_t length) { return begin + length / 8 * 5; }

// Loads a window's borders.
DEVICE void load_window(Borders& borders, const Window& window) {
    uint32_t lane = threadIdx.x & 31;
    __syncwarp();  // All have read what stood there.
    borders.words[lane] = lane < WORDS_0 ? window.borders[lane] : 0;
    if (lane < 2) borders.words[WALK_WORDS + lane] = 0;
    __syncwarp();
}

// Ends the window at a place: the chain goes on in another one.
DEVICE void leave(const Job& job, const Bridge& bridge, const Borders& borders, uint32_t place) {
    uint32_t length = place - bridge.from;
    if (!bridge.is_first) note_parts(job, bridge.first, borders, bridge.from - bridge.begin, length, bridge.from, length);
    else if ((threadIdx.x & 31) == 0) window_of(job, bridge.first).exit = place;
}

// Ends the bridge: the chain enters a window of level 0 at a place; behind the last one it is done.
DEVICE void end_at(const Job& job, const Bridge& bridge, uint32_t window, uint32_t place) {
    if (threadIdx.x & 31) return;
    Window& first = window_of(job, bridge.first);
    first.target = window;
    first.place = place;
}

// Where the chain leaves the window, of the places where it meets another one, which begins at `begin`: that of
// level 0 behind its middle if possible, since bridges enter it in front.
DEVICE uint32_t place_to_leave(const Bridge& bridge, uint32_t met, uint32_t begin) {
    if (!bridge.is_first) return begin + first_of(met);
    uint32_t middle = middle_of(bridge.begin, bridge.length);  // Still the window of level 0.
    uint32_t place = first_of(met & ~bits_below(middle > begin ? middle - begin : 0));
    return begin + (place == NO_PLACE ? last_of(met) : place);
}

// Up to where a window may be entered: up to its middle if it has a bridge, else up to where the chain leaves it.
DEVICE uint32_t latest_entry(const Job& job, const LongPiece& piece, const Bridge& bridge, uint32_t number) {
    if (number != bridge.ahead.next) return left_at(job, piece, number);
    return middle_of(window_of(job, number).begin, window_of(job, number).length);
}

// The window that a bridge may end on: the last one of which it covers half, but none behind the next one with a bridge.
DEVICE uint32_t window_reached(const LongPiece& piece, const Bridge& bridge) {
    uint32_t covered = bridge.end() - piece.begin;
    uint32_t window = covered < WINDOW_0 / 2 ? 0 : (covered - WINDOW_0 / 2) / STRIDE_0;
    return min_of(min_of(piece.first_window + window, bridge.last), bridge.ahead.next);
}

// Ends the bridge on a window of level 0, if it meets the one that it reaches where that may be entered; by the first warp.
DEVICE bool land(const Job& job, const LongPiece& piece, Bridge& bridge, BridgeShared& shared) {
    uint32_t number = window_reached(piece, bridge);
    const Window& window = window_of(job, number);
    if (number < bridge.ahead.fine || number <= bridge.first || window.begin < bridge.begin) return false;
    const Borders& borders = shared.borders[bridge.current];
    Borders& others = shared.borders[!bridge.current];
    load_window(others, window);
    uint32_t from = bridge.from > window.begin ? bridge.from - window.begin : 0;
    uint32_t to = latest_entry(job, piece, bridge, number) - window.begin;
    uint32_t met = meetings(borders, others, window.begin - bridge.begin) & ~bits_below(from) & bits_below(to + 1);
    if (!__any_sync(ALL_LANES, met != 0)) return false;
    uint32_t place = place_to_leave(bridge, met, window.begin);
    leave(job, bridge, borders, place);
    end_at(job, bridge, number, place);
    return true;
}

// Whether the bridge knows enough of the next window with a bridge to say that it cannot enter it.
DEVICE bool is_past_next(const Job& job, const LongPiece& piece, const Bridge& bridge) {
    if (!bridge.has_next()) return false;
    const Window& next = window_of(job, bridge.ahead.next);
    uint32_t enough = latest_entry(job, piece, bridge, bridge.ahead.next) + MAX_PIECE / 2;
    return min_of(enough, next.begin + next.length) <= bridge.end();
}
