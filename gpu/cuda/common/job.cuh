// The one argument of every kernel: where a batch, its vocabulary and its workspace lie.
//
// Numbers of bytes, rows and ids are read from here and never from launch parameters, so that a captured launch serves
// batches of any size.
//
// Invariant: a Job is written before the launch that reads it; no kernel changes one but for the copy that put_job
// makes on the device.
#pragma once
#include "common/job_types.cuh"

constexpr uint32_t TILE = 4096;            // Bytes of text that one block handles at a time.
constexpr uint32_t WORDS_A_TILE = TILE / 64;  // Words of bits, one bit a byte.
constexpr uint32_t BLOCK = 256;            // Threads of a block, unless a kernel says otherwise.
constexpr uint32_t NUM_BINS = 8;           // Lists of missed pieces (those that are no token), by length.
constexpr uint32_t MAX_PIECE = 128;        // Bytes of the longest piece that is merged.

// How a batch comes to the device and what its fused kernel does (batch/load_batch.cuh, text/fused/stages.cuh).
struct Launch {
    uint64_t* device_job;            // The copy of this Job that the other kernels read.
    uint64_t* cleared;               // uint64[num_cleared], zeros before the other kernels run.
    uint64_t num_cleared;
    uint32_t* grid_arrivals;         // uint32[1], see wait_for_grid. Zero before the first batch.
    uint64_t validates;              // Not 0: rows are checked for UTF-8.
    uint64_t num_rounds;             // Rounds of special tokens, 0 .. 2.
    uint64_t post_processed;         // Not 0: rows get begin and end tokens, or are truncated.
    uint64_t planned_fallback;       // FALLBACK_*: where a grid stops, whatever it finds; 0: only where it must.
};

// The text of a batch and its hard boundaries, for all families.
struct Batch {
    const uint8_t* text;             // uint8[num_bytes], 64 readable bytes behind it.
    uint64_t num_bytes;
    uint64_t num_rows;
    uint64_t* hard;                  // Bits of bytes: a row, or a special token, begins or ends in front of it.
};

// The options of each row, and its faults.
struct Rows {
    const int64_t* row_begins;       // int64[num_rows + 1].
    const uint8_t* row_flags;        // uint8[num_rows], ROW_* bits.
    const uint32_t* row_max_length;  // uint32[num_rows], NO_LIMIT; a null pointer: none has one.
    uint32_t* row_errors;            // uint32[num_rows] first byte in the batch that is not UTF-8, NO_BYTE.
    uint32_t* row_refused;           // uint32[num_rows] first byte in the batch of what the row refuses, NO_BYTE.
    uint32_t* row_stretch;           // uint32[num_rows] begin of the stretch that holds row_refused, NO_BYTE.
};

// Ids on the device (batch/narrow_ids.cuh).
struct Answer {
    int32_t* ids;                    // int32[num_bytes] at most.
    int64_t* id_offsets;             // int64[num_rows + 1].
    uint64_t id_bits;                // Bits of an id in the answer: 32, 16 or 8.
    void* narrow_ids;                // uint16[num_ids] or uint8[num_ids].
    uint64_t* status;                // uint64[8], see STATUS_*.
};

// A batch in pinned host memory (batch/load_batch.cuh), and the answer of a small one (batch/store_answer.cuh).
struct Host {
    const uint8_t* host_text;        // A null pointer: the text is on the device already.
    const int64_t* host_row_begins;
    const uint8_t* host_row_flags;   // Copied to row_flags and row_max_length unless these are 0.
    const uint32_t* host_row_max_length;
    const int32_t* answer_ids;       // `ids` or `post_processed_ids`.
    const int64_t* answer_offsets;
    int32_t* host_ids;               // Ids of id_bits; may be memory of the device.
    int64_t* host_offsets;           // int64[num_rows + 1].
    uint32_t* host_errors;           // uint32[num_rows].
    uint64_t* host_status;           // uint64[8].
};

// Begin and end tokens, truncation and spans (batch/post_process.cuh).
struct PostProcess {
    const int32_t* prefix;           // int32[num_prefix] begin tokens.
    uint64_t num_prefix;
    const int32_t* suffix;           // int32[num_suffix] end tokens.
    uint64_t num_suffix;
    uint64_t piece_ids;              // Ids of a row between its begin and end tokens, at most; 0: all.
    uint64_t* post_process_states;          // uint64[scan_tiles(num_rows) + 1]. Zeros before.
    int32_t* post_processed_ids;
    int64_t* post_processed_offsets; // int64[num_rows + 1].
    int64_t* num_tokens;             // int64[num_rows] ids before truncation.
    int64_t* kept;                   // int64[num_rows][2] begin and end of the kept ids of a row.
    uint64_t* span_states;           // uint64[scan_tiles(ids) + 1]. Zeros before.
    uint32_t* span_begins;           // uint32[ids + 1] bytes that the ids before one spell.
    int64_t* spans;                  // int64[ids of the answer][2].
};

// Rows that are encoded otherwise than they were sent (batch/augment_rows.cuh).
struct Augmentation {
    const uint8_t* sent_text;        // uint8[...] the batch as it was sent; a null pointer: `text` is that.
    const int64_t* sent_begins;      // int64[num_rows + 1] where its rows begin.
    const uint8_t* complement;       // uint8[256] the complement of each letter.
    uint32_t* row_not_ascii;         // uint32[num_rows] not 0: a reversed row is no sequence. Zeros before.
    uint64_t random_seed;
    uint64_t first_row;              // The row number by which the random numbers of row 0 are drawn.
    uint64_t substitution_rate;      // Of 2^24 letters so many are substituted.
};

// Special tokens and motifs (gpu/vocabulary/special_tokens.py, special/find.cuh).
struct Special {
    const uint32_t* special_edges;   // uint32[slots][4] hash table of a trie, see special/trie.cuh.
    uint64_t special_mask;           // Slots - 1, a power of two - 1.
    const uint32_t* special_nodes;   // uint32[nodes] id of the token that ends there, NO_ID.
    // uint32[rounds][2][8] bits of bytes: those that a token begins with, and those that may be its second one.
    const uint32_t* special_first;
    uint64_t* special;               // Bits of bytes: an accepted special token begins here. Zeros before.
    uint32_t* special_counts;        // uint32[8], see COUNT_*. Zeros before.
    uint64_t* special_list;          // uint64[num_tiles] tiles that have candidates, see special/find.cuh.
    uint32_t* special_matches;       // uint32[num_tiles][TILE] these candidates, see special/find.cuh.
    uint16_t* special_exits;         // uint16[num_tiles] bytes of the next tile that a tile's last token covers.
    uint8_t* special_function;       // uint8[num_tiles][256] the same, by the bytes that the tile before covers.
};

// The tokens of a vocabulary of any family.
struct Tokens {
    uint64_t num_ids;
    uint64_t max_token;              // Bytes of the longest token.
    const uint8_t* token_bytes;      // All tokens, joined; 16 readable bytes behind them.
    const uint32_t* token_begins;    // uint32[num_ids + 1].
    uint64_t seed;
};

// The pretokenizer (gpu/text/pretokenizer_automaton.py), and the check of NFC (gpu/text/nfc_check.py).
struct Pretokenizer {
    const uint32_t* entries;         // uint32[128 + num_classes][33], a step of every state and row.
    const uint16_t* class_pages;     // uint16[0x110000 >> 8].
    const uint8_t* class_table;      // uint8[pages][256], rows of `entries`.
    uint64_t num_states;             // States that stand for one state of the rule; others are sets of these.
    uint64_t num_classes;            // Rows of `entries` behind those of ASCII.
    uint8_t* half_states;            // uint8[num_tiles][2], see text/pretokenize/first_pass.cuh.
    uint8_t* tile_state;             // uint8[num_tiles] the state behind a good tile, or UNRESOLVED.
    uint8_t* tile_entry;             // uint8[num_tiles] the state before a bad tile.
    uint32_t* bad_tiles;             // uint32[1] halves of tiles with unresolved chunks. Zero before.
    uint8_t* tile_function;          // uint8[num_tiles][32] the state behind a bad tile, by the state before it.
    uint8_t* tile_pending;           // uint8[num_tiles][32] the fate of a start pending before it, by the same.
    uint8_t* chunk_before;           // uint8[num_tiles][64][32] the state before a chunk, by that before its tile.
    uint8_t* chunk_pending;          // uint8[num_tiles][64][32] as tile_pending, from a chunk to its tile's end.
    const uint16_t* composed_pages;  // uint16[0x110000 >> 8].
    const uint16_t* composed_rows;   // uint16[pages][256] COMPOSED_*.
    uint64_t composed_leads;         // Bits of bytes 0xC0 .. 0xFF: a character that begins so may not be left as it is.
};

// Byte-level BPE: its tables (gpu/text/bpe_tables.py), and what one stage writes for another.
struct Text {
    uint64_t* starts;                // Bits of bytes: a piece begins here.
    uint64_t* splits;                // Bits of bytes: a piece begins here and no pretoken. May be a null pointer.
    const ShortEntry* short_tokens;  // Hash table.
    uint64_t short_shift;            // 32 - bits of a bucket's number.
    const LongEntry* long_tokens;    // Hash table.
    uint64_t long_shift;             // As short_shift.
    const uint64_t* pairs;           // uint64[buckets][2] left << 43 | right << 22 | rank; ~0 is empty.
    uint64_t pair_shift;             // As short_shift.
    const uint32_t* byte_pairs;      // uint32[65536] rank of two bytes, second << 8 | first; NO_RANK.
    const uint32_t* pair_filter;     // uint32[FILTER_WORDS] a bit for each pair's hash.
    const uint32_t* run_numbers;     // uint32[128] 1 + the row of a byte whose runs have a head start; 0: it has none.
    const uint32_t* run_rows;        // uint32[rows][RUN_LENGTHS][RUN_WORDS], see text/merge/byte_runs.cuh.
    const uint8_t* run_steps;        // uint8[256] bytes of a token in long runs of a byte; 0: they vary.
    const uint32_t* listed_ids;      // uint32[...][4] ids of characters that are no tokens.
    const uint32_t* symbol_ids;      // uint32[256 + num_merges] ids of symbols, see text/merge/merge_piece.cuh.
    const uint16_t* rank_bounds;     // uint16[merges], see text/split/window_rounds.cuh.
    const uint32_t* borders;         // uint32[BORDER_WORDS], see text/split/boundary_filter.cuh.
    const uint32_t* byte_borders;    // uint32[BYTE_BORDER_WORDS].
    uint64_t has_whole_only;         // Not 0: some ids have the bit ONLY_WHOLE, see text/lookup/lookup.cuh.
    const uint32_t* token_places;    // Hash table of tokens of more than 28 bytes: ids, NO_ID is empty.
    uint64_t token_shift;            // As short_shift.
    uint32_t* records;               // uint32[num_tiles][TILE], see text/lookup/lookup.cuh.
    uint32_t* tile_pieces;           // uint32[num_tiles] pieces that begin in a tile.
    uint32_t* tile_counts;           // uint32[units] ids of a tile's or a part's pieces, see text/compact/compact.cuh.
    uint64_t* group_offsets;         // uint64[units / 8 + 1] ids before every eight units.
    uint32_t* miss_counts;           // uint32[NUM_BINS].
    uint32_t* merge_tickets;         // uint32[1] tickets handed out, see text/merge/merge_bins.cuh. Zero before.
    uint64_t* misses[NUM_BINS];      // uint64[miss_counts] of each bin, see LENGTH_OF_MISS.
    uint8_t* merged_counts[NUM_BINS];  // uint8[miss_counts] ids of each missed piece.
    uint32_t* merged_ids;            // Ids of missed pieces, see BinBegins.
    uint64_t* window_counts;         // uint64[4], see COUNT_WINDOWS. Zeros before.
    LongPiece* long_pieces;          // Pieces that windows split.
    WholePiece* whole_pieces;        // Those of them that have failed.
};

// Characters and k-mers: their tables (gpu/kmers/letter_tables.py, kmers/letters.cuh), and what one stage writes for
// another.
struct Kmers {
    const uint32_t* letter_table;    // uint32[NUM_LETTERS] what a letter is, see kmers/letters.cuh.
    const uint32_t* letter_ids;      // uint32[NUM_LETTERS] ids of letters that stand alone.
    const uint32_t* wide_letters;    // uint32[num_wide][4] what other characters than ASCII become.
    uint64_t num_wide;
    uint64_t kmer_k;                 // Letters of a k-mer.
    uint64_t kmer_stride;            // Letters from one k-mer's begin to the next one's.
    uint64_t kmer_base;              // Letters of the alphabet.
    uint64_t kmer_count;             // K-mers of the alphabet.
    uint64_t kmer_shared;            // Letters that neighbouring k-mers share.
    uint64_t kmer_of_shared;         // kmer_base to the power of kmer_shared,
    uint64_t kmer_of_stride;         // and of the letters that they do not share.
    uint64_t kmer_first_id;          // The id of k-mer number 0.
    uint64_t kmer_unknown_id;
    uint64_t kmer_shift;             // In a circle the first k-mer begins so many letters before the row's begin.
    uint64_t keeps_remainder;        // Not 0: letters that no k-mer covers have ids of their own.
    uint64_t has_words;              // Not 0: k-mers may stand apart, see kmers/general/id_starts.cuh.
    uint64_t can_wrap;               // Not 0: a row may be a circle.
    uint64_t wraps;                  // Not 0: all rows are circles where row_flags is a null pointer.
    uint64_t four_letters;           // The four letters of k-mers, by bits 1 and 2 of each, two bytes each; 0: others.
    uint64_t four_codes;             // The code of each, by the same bits.
    uint64_t four_fold;              // The bits of four bytes that tell letters apart.
    uint64_t four_case_flags;        // The table's flags of the four letters in the other case, joined.
    uint64_t row_length;             // Letters of all rows but the last one; 0: they vary, and the next are not read.
    uint64_t row_ids;                // Ids of each of these rows.
    uint64_t even_count;             // Rows as EvenRows counts them.
    uint64_t even_ids;               // Ids of each row but the last one, not 0.
    uint64_t even_kmers;             // How many of these are k-mers.
    uint64_t even_last_kmers;        // K-mers of the last row.
    uint64_t even_total;             // Ids of all rows.
    uint64_t even_length;            // Letters of each row but the last one.
    uint64_t even_ids_inverse;       // 2^32 - 1 over even_ids, see Divider.
    uint64_t even_length_inverse;    // 2^32 - 1 over even_length.
    uint64_t* place_states;          // uint64[scan_tiles(num_rows) + 1]. Zeros before.
    // uint32[num_bytes / LEAST_LETTERS + 1] the row of a tile's first letter, see kmers/row_offsets.cuh.
    uint32_t* row_marks;
    uint64_t* letter_states;         // uint64[scan_tiles(num_bytes) + 1]. Zeros before.
    uint16_t* letters;               // uint16[...]; a null pointer: the bytes of the text are.
    uint32_t* letter_places;         // uint32[...] the byte of the batch that each letter begins with.
    int64_t* letter_rows;            // int64[num_rows + 1] the first letter of each row.
    uint32_t* row_has_words;         // uint32[num_rows] not 0: the row has white space, and is read as words.
    uint64_t* breaks;                // Bits of letters: a run begins here. Zeros before.
    uint32_t* letter_tiles;          // uint32[letter tiles + 1] the last break before each tile.
    uint32_t* letter_tile_ids;       // uint32[letter tiles + 1] the ids before each tile.
    uint2* own_spans;                // uint2[ids] begin and end byte of each id in its row; a null pointer: none.
};

// Byte-pair encoding of letters: its tables (gpu/dna/tables.py), and what one stage writes for another.
struct Dna {
    const uint8_t* dna_classes;      // uint8[256], see dna/packed_text.cuh.
    const uint16_t* dna_letter_ids;  // uint16[256] ids of letters that do not merge, NO_TOKEN.
    const uint8_t* letter_map;       // uint8[256] what each letter becomes, see dna/map_letters.cuh.
    const uint32_t* uncovered_letters;  // uint32[num_uncovered] characters that become others.
    uint64_t num_uncovered;
    const uint32_t* dropped_letters;  // uint32[num_dropped] characters beyond ASCII without an id.
    uint64_t num_dropped;
    const uint32_t* stripped_letters;  // uint32[num_stripped] characters taken from a stretch's ends.
    uint64_t num_stripped;
    uint64_t strips;                 // Bits: 1 from the left end, 2 from the right end.
    uint64_t run_letter;             // run_length or more of this letter become run_id; 0xFF: no rule.
    uint64_t run_length;             // Letters.
    uint64_t run_id;                 // NO_TOKEN: they become nothing.
    uint64_t dna_k;                  // Letters that the next two are indexed by.
    const uint16_t* dna_longest;     // uint16[4^k], see dna/tokens.cuh.
    const uint16_t* dna_spelled;     // uint16[(4^(k+1) - 4) / 3].
    const uint64_t* dna_tokens;      // uint64[num_ids].
    const uint32_t* dna_pairs;       // uint32[classes][dna_pair_words] bits of compatible pairs.
    uint64_t dna_pair_words;
    const uint16_t* dna_longer;      // uint16[...][256].
    const uint4* long_ranges;        // uint32[...][4], see dna/tokens.cuh.
    const ulonglong2* long_keys;     // uint64[long tokens][2].
    const uint32_t* long_ids;        // uint32[long tokens] length << 16 | id.
    const uint8_t* mixed_bytes;      // uint8[num_mixed][MAX_LETTERS] tokens with other letters, in order.
    const uint32_t* mixed_ids;       // uint32[num_mixed] length << 16 | id.
    uint64_t num_mixed;
    uint64_t mixed_reach;            // Bases at most before the first other letter of a token.
    uint64_t ending_k;               // Letters that `ending_last` is indexed by; 0: there are no such tables.
    uint64_t ending_levels;          // How often BEFORE_LETTERS more are looked up, at most.
    const uint2* ending_last;        // Remaining[4^k] by the latest letters, the last one highest.
    const uint2* ending_opened;      // Remaining[...][16] by those before them.
    const uint32_t* ending_short;    // uint32[(4^k - 4) / 3] last tokens of texts of 1 .. k - 1 letters.
    const uint32_t* ending_begins;   // uint32[numbers + 1] where the tokens of each begin in:
    const uint2* ending_listed;      // uint32[...][2] tokens that may be the last one.
    const ulonglong2* ending_keys;   // uint64[...][2] letters of long ones, the last one highest.
    uint64_t dna_small_bytes;        // Text up to which chunks are small, see dna/windows/stitch.cuh.
    BaseWord* base_words;            // BaseWord[num_bytes / 16 + 16].
    uint8_t* mixed_words;            // uint8[num_bytes / 64] whether 64 letters have mixed ones.
    uint64_t* certain;               // Bits of bytes, and 64 behind them: no token crosses the border in front of it.
    uint32_t* window_bits;           // uint32[WINDOW_WORDS][num_windows] borders, see dna/windows/path.cuh.
    uint8_t* meetings;               // uint8[num_windows], see dna/windows/stitch.cuh.
    // uint32[REPAIR_ROUNDS + FINISH_ROUNDS + 1] windows that do not meet the one before, by round. Zeros before.
    uint32_t* unmet_counts;
    // uint64[4 * REPAIR_ROUNDS + 2 * FINISH_ROUNDS + 2][2], a pair a step, see common/grid_steps.cuh. Zeros before.
    uint64_t* repair_counts;
    uint32_t* window_tickets;        // uint32[1], see dna/windows/last_tokens.cuh. Zero before.
    uint32_t* num_deferred;          // uint32[1] windows that are deferred to the walk, zero before, and
    uint32_t* deferred_windows;      // uint32[num_windows] which ones; repair then has window_ranks in the same memory.
    uint32_t* window_ranks;          // uint32[4][num_windows], see dna/repair/rounds.cuh.
    uint64_t* window_states;         // uint64[REPAIR_ROUNDS][num_windows / SCAN_TILE + 2]. Zeros before.
    uint64_t* dna_states;            // uint64[num_tiles + 2]. Zeros before.
};

// DNA parts, the fused kernels of small batches (dna/parts/part.cuh, dna/parts/write_ids.cuh).
struct DnaParts {
    const uint8_t* part_classes;     // uint8[256] PART_CLASS_* and codes of bases.
    const uint2* part_ids;           // uint32[slots][2] hash table of long tokens: tag, id + 1; zeros empty.
    uint64_t part_shift;             // 64 - bits of a slot's number.
    uint64_t part_factor;            // A factor of the hash.
    // uint64[num_part_mixed][2] tokens with mixed letters, see dna/parts/mixed_letters.cuh.
    const ulonglong2* part_mixed;
    uint64_t num_part_mixed;
    uint64_t part_tail;              // Bases behind the last mixed letter of a token, at most.
    // uint32[256 + 64][REPEAT_LENGTHS] last tokens of texts that repeat, see dna/parts/repeats.cuh.
    const uint32_t* part_repeats;
    uint64_t* part_states;           // uint64[num_parts], see dna/parts/part_path.cuh.
};

// Ids to bytes (gpu/vocabulary/decode_table.py, decode/spell_ids.cuh).
struct Decode {
    const uint32_t* token_table;     // uint32[num_ids][4], see decode/spell_ids.cuh.
    const void* decode_ids;          // int32 or int64[num_decode_ids].
    uint64_t decode_wide;            // Not 0: they are int64.
    uint64_t num_decode_ids;
    const int64_t* decode_offsets;   // int64[num_rows + 1].
    uint64_t skip_special;           // Not 0: special tokens have no bytes.
    uint64_t* decode_states;         // uint64[2][num_decode_ids / DECODE_TILE + 2]. Zeros before.
    uint32_t* decode_faults;         // uint32[1] not 0 where an id has no bytes. Zeros before.
    uint8_t* decoded;                // uint8[decoded_capacity], aligned to 16 bytes.
    uint64_t decoded_capacity;       // Bytes. None is written behind them; decoded_offsets are right anyway.
    int64_t* decoded_offsets;        // int64[num_rows + 1].
};

// Windows over ids (kmers/windows.cuh), of C = num_window_prefix + window_length columns.
struct IdWindows {
    const int64_t* window_rows;      // int64[num_rows + 1] the first window of each row.
    uint64_t window_length;          // Ids of a window.
    uint64_t window_stride;          // Ids from one window's begin to the next one's.
    uint64_t window_pad;             // The id of padding.
    const int32_t* window_prefix;    // int32[num_window_prefix] ids before each window.
    uint64_t num_window_prefix;
    const float* channel;            // float32[num_bytes] a value for each byte; a null pointer.
    int32_t* window_ids;             // int32[windows][C]; this and what follows has room up to a multiple of four.
    int8_t* window_mask;             // int8[windows][C].
    int64_t* window_positions;       // int64[windows][C].
    float* window_values;            // float32[windows][C].
    int64_t* window_starts;          // int64[windows] the first id of each window, in its row.
};

// Every field has 8 bytes. No two structs have a field of the same name, so that Python finds each by its own name
// (gpu/kernels/job.py).
struct Job {
    Launch launch;
    Batch batch;
    Rows rows;
    Answer answer;
    Host host;
    PostProcess post_process;
    Augmentation augmentation;
    Special special;
    Tokens tokens;
    Pretokenizer pretokenizer;
    Text text;
    Kmers kmers;
    Dna dna;
    DnaParts parts;
    Decode decode;
    IdWindows windows;
};

constexpr uint32_t NO_RANK = 0xFFFFFFFF;
constexpr uint32_t NO_ID = 0xFFFFFFFF;
constexpr uint32_t NO_BYTE = 0xFFFFFFFF;   // The row has no fault.

DEVICE uint32_t num_tiles(const Job& job) { return (job.batch.num_bytes + TILE - 1) / TILE; }

constexpr uint32_t SMALL_BATCH_TILES = 1024;  // At most.
DEVICE bool is_small_batch(const Job& job) { return num_tiles(job) <= SMALL_BATCH_TILES; }
