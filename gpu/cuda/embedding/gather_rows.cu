/* embedding/gather_rows.cu: row ids[i] of a table becomes row i of the output.
 *
 * Launch: blocks of GATHER_BLOCK threads, one for each GATHER_BLOCK * GATHER_WORDS words of 16 bytes
 * of the output; a row is a whole number of words. No shared memory. Words and where they are from:
 *
 *   words of a row 3, ids 5 2     output word   0   1   2   3   4   5
 *                                 table word   15  16  17   6   7   8
 *
 * Invariant: an output word's place alone decides what is written there. Every id must be a row.
 * Cost: one read of the ids, one write of the output; the table stays in the caches while it fits.
 * A thread loads the ids of all its words before it uses one: with one word each, threads wait longer for ids than the
 * memory needs to write (163 us for 537 MB instead of 141; 4 words 148, 8 words 158).
 * Blocks are short and many, so that kernels of a stream of higher priority come between them.
 */
#include "embedding/gather_rows.cuh"

KERNEL __launch_bounds__(GATHER_BLOCK) gather_rows(GRID_CONSTANT const Gather gather) {
    gather_words(gather, blockIdx.x, threadIdx.x);
}
