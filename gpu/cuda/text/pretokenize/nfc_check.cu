// The kernel that checks texts for NFC, for vocabularies that compose.
//
//     e U+0301         may become U+00E9: does not pass
//     U+0921 U+093C    stays as it is: passes
//
// Launch: BLOCK threads, any number of blocks.
// Invariant: a text that passes is in NFC (text/pretokenize/nfc_check.cuh).
#include "text/pretokenize/nfc_check.cuh"

using namespace warptok::text;

// A thread per sixteen bytes: text, row_begins, composed_pages, composed_rows, composed_leads -> status.
// Needs: rows that are UTF-8, or at fault.
// Ensures: STATUS_NOT_COVERED is 0 only if NFC changes no row.
KERNEL __launch_bounds__(BLOCK) check_composed(const Job* job) { check_composed_stage(*job, blockIdx.x, gridDim.x); }
