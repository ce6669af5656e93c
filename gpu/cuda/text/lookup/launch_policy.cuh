// What the stages from looking up to compacting know of their launch at compile time.
//
//                        LONG_PIECES_ARE_SPLIT    COUNTS_IDS    IS_LATENCY_BOUND
//     SeparateLaunches           yes                  no               no           a kernel a stage
//     GridLaunch                 yes                  yes              no           one launch that fills the device
//     OneClusterLaunch           no                   yes              yes          one launch of a block or a cluster
//
// LONG_PIECES_ARE_SPLIT: find_long has run, so that a long piece that is no token is a fault; else looking up finds it.
// COUNTS_IDS: looking up and merging count the ids of each part of a tile (text/lookup/tile_counts.cuh).
// IS_LATENCY_BOUND: there are few warps, so that a thread loads ahead all that it needs, and a warp is given few
// pieces and fetches the code of few ways to merge.
#pragma once

namespace warptok::text {

struct SeparateLaunches {
    static constexpr bool LONG_PIECES_ARE_SPLIT = true, COUNTS_IDS = false, IS_LATENCY_BOUND = false;
};

struct GridLaunch {
    static constexpr bool LONG_PIECES_ARE_SPLIT = true, COUNTS_IDS = true, IS_LATENCY_BOUND = false;
};

struct OneClusterLaunch {
    static constexpr bool LONG_PIECES_ARE_SPLIT = false, COUNTS_IDS = true, IS_LATENCY_BOUND = true;
};

}  // namespace warptok::text
