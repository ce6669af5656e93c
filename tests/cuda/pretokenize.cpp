// The pretokenizer's device functions as C++: the passes of pretokenize_stage.cuh as plain loops.
#include "pretokenize_tiles.cuh"

static Reader reader_of(const Job& job) {
    return {job.text, job.num_bytes, job.hard, job.entries, job.class_pages, job.class_table};
}

// The first pass; job.bad_tiles[0] is how many tiles are bad. `slow` makes every tile bad.
static void first_pass(const Job& job, const Reader& reader, bool slow) {
    job.bad_tiles[0] = 0;
    for (uint32_t tile = 0; tile < num_tiles(job); tile++) {
        for (uint32_t half = 0; half < 2; half++) {
            uint32_t flags = NO_STARTS | (slow ? UNRESOLVED : 0), state = 0;
            for (uint32_t i = half * 32; i < half * 32 + 32; i++) {
                uint64_t begin = tile * uint64_t(TILE) + i * CHUNK;
                if (begin + CHUNK > job.num_bytes) flags &= ~NO_STARTS;
                if (begin >= job.num_bytes) continue;
                Chunk chunk = pretokenize_chunk(reader, begin);
                job.starts[begin / 64] = chunk.starts;
                if (!chunk.resolved) flags |= UNRESOLVED;
                if (chunk.starts) flags &= ~NO_STARTS;
                state = state_of(chunk.entry);
            }
            (half ? job.tile_state : job.tile_entry)[tile] = flags | state;
        }
        job.bad_tiles[0] += settled_state(job, reader, tile) == UNRESOLVED;
    }
}

extern "C" void pretokenize_batch(const Job* pointer, uint32_t slow) {
    const Job& job = *pointer;
    Reader reader = reader_of(job);
    first_pass(job, reader, slow);
    uint32_t tiles = num_tiles(job), state = 0;
    for (uint32_t tile = 0; tile < tiles; tile++) {
        job.tile_state[tile] = settled_state(job, reader, tile);
        if (job.tile_state[tile] != UNRESOLVED) continue;
        for (uint32_t from = 0; from < job.num_states; from++) map_tile(job, reader, tile, from);
    }
    for (uint32_t first = 0; first < tiles; first++) {
        if (!run_begins(job, first, state)) continue;
        for (uint32_t tile = first; tile < tiles && job.tile_state[tile] == UNRESOLVED; tile++) {
            job.tile_entry[tile] = state;
            state = job.tile_function[tile * 32ull + state];
        }
    }
    for (uint32_t tile = 0; tile < tiles; tile++)
        if (job.tile_state[tile] == UNRESOLVED) redo_tile(job, reader, tile, job.tile_entry[tile]);
}
