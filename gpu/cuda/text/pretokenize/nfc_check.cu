// Whether texts are in NFC, of vocabularies that compose. Launch: BLOCK threads, any number of blocks.
#include "text/pretokenize/nfc_check.cuh"

using namespace warptok::text;

// A thread per sixteen bytes: text, row_begins, composed_pages, composed_rows, composed_leads -> status.
// Needs: rows that are UTF-8, or at fault.
// Ensures: STATUS_NOT_COVERED is 0 only if NFC changes no row.
KERNEL __launch_bounds__(BLOCK) check_composed(const Job* job) { check_composed_stage(*job, blockIdx.x, gridDim.x); }
