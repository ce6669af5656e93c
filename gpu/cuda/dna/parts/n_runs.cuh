// Resolves letters of PART_CLASS_MIXED in a part: the letter whose long runs are replaced, and the letter that merges
// and is no base. GENA-LM's N is both.
//
// Letters of a long run are gaps, the first of which has the run's id. Other letters of PART_CLASS_MIXED are mixed.
// Where a run continues behind the round, at most run_length letters of the text are read. Letters behind the view do
// not matter, as no place of the part depends on them.
//
//     text          A N N N N|N N A            rounds of five letters, runs of five are long
//     run_before              4
//     borders         1 1 1 1 1 1 1
#pragma once
#include "dna/parts/part.cuh"

namespace warptok::dna {

DEVICE bool is_run_letter(const Job& job, uint8_t letter) { return job.dna.run_length && letter == job.dna.run_letter; }

// Whether a packed letter of the view is the letter whose runs are replaced.
DEVICE bool is_run_letter(const Job& job, const PartShared& shared, uint32_t letter) {
    return job.dna.run_length && shared.lengths[letter + 1] == (GAP_LENGTH | job.dna.run_letter);
}

DEVICE const uint8_t* text_of(const Job& job, const View& view) {
    return (job.host.host_text ? job.host.host_text : job.batch.text) + view.begin;
}

// Letters of the run directly in front of a view, run_length at most.
DEVICE uint32_t run_before_view(const Job& job, const PartShared& shared, const View& view) {
    uint64_t row_begin = shared.first_row ? job.rows.row_begins[shared.first_row - 1] : 0;
    uint64_t most = view.begin - row_begin;
    uint32_t before = 0;
    while (before < job.dna.run_length && before < most && is_run_letter(job, text_of(job, view)[-1 - int64_t{before}]))
        before++;
    return before;
}

// Letters of the same run directly in front of a letter of the round that begins with letter `first`.
DEVICE uint32_t run_before(const Job& job, const PartShared& shared, const View& view, uint32_t first,
                           uint32_t letter) {
    uint32_t before = 0;
    for (; before < job.dna.run_length; before++, letter--) {
        if (letter == first) {
            if (shared.run_end != first) return before;
            return before + (shared.run_before == RUN_UNKNOWN ? run_before_view(job, shared, view) : shared.run_before);
        }
        if (is_certain(shared, letter) || !is_run_letter(job, shared, letter - 1)) break;
    }
    return before;
}

// Letters of the same run directly behind a letter; the round ends in front of letter `end`.
DEVICE uint32_t run_behind(const Job& job, const PartShared& shared, const View& view, uint32_t letter, uint32_t end) {
    uint32_t behind = 0;
    for (; behind < job.dna.run_length && !is_certain(shared, ++letter); behind++) {
        if (letter >= view.size)
            return view.begin + letter < job.batch.num_bytes ? static_cast<uint32_t>(job.dna.run_length) : behind;
        if (!(letter < end ? is_run_letter(job, shared, letter) : is_run_letter(job, text_of(job, view)[letter])))
            break;
    }
    return behind;
}

// Resolves the letters of PART_CLASS_MIXED in the round that begins with letter `first`: each becomes a gap or a mixed
// letter. The whole block calls it.
DEVICE_NOINLINE void resolve_mixed(const Job& job, PartShared& shared, View view, uint32_t first) {
    uint32_t letter = first + LETTERS_A_THREAD * threadIdx.x, in_run = 0, begins = 0, mixed = 0, run = 0;
    uint32_t end = min_of(first + ROUND, view.size);
    for (uint32_t i = 0; i < LETTERS_A_THREAD && letter + i < end; i++) {
        uint32_t length = shared.lengths[letter + i + 1];
        if (length < GAP_LENGTH || shared.letters[length - GAP_LENGTH] != PART_CLASS_MIXED) continue;
        uint32_t before = run_before(job, shared, view, first, letter + i);
        uint32_t whole = before + 1 + run_behind(job, shared, view, letter + i, end);
        bool is_long = job.dna.run_length && whole >= job.dna.run_length;
        in_run |= is_long << i;
        mixed |= !is_long << i;
        begins |= (before == 0) << i;
        if (letter + i + 1 == end && !is_certain(shared, end)) run = before + 1;
    }
    __syncthreads();
    for (uint32_t i = 0; i < LETTERS_A_THREAD; i++) {
        uint32_t own = letter + i;
        if (in_run >> i & 1) {
            set_certain(shared, own);
            set_certain(shared, own + 1);
            if (begins >> i & 1 && job.dna.run_id != NO_TOKEN) shared.lengths[own + 1] = RUN_BEGINS;
        } else if (mixed >> i & 1) {
            set_bit(shared.mixed, own + 1);
            shared.lengths[own + 1] = 0;
        }
    }
    if (mixed) shared.has_mixed = 1;
    if (mixed && !job.parts.num_part_mixed) shared.failure = NOT_ENCODED;
    if (letter < end && end <= letter + LETTERS_A_THREAD) shared.run_end = end, shared.run_before = run;
    if (threadIdx.x == 0) shared.has_unresolved = 0;
    __syncthreads();
}

}  // namespace warptok::dna
