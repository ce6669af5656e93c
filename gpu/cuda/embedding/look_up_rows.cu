/* embedding/look_up_rows.cu: sequences become a matrix of ids, padded on either side.
 *
 *   rows ACGT, CC       look_up_flat   . . .  C C       only letters, all rows as long as the matrix is wide
 *   ids 1 2 3 4, 2 2    look_up_rows   1 2 3 4 | 0 0 2 2
 *   prefix 5, suffix 6                 5 1 2 3 4 6 | 0 0 5 2 2 6
 *
 * Launch: blocks of LOOK_UP_BLOCK threads. look_up_flat: one for every 4 * FLAT_ROUNDS * LOOK_UP_BLOCK letters,
 * which it may read over PCIe; look_up_rows: one for every LOOK_UP_BLOCK ids or letters, whichever are more. Shared
 * memory: the codes, 1 KiB.
 * Invariant: an id's place in the matrix alone decides what is written there. `unknown` becomes `number` where a letter
 * has no code: then the ids of its row are void.
 */
#include "embedding/look_up_rows.cuh"

KERNEL __launch_bounds__(LOOK_UP_BLOCK) look_up_flat(GRID_CONSTANT const LookUp look_up) {
    SHARED int32_t codes[256];
    codes[threadIdx.x] = look_up.codes[threadIdx.x];
    __syncthreads();
    look_up_letters(look_up, codes, blockIdx.x, threadIdx.x);
}

KERNEL __launch_bounds__(LOOK_UP_BLOCK) look_up_rows(GRID_CONSTANT const LookUp look_up) {
    SHARED int32_t codes[256];
    codes[threadIdx.x] = look_up.codes[threadIdx.x];
    __syncthreads();
    look_up_row(look_up, codes, blockIdx.x * static_cast<uint64_t>(LOOK_UP_BLOCK) + threadIdx.x);
}
