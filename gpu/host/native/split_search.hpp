// Where a long text may be cut: the blank behind an ASCII letter that is nearest to one of its ends.
//
//     text       Dear reader ............................... and
//     distances  0    4                                   3    0
//                begin ->                              <- end
//
// Text without such a place is read as a whole, by all threads: as fast as memory gives it.
#pragma once

#include <cstdint>

#include "thread_pool.hpp"

namespace staging {

constexpr size_t BLOCK_BYTES = 256;  // Looked at as a whole, with vector instructions.

// 0 where a blank stands behind a letter. Nothing but what vectors of bytes can do.
inline uint8_t no_border(const uint8_t* text) {
    uint8_t letter = static_cast<uint8_t>((text[-1] | 0x20) - 'a'), last = 'z' - 'a';
    return static_cast<uint8_t>((text[0] ^ ' ') | (std::max(letter, last) ^ last));
}

inline bool has_border(const uint8_t* block) {
    uint8_t least = 0xFF;
    for (size_t i = 0; i < BLOCK_BYTES; i++) least = std::min(least, no_border(block + i));
    return least == 0;
}

// How many bytes lie in front of the first border; `size` where there is none.
inline size_t distance_from_begin(const uint8_t* text, size_t size) {
    size_t place = 0;
    while (size - place >= BLOCK_BYTES && !has_border(text + place)) place += BLOCK_BYTES;
    while (place < size && no_border(text + place)) place++;
    return place;
}

// How many bytes lie behind the last border; `size` where there is none.
inline size_t distance_from_end(const uint8_t* text, size_t size) {
    size_t end = size;
    while (end >= BLOCK_BYTES && !has_border(text + end - BLOCK_BYTES)) end -= BLOCK_BYTES;
    while (end > 0 && no_border(text + end - 1)) end--;
    return size - end;
}

// Looks at a text from one of its ends on; the byte in front of the text is read, too.
class SearchJob final : public Job {
   public:
    SearchJob(const void* text, size_t size, bool from_end)
        : Job(pieces_of(size)), text_(static_cast<const uint8_t*>(text)), size_(size), from_end_(from_end),
          distances_(num_pieces, size), found_in_(num_pieces) {}

    bool has_found() const { return found_in_ < num_pieces; }
    // Between that end and the nearest border in the pieces that were looked at; the text's size: none.
    size_t distance() const {
        return distances_.empty() ? size_ : *std::min_element(distances_.begin(), distances_.end());
    }

   private:
    void work(size_t piece) override {
        if (found_in_ < piece) return;
        size_t near = piece * PIECE_BYTES, length = std::min(PIECE_BYTES, size_ - near);
        size_t distance = from_end_ ? distance_from_end(text_ + (size_ - near - length), length)
                                    : distance_from_begin(text_ + near, length);
        if (distance == length) return;
        distances_[piece] = near + distance;
        found_in_ = piece;
    }

    const uint8_t* const text_;
    const size_t size_;
    const bool from_end_;
    std::vector<size_t> distances_;  // Of each piece's nearest border.
    std::atomic<size_t> found_in_;   // A piece with a border: those behind it do not matter.
};

}  // namespace staging
