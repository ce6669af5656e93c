// Decoding: the bytes of ids, side by side, and where those of each row begin.
//
//     decode_spell          all rows, in one pass with look-back                       spell_pass.cuh, spell_ids.cuh
//     decode_spell_again    the same without the rows in which an id has no bytes
//
// gpu/decode launches them after clear_faults; the second one returns at once where every id has bytes. K-mers have
// kernels of their own that leave out the letters which neighbours share (kmers/kernels.cu).
//
// Invariant: no byte is written behind decoded_capacity, and decoded_offsets are right anyway.
//
// Launch: BLOCK threads, any number of blocks.
#include "decode/spell_pass.cuh"

// A block claims the next 1,024 ids: decode_ids, decode_offsets, tables -> decoded, decoded_offsets, decode_states,
// decode_faults, row_errors.
// Needs: no row at fault (clear_faults); decode_states and decode_faults of zeros.
// Ensures: `decoded` has the bytes of all ids, decoded_offsets where those of each row begin. row_errors is the first
// id of a row that has no bytes; decode_faults is not 0 if there is one.
KERNEL __launch_bounds__(BLOCK) decode_spell(const Job* job) {
    wait_for_kernel_before();
    SHARED SpellShared shared;
    spell_stage<SpellPass::FIRST, SpelledTokens::APART>(*job, shared);
}

// The same, only where decode_faults is not 0: decode_ids, decode_offsets, decode_faults, row_errors, tables ->
// decoded, decoded_offsets, decode_states.
// Needs: decode_spell.
// Ensures: rows that have row_errors have no bytes; all others have theirs.
KERNEL __launch_bounds__(BLOCK) decode_spell_again(const Job* job) {
    wait_for_kernel_before();
    SHARED SpellShared shared;
    spell_stage<SpellPass::AGAIN, SpelledTokens::APART>(*job, shared);
}
