// Policies: the properties of a launch that the stages from look-up to compaction know at compile time.
//
//                        LONG_PIECES_ARE_SPLIT    COUNTS_IDS    IS_LATENCY_BOUND
//     SeparateLaunches           yes                  no               no           a kernel a stage
//     GridLaunch                 yes                  yes              no           one launch that fills the device
//     OneClusterLaunch           no                   yes              yes          one launch of a block or a cluster
//
// LONG_PIECES_ARE_SPLIT: find_long has run, so that a long piece must be a token. Else the lookup finds such pieces.
// COUNTS_IDS: looking up and merging count the ids of each part of a tile (text/lookup/tile_counts.cuh).
// IS_LATENCY_BOUND: there are few warps. A thread therefore loads ahead, a warp merges few pieces at a time, and fewer
// variants of the merge are compiled, because loading their code takes time.
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
