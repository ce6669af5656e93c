// The last resort for long pieces: those with a seam are encoded whole, in rounds of the whole grid.
//
// The pieces stand one behind the other, a symbol a byte at first, and are divided into parts of one size, as many as
// there are blocks. A part's symbols stay its own and lie side by side from its first byte's number on:
//
//     pieces      a b c d e f g h | i j k l            12 bytes, three parts
//     parts       a b c d   e f g h   i j k l
//     a round     ab  c d   ef gh . . i  jk l          ab, ef, gh and jk are merged
//                 ab c d .  ef gh . . i jk l .
//
// A part publishes (WholePart) what the others need in the next round: its first symbols, the rank of its last pairs,
// and its lowest rank. So a round is one step, and a part is worked on by one block
// (text/split/whole_piece_round.cuh). Which one does not matter: blocks take tickets (common/grid_steps.cuh). The
// symbols lie in `records`, their places and their pairs' ranks in `merged_ids`, and what parts publish in
// `misses`, which no stage has filled yet.
//
// Invariant: between two steps, merging on from the symbols of all parts gives enc of the pieces, and each part has
// published the values for its present symbols.
#pragma once
#include "text/split/whole_piece_late.cuh"
#include "common/grid_steps.cuh"

namespace warptok::text {

// The piece of byte `number` of all pieces: the last one that does not begin behind it.
DEVICE WholePiece whole_piece_of(const Job& job, uint32_t num_pieces, uint32_t number) {
    uint32_t low = 0, high = num_pieces - 1;
    while (low < high) {
        uint32_t middle = (low + high + 1) / 2;
        if (job.text.whole_pieces[middle].first <= number) low = middle;
        else high = middle - 1;
    }
    return job.text.whole_pieces[low];
}

// Step 0: a part's bytes are its symbols. Blocks also clear the starts inside of pieces.
DEVICE void begin_part(const Job& job, WholeShared& shared, const WholeSymbols& all, uint32_t number) {
    uint32_t num_pieces = job.text.window_counts[COUNT_WHOLE] >> COUNT_SHIFT, begin = all.begin_of(number);
    for (uint32_t i = number; i < num_pieces; i += all.num_parts)
        clear_starts(job, job.text.whole_pieces[i].begin + 1, job.text.whole_pieces[i].end, threadIdx.x, WHOLE_THREADS);
    uint32_t count = begin < all.total ? min_of(all.size, all.total - begin) : 0;
#pragma unroll 1
    for (uint32_t i = begin + threadIdx.x; i < begin + count; i += WHOLE_THREADS) {
        WholePiece piece = whole_piece_of(job, num_pieces, i);
        uint32_t place = piece.begin + (i - piece.first), byte = job.batch.text[place];
        bool is_last = place + 1 == piece.end;
        all.symbols[i] = is_last ? byte | LAST_OF_PIECE : byte;
        all.places[i] = place;
        all.ranks[i] =
            is_last ? NO_RANK : bounded(job, __ldg(job.text.byte_pairs + (byte | job.batch.text[place + 1] << 8)));
    }
    __syncthreads();
    describe(shared, all, all.parts[1][number], number, count);
}

// Sets the start bits of a part's symbols.
DEVICE void write_part_of_whole(const Job& job, const WholeSymbols& all, uint32_t number, uint32_t count) {
    uint32_t begin = all.begin_of(number);
    for (uint32_t i = begin + threadIdx.x; i < begin + count; i += WHOLE_THREADS) set_starts(job, all.places[i], 1);
}

// Bytes of all whole pieces of which one thread makes loud pairs grow; where there are more, others encode the batch.
constexpr uint32_t MOST_GROWN = 1 << 16;

// What a step does; it is the same for all blocks.
enum class WholeStep { END, GIVE_UP, MERGE, TEST, GROW };

DEVICE WholeStep kind_of_step(const WholeRound& round, uint32_t total) {
    if (round.lowest == NO_RANK) return WholeStep::END;
    if (!is_late(round.lowest) || round.loud == QUIET) return WholeStep::MERGE;
    if (round.loud != LOUD) return WholeStep::TEST;
    return total <= MOST_GROWN ? WholeStep::GROW : WholeStep::GIVE_UP;
}

// A part's share of a step; false if it was the last step.
DEVICE bool do_step(const Job& job, WholeShared& shared, const WholeSymbols& all, uint32_t step, uint32_t number) {
    WholeRound round = begin_round(shared, all, step, number);
    WholePart *next = all.parts[(step + 1) % 2], &part = shared.parts[number];
    switch (kind_of_step(round, all.total)) {
        case WholeStep::GIVE_UP:  // The answer is thrown away; until then pieces are as short as they are now.
            job.answer.status[STATUS_NOT_COVERED] = 1;
            [[fallthrough]];
        case WholeStep::END:
            write_part_of_whole(job, all, number, part.count);
            return false;
        case WholeStep::MERGE:
            describe(shared, all, next[number], number, merge_part(job, shared, all, round, number));
            return true;
        case WholeStep::TEST: {
            bool is_loud = has_loud_pair(job, shared, all, round, number);
            if (threadIdx.x == 0) next[number] = part, next[number].loud = is_loud ? LOUD : QUIET;
            return true;
        }
        case WholeStep::GROW:
            if (number) return true;
            if (threadIdx.x == 0) grow_whole(job, shared, all, rank_of_bounded(round.lowest));
            __syncthreads();
            for (uint32_t i = 0; i < all.num_parts; i++) describe(shared, all, next[i], i, shared.parts[i].count);
            return true;
    }
    return false;
}

// Encodes all whole pieces, by blocks of WHOLE_THREADS. Each block ends with a part of the last step, which has as many
// parts as there are blocks.
DEVICE void last_pieces_stage(const Job& job, WholeShared& shared, uint32_t block, uint32_t num_blocks) {
    uint64_t counts = job.text.window_counts[COUNT_WHOLE];
    if (!counts || block >= MAX_PARTS) return;
    WholeSymbols all = whole_symbols(job, counts % ONE_ABOVE, min_of(num_blocks, MAX_PARTS));
    Tickets tickets = {job.text.window_counts + COUNT_TICKETS, shared.ticket, all.num_parts};
    for (;;) {
        uint32_t ticket = tickets.draw(), step = ticket / all.num_parts, number = ticket % all.num_parts;
        if (step == 0) begin_part(job, shared, all, number);
        else if (!do_step(job, shared, all, step, number)) return;
        tickets.end();
    }
}

}  // namespace warptok::text
