// Encodes a stretch, which is adjacent letters that merge; it ends at gaps, special tokens and the ends of a text.
//
// The tables of last_tokens.hpp give the last token of every place, from the first one on. Then the path is read
// backwards from the end by the tokens' lengths.
//
//     text          a a b          tokens a b aa ab, merges (a, b) (a, a)
//     last tokens   a aa ab        aa may stand alone; ab may follow the a of place 1
//     path          a ab           back from place 3 by two letters, then by one
//
// The tables are right where the latest k letters are bases. Behind a mixed letter they are right after the tail of a
// mixed token and k bases (docs/internals/dna-bpe.md, *N in parts*); `find_lasts_near` handles the places before that.
#pragma once

#include <memory>

#include "last_tokens.hpp"

namespace dna {

// The letters of a stretch, and memory for its last tokens.
class Stretch {
   public:
    // Makes room for so many letters.
    void reserve(size_t num_letters) {
        if (num_letters <= capacity_) return;
        capacity_ = num_letters;
        memory_.reset(new uint8_t[PADDING + num_letters / 4 + PADDING]());
        codes_.reset(new uint8_t[num_letters + 8]);
        lasts_.reset(new Last[num_letters + 1]);
    }
    void clear() {
        size_ = 0;
        mixed_.clear();
    }

    // Adds eight bases, two bits each.
    void add_bases(uint64_t bases) {
        uint8_t* byte = packed() + size_ / 4;
        int shift = 2 * (size_ % 4);
        auto word = static_cast<uint32_t>(bases << shift | (*byte & mask_of(size_ % 4)));
        std::memcpy(byte, &word, 4);
        size_ += 8;
    }
    void add_letter(uint8_t code) {
        uint8_t* byte = packed() + size_ / 4;
        int shift = 2 * (size_ % 4);
        *byte = static_cast<uint8_t>((*byte & mask_of(size_ % 4)) | (code & 3) << shift);
        if (code >= FIRST_MIXED) mixed_.push_back(size_);
        size_++;
    }
    // Adds letters whose packed text, and codes, are written.
    void grow(Place num_letters) { size_ += num_letters; }
    // The codes of the letters, which are needed if there are mixed ones.
    uint8_t* codes() { return codes_.get(); }
    const uint8_t* codes() const { return codes_.get(); }

    Place size() const { return size_; }
    const std::vector<Place>& mixed() const { return mixed_; }
    uint8_t* packed() { return memory_.get() + PADDING; }
    const uint8_t* packed() const { return memory_.get() + PADDING; }

    Last& last(Place place) { return lasts_[static_cast<size_t>(place)]; }
    int length(Place place) { return length_of(last(place)); }
    uint64_t latest(Place place) const { return latest_letters(packed(), place); }

   private:
    size_t capacity_ = 0;
    Place size_ = 0;
    std::vector<Place> mixed_;
    std::unique_ptr<uint8_t[]> memory_, codes_;
    std::unique_ptr<Last[]> lasts_;
};

// The last tokens of texts that repeat one to four letters from their begin on.
//
// The first letters of such a text, as many as its period, are its number. A text that repeats one or two letters is
// also one that repeats four.
class Repeats {
   public:
    static constexpr int LENGTH = 256;
    static constexpr int PERIODS[2] = {4, 3};

    std::vector<Last> lasts;      // LENGTH + 1 of each text.

    static size_t row_of(uint64_t text, int period) { return period == 4 ? text : 256 + text; }
    static constexpr size_t NUM_ROWS = 256 + 64;
};

class StretchEncoder {
   public:
    StretchEncoder(const Tokens& tokens, const LastTokens& tables, const Repeats* repeats, Stretch& stretch)
        : tokens_(tokens), tables_(tables), repeats_(repeats), stretch_(stretch) {}

    // Writes the ids of the stretch so that they end at `end`; returns the first one.
    uint16_t* encode(uint16_t* end) {
        if (stretch_.mixed().empty()) {
            find_lasts_of_stretch<BASES>();
            return read_path<BASES>(end);
        }
        find_lasts_of_stretch<MIXED>();
        return read_path<MIXED>(end);
    }

    // Finds the last token of every place.
    void find_lasts() {
        if (stretch_.mixed().empty()) find_lasts_of_stretch<BASES>();
        else find_lasts_of_stretch<MIXED>();
    }

   private:
    static constexpr int BLOCK = 64;      // Places whose records are loaded together: bits of a word.
    static constexpr int GROUP = 16;      // Places that one word of letters is enough for.
    static constexpr int UNROLLED = 8;    // Places that one round of `choose_all` finds.

    struct Block {
        Place place;
        int count;
        uint64_t lists;                   // The places where k letters do not tell, as bits.
        uint64_t records[BLOCK];
    };

    // Whether a stretch has mixed letters. Most have none, and a loop that does not look for borders is faster.
    enum Letters { BASES, MIXED };

    // Reads the ids off from the end.
    template <Letters LETTERS>
    uint16_t* read_path(uint16_t* end) {
        const uint8_t* packed = stretch_.packed();
        const Last* lasts = &stretch_.last(0);
        for (Place place = stretch_.size(); place > 0;) {
            int length = length_of(lasts[place]);
            if constexpr (LETTERS == BASES) *--end = tokens_.spelled.find(tokens_.by_id, packed, place, length);
            else *--end = id_at(place, length);
            place -= length;
        }
        return end;
    }

    template <Letters LETTERS>
    void find_lasts_of_stretch() {
        stretch_.last(0) = BEGIN_LAST;
        border_ = 0;
        next_mixed_ = 0;
        Place place = find_first_lasts(), size = stretch_.size();
        Block blocks[3];          // What a block reads is prefetched one and two blocks ahead.
        load_two(place, blocks[0], blocks[1]);
        for (int number = 0; place <= size; number++) {
            Block &block = blocks[number % 3], &next = blocks[(number + 1) % 3], &third = blocks[(number + 2) % 3];
            load(next.place + next.count, third);
            look_at_more_letters(next);
            if constexpr (LETTERS == BASES) {
                choose_all(block, 0, block.count, 0);
                place += block.count;
            } else {
                place = find_lasts_of(block, place);
            }
            if (2 * __builtin_popcountll(block.lists) <= block.count) continue;
            Place behind = extend_repeat(place);
            if (behind == place) continue;
            place = behind;
            load_two(place, next, third);
        }
    }

    // Finds the last tokens from a place up to the end of its block, or behind it; returns the next place.
    Place find_lasts_of(const Block& block, Place place) {
        const Place end = block.place + block.count;
        while (place < end) {
            Place until = std::min(end, bases_end() + 1);
            choose_all(block, static_cast<int>(place - block.place), static_cast<int>(until - block.place), border_);
            place = std::max(place, until);
            if (place <= bases_end() || place > stretch_.size()) continue;
            try_all_tokens(place);
            border_ = place;
            next_mixed_++;
            place = find_lasts_near();
        }
        return place;
    }

    // The next mixed letter, or the end.
    Place bases_end() const {
        return next_mixed_ < stretch_.mixed().size() ? stretch_.mixed()[next_mixed_] : stretch_.size();
    }

    // Loads the block of a place, and the one behind it.
    void load_two(Place place, Block& block, Block& next) const {
        load(place, block);
        look_at_more_letters(block);
        load(place + block.count, next);
    }

    // Finds the last tokens of the first places; returns the next one.
    Place find_first_lasts() {
        Place place = 1 + copy_repeat(bases_end());
        if (place > Repeats::LENGTH) return extend_repeat(place);
        for (; place <= bases_end() && place < tables_.k(); place++)
            stretch_.last(place) = tables_.of_short(stretch_.latest(place), static_cast<int>(place));
        return find_lasts_by_k(place);
    }

    // Finds the last tokens of places that have too few letters in front of them to look up more than k.
    Place find_lasts_by_k(Place place) {
        Place end = std::min(border_ + tail_behind_border() + tables_.k() + MORE - 1, bases_end());
        for (; place <= end; place++) {
            uint64_t record = tables_.records()[ending(stretch_.latest(place), tables_.k())];
            if (LastTokens::has_list(record)) {
                choose(place, record, border_);
            } else {
                Last before = stretch_.last(place + LastTokens::tested_begin(record));
                stretch_.last(place) = LastTokens::choose(record, before);
            }
        }
        return place;
    }

    // Finds the last tokens of the places near a mixed letter; returns the next one.
    //
    // The letters behind the mixed one are encoded as a text of their own. The last token that this gives for a place
    // is right if it may follow the last token of the place where it begins. That needs no test if the token there is
    // also that of the letters alone. Else the pair is tested, and if it is not compatible, all tokens are tried.
    Place find_lasts_near() {
        bool is_alone[MAX_K + MAX_LETTERS] = {true};  // Whether last tokens are those of the letters alone.
        const uint16_t in_front = tokens_.left_of[id_at(border_, stretch_.length(border_))];
        Place place = border_ + 1, end = std::min(border_ + tokens_.tail + tables_.k() - 1, bases_end());
        for (; place <= end; place++) {
            auto count = static_cast<int>(place - border_);
            Last alone;
            is_alone[count] = find_alone(place, count, is_alone, &alone) &&
                              may_be_last(place, length_of(alone), in_front, is_alone);
            if (is_alone[count]) stretch_.last(place) = alone;
            else try_all_tokens(place);
        }
        return find_lasts_by_k(place);
    }

    // Finds the last token of letters alone, if tables tell it.
    bool find_alone(Place place, int count, const bool* is_alone, Last* alone) {
        if (count < tables_.k()) {
            *alone = tables_.of_short(stretch_.latest(place), count);
            return true;
        }
        uint64_t record = tables_.records()[ending(stretch_.latest(place), tables_.k())];
        Place begin = LastTokens::tested_begin(record);
        if (LastTokens::has_list(record) || (!LastTokens::has_one(record) && !is_alone[count + begin])) return false;
        *alone = LastTokens::choose(record, stretch_.last(place + begin));
        return true;
    }

    // Whether the last token of the letters behind the border alone may follow the token in front of it. A token of
    // left class `in_front` is in front of the border.
    bool may_be_last(Place place, int length, uint16_t in_front, const bool* is_alone) {
        Place begin = place - length;
        if (begin > border_ && is_alone[begin - border_]) return true;
        uint16_t id = tokens_.spelled.find(tokens_.by_id, stretch_.packed(), place, length);
        uint16_t right = tokens_.by_id[id].right;
        return begin == border_ ? tokens_.pairs.may_follow_mixed(in_front, right) : may_begin(right, begin);
    }

    // Loads the records of the next places, finds those with lists, and prefetches what these refer to. It runs two
    // blocks ahead, so that no choice waits for memory.
    void load(Place place, Block& block) const {
        block.place = place;
        block.count = static_cast<int>(std::max<Place>(0, std::min<Place>(BLOCK, stretch_.size() - place + 1)));
        block.lists = 0;
        const uint64_t* table = tables_.records();
        const uint64_t mask = mask_of(tables_.k());
        for (int first = 0; first < block.count; first += GROUP) {
            Place begin = place + first - tables_.k();
            uint64_t letters;
            Two lists{};               // A bit of each pair of records, the latest one in the highest bits.
            std::memcpy(&letters, stretch_.packed() + (begin >> 2), 8);
            letters >>= 2 * (begin & 3);
#pragma GCC unroll 8
            for (int i = 0; i < GROUP; i += 2) {
                Two records{table[letters >> 2 * i & mask], table[letters >> (2 * i + 2) & mask]};
                std::memcpy(block.records + first + i, &records, sizeof(records));
                lists = lists >> 2 | (records & HAS_LIST);
            }
            block.lists |= (lists[0] >> 49 | lists[1] >> 48) << first;
        }
        if (block.count < BLOCK) block.lists &= (uint64_t{1} << block.count) - 1;
        for (uint64_t lists = block.lists; lists; lists &= lists - 1) {
            int i = __builtin_ctzll(lists);
            __builtin_prefetch(tables_.behind(block.records[i], stretch_.latest(place + i)));
        }
    }

    // Replaces records with lists by those of more letters, where these are behind the border. Near the next borders
    // they are wrong, and not read.
    void look_at_more_letters(Block& block) const {
        const Place first = border_ + tail_behind_border() + tables_.k() + MORE;
        for (uint64_t lists = block.lists; lists; lists &= lists - 1) {
            int i = __builtin_ctzll(lists);
            uint64_t& record = block.records[i];
            Place place = block.place + i;
            if (!LastTokens::has_block(record) || place < first) continue;
            record = tables_.more_record(record, stretch_.latest(place));
            tables_.prefetch_options(record);
        }
    }

    // Finds the last tokens of a part of a block, one after another. Lists are rare, so a branch for each place costs
    // the least.
    __attribute__((noinline)) void choose_all(const Block& block, int begin, int end, Place border) {
        const uint64_t *next = block.records + begin, *behind = block.records + end;
        Last* last = &stretch_.last(block.place + begin);
        auto choose_next = [&](int i) __attribute__((always_inline)) {
            uint64_t record = next[i];
            if (__builtin_expect(LastTokens::has_list(record), 0)) {
                choose(block.place + (next + i - block.records), record, border);
            } else {
                last[i] = LastTokens::choose(record, last[i + LastTokens::tested_begin(record)]);
            }
        };
        for (; behind - next >= UNROLLED; next += UNROLLED, last += UNROLLED) {
#pragma GCC unroll 8
            for (int i = 0; i < UNROLLED; i++) choose_next(i);
        }
        for (; next < behind; next++, last++) choose_next(0);
    }

    // Finds the last token of a place by a list. Not inlined, so that it leaves the loop its registers.
    __attribute__((noinline)) void choose(Place place, uint64_t record, Place border) {
        const Option* option = tables_.options(record);
        for (; option->test != Option::NONE; option++) {  // A token of bases does not reach across the border.
            Place begin = place - option->length;
            if (begin >= border && passes(*option, place, begin)) break;
        }
        stretch_.last(place) = option->last;
    }

    // The bases behind the border that mixed tokens may have.
    int tail_behind_border() const { return border_ ? tokens_.tail : 0; }

    bool passes(const Option& option, Place place, Place begin) {
        if (option.test == Option::BY_LETTERS) return is_spelled(option, place) && may_begin(option.right, begin);
        Last before = stretch_.last(begin);
        if (LastTokens::has_signature(option.doubtful, before)) return may_begin(option.right, begin);
        return LastTokens::has_signature(option.mask, before);
    }

    bool is_spelled(const Option& option, Place place) const {
        if (ending(stretch_.latest(place) ^ option.latest, std::min<int>(option.length, LATEST))) return false;
        return option.length <= LATEST ||
               SpelledTokens::is_spelled(tokens_.by_id[option.id], stretch_.packed(), place);
    }

    // Whether a token of a right class may begin at a place.
    bool may_begin(uint16_t right, Place place) {
        return place == 0 || tokens_.pairs.may_follow(tokens_.left_of[id_at(place, stretch_.length(place))], right);
    }

    // Finds the last token of a place near a mixed letter: of all tokens that end there the one that may.
    void try_all_tokens(Place place) {
        uint32_t node = 0;
        const uint8_t* codes = stretch_.codes();
        for (Place begin = place - 1; begin >= 0; begin--) {
            node = tokens_.endings.child(node, codes[begin]);
            if (node == Endings::NONE) break;
            uint16_t id = tokens_.endings.token(node);
            if (id == NO_TOKEN || !may_begin(tokens_.by_id[id].right, begin)) continue;
            stretch_.last(place) = tables_.last_of(id);
            return;
        }
        throw std::logic_error("no token is the last one of a text");
    }

    // The id of a token of so many letters in front of a place.
    uint16_t id_at(Place place, int length) {
        if (length <= tokens_.longest_mixed && !stretch_.mixed().empty()) {
            const uint8_t* end = stretch_.codes() + place;
            if (std::any_of(end - length, end, [](uint8_t code) { return code >= FIRST_MIXED; })) {
                uint32_t node = 0;
                for (int i = 1; i <= length; i++) node = tokens_.endings.child(node, end[-i]);
                return tokens_.endings.token(node);
            }
        }
        return tokens_.spelled.find(tokens_.by_id, stretch_.packed(), place, length);
    }

    // Copies the last tokens of the letters at the begin that repeat; returns how many.
    Place copy_repeat(Place end) {
        constexpr int LEAST = 16;
        if (!repeats_ || end < LEAST) return 0;
        for (int period : Repeats::PERIODS) {
            if (repeated(LEAST, period, LEAST - period) < LEAST - period) continue;
            Place most = std::min<Place>(end, Repeats::LENGTH), count = LEAST;
            count += repeated_from(count, most, period);
            uint64_t first = ending(stretch_.latest(period), period);
            size_t row = Repeats::row_of(first, period) * (Repeats::LENGTH + 1);
            std::copy_n(repeats_->lasts.data() + row + 1, count, &stretch_.last(1));
            return count;
        }
        return 0;
    }

    // The number of letters in front of a place that equal the letters `period` before them; `most` at most.
    Place repeated(Place place, int period, Place most) const {
        Place count = 0;
        while (count < most) {
            uint64_t differs = stretch_.latest(place - count) ^ stretch_.latest(place - count - period);
            int equal = differs ? std::min(__builtin_clzll(differs) / 2, LATEST) : LATEST;
            count += equal;
            if (equal < LATEST) break;
        }
        return std::min(count, most);
    }

    // The number of letters from a place on that equal the letters `period` before them.
    Place repeated_from(Place place, Place end, int period) const {
        Place first = place;
        for (; place + LATEST <= end; place += LATEST)
            if (repeated(place + LATEST, period, LATEST) < LATEST) break;
        while (place < end && (stretch_.latest(place + 1) ^ stretch_.latest(place + 1 - period)) >> 62 == 0) place++;
        return place - first;
    }

    // Where letters repeat, last tokens do so after a while: copies them as long as letters repeat.
    //
    // The last token of a place follows from those of the `longest` places in front of it, and from the letters of
    // these tokens. If all of these are those a period before, so is the next last token.
    Place extend_repeat(Place place) {
        const int reach = tokens_.longest;
        Place known = place - 1 - border_;
        for (int period = 1; period <= MAX_LETTERS && known >= 2 * reach + period; period++) {
            if (repeated(place - 1, period, 2 * reach) < 2 * reach || !lasts_repeat(place - 1, period)) continue;
            Place until = place + repeated_from(place - 1, bases_end(), period);
            for (; place < until; place++) stretch_.last(place) = stretch_.last(place - period);
            break;
        }
        return place;
    }

    // Whether the last tokens up to a place, as many as a token may have letters, are those a period before.
    bool lasts_repeat(Place place, int period) {
        for (Place i = place - tokens_.longest + 1; i <= place; i++)
            if (stretch_.last(i) != stretch_.last(i - period)) return false;
        return true;
    }

    const Tokens& tokens_;
    const LastTokens& tables_;
    const Repeats* repeats_;
    Stretch& stretch_;
    Place border_ = 0;         // Behind the latest mixed letter, or the begin.
    size_t next_mixed_ = 0;    // The number of the next mixed letter.
};

// Computes the last tokens of all repeats. The vocabulary's bases have codes below `num_bases`.
inline Repeats make_repeats(const Tokens& tokens, const LastTokens& tables, uint8_t num_bases) {
    Repeats made;
    made.lasts.resize(Repeats::NUM_ROWS * (Repeats::LENGTH + 1));
    Stretch stretch;
    stretch.reserve(Repeats::LENGTH);
    StretchEncoder encoder(tokens, tables, nullptr, stretch);
    for (int period : Repeats::PERIODS)
        for (uint64_t text = 0; text <= mask_of(period); text++) {
            bool is_possible = true;
            stretch.clear();
            for (int i = 0; i < Repeats::LENGTH; i++) {
                auto code = static_cast<uint8_t>(text >> 2 * (i % period) & 3);
                is_possible &= code < num_bases;
                stretch.add_letter(code);
            }
            if (!is_possible) continue;
            encoder.find_lasts();
            size_t row = Repeats::row_of(text, period) * (Repeats::LENGTH + 1);
            std::copy_n(&stretch.last(0), Repeats::LENGTH + 1, made.lasts.data() + row);
        }
    return made;
}

}  // namespace dna
