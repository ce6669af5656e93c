// Writes ids of a row to their places, with begin and end tokens and spans.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace symbols {

struct Span {
    int64_t begin, end;
};

// The begin and end tokens around each row, or around every `piece_size` of its ids (0: around the whole row).
struct Around {
    const int32_t *prefix, *suffix;
    int64_t prefix_size, suffix_size, piece_size;

    int64_t size() const { return prefix_size + suffix_size; }
    int64_t num_pieces(int64_t count) const { return piece_size ? count / piece_size + 1 : 1; }
};

// Converts the places of a row as it is encoded to places of the row as it was sent.
struct Places {
    int64_t length;              // Of the sent row.
    int64_t shift;               // The sent place of the first letter of a circular row.
    bool is_other_strand, is_circular;

    // Example: ACGTT, k = 3, circular: the k-mer at 4 is TAC and has the span 4..5.
    Span sent(int64_t begin, int64_t end) const {
        if (is_circular) {
            int64_t size = end - begin;
            begin = (begin + shift) % length;
            end = begin + size < length ? begin + size : length;
        }
        if (is_other_strand) return {length - end, length - begin};
        return {begin, end};
    }
};

template <typename Id>
class Writer {
   public:
    // `row_place` is the place of the row's ids in the arrays.
    Writer(const Around& around, const Places& places, Id* ids, Span* spans, int64_t row_place)
        : around_(around), places_(places), ids_(ids), spans_(spans), place_(row_place),
          left_in_piece_(around.piece_size ? around.piece_size : std::numeric_limits<int64_t>::max()) {}

    void begin_row() { put_added(around_.prefix, around_.prefix_size); }
    void end_row() { put_added(around_.suffix, around_.suffix_size); }

    // Skips the begin of a row with its first `count` ids, which another writer writes.
    void skip(int64_t count) {
        place_ += around_.prefix_size + count;
        if (!around_.piece_size) return;
        place_ += count / around_.piece_size * around_.size();
        left_in_piece_ = around_.piece_size - count % around_.piece_size;
    }

    // Writes ids: the first one's letters begin at `begin`, the next one's `step` behind, and each has `size` of them.
    template <typename Value>
    void put(const Value* values, int64_t count, int64_t begin, int64_t step, int64_t size) {
        while (count) {
            int64_t now = count < left_in_piece_ ? count : left_in_piece_;
            copy(values, now, ids_ + place_);
            wrote(now, begin, step, size);
            values += now;
            count -= now;
            begin += now * step;
        }
    }

    // Writes for each letter the id in its entry of a table, without flags; returns all entries, or-ed.
    uint32_t look_up(const uint8_t* letters, int64_t count, const uint32_t* table, uint32_t mask, int64_t begin) {
        uint32_t found = 0;
        while (count) {
            int64_t now = count < left_in_piece_ ? count : left_in_piece_;
            found |= copy_entries(letters, now, table, mask, ids_ + place_);
            wrote(now, begin, 1, 1);
            letters += now;
            count -= now;
            begin += now;
        }
        return found;
    }

   private:
    template <typename Value>
    static void copy(const Value* __restrict values, int64_t count, Id* __restrict ids) {
        for (int64_t i = 0; i < count; i++) ids[i] = static_cast<Id>(values[i]);
    }

    static uint32_t copy_entries(const uint8_t* __restrict letters, int64_t count, const uint32_t* __restrict table,
                                 uint32_t mask, Id* __restrict ids) {
        uint32_t found = 0;
        for (int64_t i = 0; i < count; i++) {
            uint32_t entry = table[letters[i]];
            found |= entry;
            ids[i] = static_cast<Id>(entry & mask);
        }
        return found;
    }

    void wrote(int64_t count, int64_t begin, int64_t step, int64_t size) {
        if (spans_)
            for (int64_t i = 0; i < count; i++)
                spans_[place_ + i] = places_.sent(begin + i * step, begin + i * step + size);
        place_ += count;
        left_in_piece_ -= count;
        if (left_in_piece_ > 0) return;
        put_added(around_.suffix, around_.suffix_size);
        put_added(around_.prefix, around_.prefix_size);
        left_in_piece_ = around_.piece_size;
    }

    void put_added(const int32_t* added, int64_t count) {
        for (int64_t i = 0; i < count; i++, place_++) {
            ids_[place_] = static_cast<Id>(added[i]);
            if (spans_) spans_[place_] = {0, 0};
        }
    }

    const Around& around_;
    const Places& places_;
    Id* ids_;
    Span* spans_;
    int64_t place_;
    int64_t left_in_piece_;
};

}  // namespace symbols
