/* embedding/fused_embedding.cu: letters become ids and rows of a table in one launch; the next letters become ids.
 *
 * Launch: blocks of EMBED_BLOCK threads, one for every EMBED_LETTERS letters, which may lie in pinned memory of the
 * host: a block waits for its letters while others write rows. Shared memory: the rows' numbers, 256 bytes.
 *
 *   text  A C G T A   next_text  G A       ids  7 8 9 10 7   next_ids  9 7       output  rows 7 8 9 10 7 of the table
 *
 * Invariant: output row i is row ids[i] of the table. `unknown` becomes `number` where a letter has no code: then its
 * id and its row are void.
 * Blocks are short for the reasons of embedding/gather_rows.cu.
 */
#include "embedding/fused_embedding.cuh"

KERNEL __launch_bounds__(EMBED_BLOCK) embed_letters(GRID_CONSTANT const Embed embed) {
    SHARED int32_t rows[EMBED_LETTERS];
    uint64_t first = static_cast<uint64_t>(blockIdx.x) * EMBED_LETTERS;
    look_block_up(embed, rows, first, threadIdx.x);
    __syncthreads();
    write_rows_of(embed, rows, first, threadIdx.x);
}
